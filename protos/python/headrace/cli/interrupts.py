"""Ctrl-C while an answer comes: its stream is closed, and the interrupt raised where nothing is in the middle of anything.

Python raises it wherever the main thread is at the moment. Where that is inside gRPC, behind the taking of a lock and in front
of the line that would give it back, the channel's own thread waits for that lock for ever: no later call gets an answer.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from headrace.client import Cancelled


@contextmanager
def interruptible(close: Callable[[], None]) -> Iterator[None]:
    """Around the reading of a stream that `close` ends; a second interrupt is raised at once: somebody insists.

    Raises:
        KeyboardInterrupt: there was an interrupt.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # they do not come here, or somebody has decided already what they mean
        return
    is_asked = False

    def on_interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked:
            signal.default_int_handler(signum, frame)
        is_asked = True
        threading.Thread(target=close, daemon=True).start()

    former = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    except Cancelled:
        if not is_asked:
            raise
    finally:
        signal.signal(signal.SIGINT, former)
    if is_asked:
        raise KeyboardInterrupt
