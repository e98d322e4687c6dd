"""The border to protobuf: each message is translated to and from ``common`` values in one place."""
