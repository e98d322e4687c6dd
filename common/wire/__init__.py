"""The border to protobuf: what more than one process reads is translated to and from ``common`` values here, once."""
