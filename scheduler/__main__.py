"""``headrace-scheduler``: leads partitions and serves workers' sessions."""

import os
import sys

# gRPC's core writes to stderr by itself, past redaction, what peers tell it: lines of their making would look like ours.
# It reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

from common.server import run_service
from common.settings import settings_or_exit
from scheduler.serve import serve
from scheduler.settings import SchedulerSettings


def main() -> None:
    """Read the settings and serve."""
    settings = settings_or_exit(
        SchedulerSettings,
        sys.argv[1:],
        os.environ,
        prog="headrace-scheduler",
        about="Leads partitions: what waits, what joins which worker, what is logged.",
    )
    sys.exit(run_service("scheduler", settings, lambda runtime: serve(settings, runtime)))


if __name__ == "__main__":
    main()
