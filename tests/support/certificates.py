"""Certificates of a test's own CA, as files."""

from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass
class Certificates:
    """A CA and what it signs; `name` tells several of them apart."""

    folder: Path
    name: str = "ca"

    def __post_init__(self) -> None:
        self._authority = trustme.CA()
        self.ca = self.folder / f"{self.name}.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str) -> tuple[Path, Path]:
        """Certificate and key for loopback, written over those of the same name."""
        made = self._authority.issue_cert("localhost", "127.0.0.1")
        cert, key = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        made.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        return cert, key

    def server_flags(self, name: str, *, client_ca: Path | None = None) -> list[str]:
        """What a service is told."""
        cert, key = self.issue(name)
        flags = ["--tls-cert", str(cert), "--tls-key", str(key)]
        return [*flags, "--tls-client-ca", str(client_ca)] if client_ca else flags

    def client_flags(self, name: str) -> list[str]:
        """What a worker is told."""
        cert, key = self.issue(name)
        return ["--tls-ca", str(self.ca), "--tls-cert", str(cert), "--tls-key", str(key)]
