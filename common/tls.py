"""TLS on both sides of a link, from files that may be renewed while everything serves.

A server looks at its files whenever somebody connects, a client whenever it dials: a renewed certificate needs no
restart. Files that cannot be read or do not belong together, as while they are being replaced, leave what was before.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import grpc

from common.logs import Log

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificate chain, key and, where peers have to show certificates too, the CA that signs those; all PEM."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def stamp(self) -> Stamp:
        """Changes whenever a file does (OSError: one of them is not there)."""
        paths = (self.cert, self.key, *([self.client_ca] if self.client_ca else []))
        found = [path.stat() for path in paths]
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in found)

    def context(self) -> ssl.SSLContext:
        """For a server of TLS 1.2 and later (OSError, which ``ssl.SSLError`` is: the files are no good)."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self.cert, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        """For gRPC (OSError: the files are no good)."""
        self.context()  # gRPC does not say what is wrong with them; this does
        ca = None if self.client_ca is None else self.client_ca.read_bytes()
        pair = (self.key.read_bytes(), self.cert.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], root_certificates=ca)


class ServerTls:
    """What a server shows, kept in step with its files."""

    def __init__(self, files: TlsFiles, log: Log) -> None:
        """Reads them at once (OSError: they are no good)."""
        self._files = files
        self._log = log
        self._grpc_stamp = self._http_stamp = files.stamp()
        self._first = files.configuration()
        self._context = files.context()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """For a gRPC server, which asks again at each connection."""
        return grpc.dynamic_ssl_server_credentials(
            self._first,
            self._renewed_configuration,  # type: ignore[arg-type] # None means as before, which its stubs do not say
            require_client_authentication=self._files.client_ca is not None,
        )

    def http_context(self) -> ssl.SSLContext:
        """For a server of Python's, whose every handshake is led by the files of the moment."""
        return _ContextOfTheMoment(self._current_context)

    def _renewed_configuration(self) -> grpc.ServerCertificateConfiguration | None:
        """None: as before."""
        try:
            stamp = self._files.stamp()
            if stamp == self._grpc_stamp:
                return None
            configuration = self._files.configuration()
        except OSError as error:
            self._log.warning("certificate not renewed", error=str(error))
            return None
        self._grpc_stamp = stamp
        self._log.info("certificate renewed", port="grpc")
        return configuration

    def _current_context(self) -> ssl.SSLContext:
        try:
            stamp = self._files.stamp()
            if stamp != self._http_stamp:
                self._context = self._files.context()
                self._http_stamp = stamp
                self._log.info("certificate renewed", port="http")
        except OSError as error:
            self._log.warning("certificate not renewed", error=str(error))
        return self._context


class _ContextOfTheMoment(ssl.SSLContext):
    """Each connection gets a context's own whole, sessions included: whom a former CA let in resumes nothing."""

    def __new__(cls, current: Callable[[], ssl.SSLContext]) -> Self:
        """A context in name; ``current`` gives the one that connections get."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, current: Callable[[], ssl.SSLContext]) -> None:
        self._current = current

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        """As ``asyncio`` asks for each connection."""
        return self._current().wrap_bio(incoming, outgoing, server_side, server_hostname, session)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client trusts, and what it shows where servers ask for it."""

    ca: Path
    cert: Path | None = None
    key: Path | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read anew for each channel (OSError: a file is not there)."""
        return grpc.ssl_channel_credentials(
            self.ca.read_bytes(),
            None if self.key is None else self.key.read_bytes(),
            None if self.cert is None else self.cert.read_bytes(),
        )
