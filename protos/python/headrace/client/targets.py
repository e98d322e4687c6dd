"""What the channels of both clients share: one for each target, opened when first used, and which of them is in use."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import grpc

from headrace.client.connection import Metadata, Targets, call_metadata
from headrace.client.errors import HeadraceError
from headrace.client.trace import TraceContext

_Channel = TypeVar("_Channel")


class TargetChannels(ABC, Generic[_Channel]):
    """Opens channels, knows which one is in use, and moves on when it fails. Safe to share between threads."""

    def __init__(
        self,
        targets: Targets,
        credentials: grpc.ChannelCredentials | None,
        metadata: Metadata,
        compression: grpc.Compression | None = None,
    ) -> None:
        """Opens nothing yet, so that it may be made outside a loop; ``metadata`` goes with every call."""
        self.targets = targets
        self.base_metadata = metadata
        self.credentials = credentials
        self.compression = compression
        self._lock = threading.Lock()
        self._open: dict[int, _Channel] = {}
        self._stubs: dict[_Channel, Any] = {}
        self.current = 0
        self._closed = False

    def metadata(self, trace: TraceContext | None) -> tuple[tuple[str, str | bytes], ...]:
        """What a call sends: the client's metadata and a trace context."""
        return call_metadata(self.base_metadata, TraceContext.for_call(trace))

    def note(self, failure: HeadraceError, used: int) -> None:
        """After a failed call to target ``used``: the next one goes elsewhere if that one is away."""
        if failure.code == "UNAVAILABLE":
            with self._lock:
                # Many calls may fail at once; only the first of them moves on.
                if self.current == used:
                    self.current = self.targets.after(used)

    def note_moved(self, used: int, to: int) -> None:
        """A stream left target ``used``, which has lost the queue, for one that has not: so do the next calls."""
        with self._lock:
            if self.current == used:
                self.current = to

    def _channel(self, target: int | None = None) -> _Channel:
        """The channel of a target; without one, of that in use.

        Raises:
            RuntimeError: the client is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the client is closed")
            index = self.current if target is None else target
            if index not in self._open:
                self._open[index] = self._new(self.targets.addresses[index])
            return self._open[index]

    def _kept(self, make: Callable[[_Channel], object], target: int | None = None) -> Any:
        """The stub of a target; ``make`` is always the same. Making one costs a good part of a call."""
        channel = self._channel(target)
        if channel not in self._stubs:
            self._stubs[channel] = make(channel)
        return self._stubs[channel]

    def _take_all(self) -> list[_Channel]:
        """All that are open, to be closed; no other is opened from now on."""
        with self._lock:
            self._closed = True
            channels = list(self._open.values())
            self._open.clear()
            self._stubs.clear()
        return channels

    @abstractmethod
    def _new(self, address: str) -> _Channel:
        """A channel to an address."""
