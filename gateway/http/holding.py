"""Gives each HTTP exchange its share of what large messages may hold, to the last byte of its answer."""

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.held import HeldMessages, Share

_KEY = "headrace.share"


class Holding:
    """Middleware."""

    def __init__(self, app: ASGIApp, held: HeldMessages) -> None:
        """``held`` counts for gRPC, too."""
        self._app = app
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve; what the exchange holds is given back however it ends."""
        with self._held.share() as share:
            scope[_KEY] = share
            await self._app(scope, receive, send)


def share_of(scope: Scope) -> Share:
    """That of an exchange."""
    share: Share = scope[_KEY]
    return share
