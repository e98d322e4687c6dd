"""The command line: a thin face of ``headrace.client``."""

import os

# gRPC writes notes about connections to standard error, where a command's own lines belong. It reads
# this once, when it is first imported; who wants the notes sets it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
