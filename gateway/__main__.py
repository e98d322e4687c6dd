"""``headrace-gateway``: reads the settings and serves."""

import os
import sys

# gRPC's core writes to stderr by itself, past redaction, what peers tell it: lines of their making would look like ours.
# It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from common.server import run_service
from common.settings import settings_or_exit
from gateway.app import serve
from gateway.settings import GatewaySettings


def main() -> None:
    """Run the gateway and exit with its code."""
    settings = settings_or_exit(
        GatewaySettings,
        sys.argv[1:],
        os.environ,
        prog="headrace-gateway",
        about="Takes requests from clients, queues them in Redis, and relays what workers generate.",
    )
    sys.exit(run_service("gateway", settings, lambda runtime: serve(settings, runtime)))


if __name__ == "__main__":
    main()
