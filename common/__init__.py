"""What the services share."""

import os

# gRPC's core writes to stderr by itself, beside our lines and past their redaction, what peers tell it: a line of their
# making could not be told from one of ours. It reads this when it is first imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
