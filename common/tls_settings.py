"""Settings of TLS, the same for every service that is connected to."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.logs import Log
from common.setting_fields import setting
from common.tls import ClientTls, ServerTls, TlsFiles


@dataclass(frozen=True, kw_only=True)
class ServerTlsSettings:
    """Without ``tls_cert`` a server speaks in the clear."""

    tls_cert: Path | None = setting(
        None,
        help="certificate chain (PEM): the service's ports are TLS then; renewed files are taken over",
    )
    tls_key: Path | None = setting(None, help="key of --tls-cert (PEM)")
    tls_client_ca: Path | None = setting(
        None, help="CA (PEM) of clients' certificates: without one nobody connects (mutual TLS)"
    )

    def tls_problems(self) -> Iterator[str]:
        """What is wrong with them together, and with the files."""
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "--tls-cert, --tls-key: go together"
        elif self.tls_cert is None and self.tls_client_ca is not None:
            yield "--tls-client-ca: needs --tls-cert and --tls-key"
        elif (files := self._files()) is not None:
            try:
                files.context()
            except OSError as error:
                yield f"--tls-cert, --tls-key, --tls-client-ca: {error}"

    def server_tls(self, log: Log) -> ServerTls | None:
        """None: in the clear."""
        files = self._files()
        return None if files is None else ServerTls(files, log)

    def _files(self) -> TlsFiles | None:
        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_client_ca)


@dataclass(frozen=True, kw_only=True)
class ClientTlsSettings:
    """Without ``tls_ca`` a client speaks in the clear."""

    tls_ca: Path | None = setting(
        None, help="CA (PEM) of the schedulers' certificates: they are dialled by TLS then"
    )
    tls_cert: Path | None = setting(
        None, help="certificate (PEM) to show to schedulers that ask for one"
    )
    tls_key: Path | None = setting(None, help="key of --tls-cert (PEM)")

    def tls_problems(self) -> Iterator[str]:
        """What is wrong with them together, and with the files."""
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "--tls-cert, --tls-key: go together"
        if self.tls_ca is None and self.tls_cert is not None:
            yield "--tls-cert: needs --tls-ca"
        if self.tls_ca is not None:
            try:
                self.client_tls()
            except OSError as error:
                yield f"--tls-ca, --tls-cert, --tls-key: {error}"

    def client_tls(self) -> ClientTls | None:
        """None: in the clear (OSError: a file is not there)."""
        if self.tls_ca is None:
            return None
        tls = ClientTls(self.tls_ca, self.tls_cert, self.tls_key)
        tls.credentials()
        return tls
