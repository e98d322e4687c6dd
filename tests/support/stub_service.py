"""Stands in for any service under the launcher: opens its ports, says so, waits for SIGTERM.

`STUB_FAILS=NAME` makes the stub of that name exit 1 before it serves; `STUB_DEAF=NAME`
makes it ignore SIGTERM.
"""

import argparse
import json
import os
import signal
import socket
import sys
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--grpc-port", type=int, action="append")
    parser.add_argument("--http-port", type=int, action="append")
    parser.add_argument("--metrics-port", type=int, action="append")
    parser.add_argument("--worker-id")
    parser.add_argument("--check-settings", action="store_true")
    given, _ = parser.parse_known_args()
    if given.check_settings:
        return 0
    name = given.worker_id or given.ready_file.stem
    if os.environ.get("STUB_FAILS") == name:
        print(f"{name} has no model")
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    listeners = {"metrics": listen(given.metrics_port or [0])}
    if given.grpc_port:
        listeners["grpc"] = listen(given.grpc_port)
    endpoints = {kind: f"127.0.0.1:{sock.getsockname()[1]}" for kind, sock in listeners.items()}
    endpoints |= {key: value for key, value in os.environ.items() if key.startswith("HEADRACE_")}
    draft = given.ready_file.with_suffix(".new")
    draft.write_text(json.dumps({"service": name, "endpoints": endpoints, "pid": os.getpid()}))
    draft.rename(given.ready_file)
    print(f"{name} serves", flush=True)
    signal.sigwait({signal.SIGTERM})
    if os.environ.get("STUB_DEAF") == name:
        print(f"{name} does not listen", flush=True)
        signal.sigwait({signal.SIGUSR1})
    print(f"{name} stops", flush=True)
    return 0


def listen(ports: list[int]) -> socket.socket:
    sock = socket.create_server(("127.0.0.1", ports[-1]))
    sock.listen()
    return sock


if __name__ == "__main__":
    sys.exit(main())
