"""The session with a scheduler: the border between the engine and protobuf."""
