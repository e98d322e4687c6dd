"""The whole stack, from the first process to the last: start, tell, wait, stop."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable

from deploy.local.data_folder import DataFolder, open_data_folder
from deploy.local.redis_command import find_free_port, find_redis_binary
from deploy.local.report import endpoint_lines, endpoints_report, write_ready_file
from deploy.local.run_command import run_command
from deploy.local.settings import LocalSettings
from deploy.local.stack import Stack
from deploy.local.supervisor import Supervisor

# First nobody new gets in, then running work ends, then its records are settled, then the store.
_STOP_ORDER = ("gateway", "worker", "scheduler", "redis")


async def run_stack(settings: LocalSettings) -> int:
    """Serve until SIGINT or SIGTERM, or until `settings.run` has ended, whose status is returned; a second signal kills."""
    stop = asyncio.Event()

    def stop_telling() -> None:
        stop.set()
        grace_s = f"{settings.stop_grace_s:g} s"
        print(
            f"headrace-local: stopping: open requests have {grace_s} to end, then each service"
            f" has {grace_s} to finish; once more ends everything at once",
            file=sys.stderr,
            flush=True,
        )

    _on_stop_signals(stop_telling)
    with open_data_folder(settings.data_dir) as folder:
        async with asyncio.TaskGroup() as tasks:
            supervisor = Supervisor(tasks, folder.logs, echo=settings.verbose)
            serving = tasks.create_task(_serve(settings, folder, supervisor, stop))
            try:
                await stop.wait()
                serving.cancel()
            finally:
                _on_stop_signals(supervisor.kill)
                await supervisor.stop(_STOP_ORDER)
                if settings.ready_file is not None:
                    settings.ready_file.unlink(missing_ok=True)
    return 0 if serving.cancelled() else serving.result()


async def _serve(
    settings: LocalSettings, folder: DataFolder, supervisor: Supervisor, stop: asyncio.Event
) -> int:
    """Start each process when what it needs serves, then say where everything is; the status of what is run then."""
    stack = Stack(settings, folder, cores=os.cpu_count() or 1)
    [redis] = await supervisor.add(stack.redis(find_redis_binary(), find_free_port()))
    redis_url = redis.endpoints["redis"]
    [scheduler] = await supervisor.add(stack.scheduler(redis_url))
    address = scheduler.endpoints["grpc"]
    workers = [stack.worker(number, address) for number in range(settings.workers)]
    gateway, *_ = await supervisor.add(stack.gateway(redis_url), *workers)
    _tell(settings, supervisor)
    if settings.run is None:
        return 0
    status = await run_command(settings.run, gateway.endpoints["grpc"])
    if status != 0:
        # Logs only of what failed, or they would bury what the command itself said.
        for last_words in supervisor.failures.values():
            print(f"headrace-local: {last_words}", file=sys.stderr)
        print(f"headrace-local: {settings.run!r} ended with status {status}", file=sys.stderr)
    stop.set()
    return status


def _tell(settings: LocalSettings, supervisor: Supervisor) -> None:
    print("\n".join(endpoint_lines(supervisor.children)), flush=True)
    if (path := settings.ready_file) is not None:

        def write() -> None:
            write_ready_file(path, endpoints_report(supervisor.children))

        write()
        supervisor.on_served = write
    print("headrace-local: ready; Ctrl-C stops everything", flush=True)


def _on_stop_signals(react: Callable[[], None]) -> None:
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, react)
