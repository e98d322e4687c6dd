"""An engine without a model: real blocks, real sessions, deterministic tokens, and as fast or slow as wanted."""
