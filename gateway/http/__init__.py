"""The gateway over HTTP: the OpenAI-compatible API and a plain one, translated to the calls that gRPC makes too."""
