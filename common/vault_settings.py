"""The setting of encryption, the same for every service that reads and writes what people wrote."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from common.setting_fields import setting
from common.streams.vault import Vault, read_keys


@dataclass(frozen=True, kw_only=True)
class VaultSettings:
    """Keys for what lies in Redis."""

    encryption_keys: Path | None = setting(
        None,
        help="file of Fernet keys, one a line: prompts and outputs lie encrypted in Redis, by the first of them",
    )

    def vault(self) -> Vault:
        """What seals and opens."""
        return Vault() if self.encryption_keys is None else Vault(read_keys(self.encryption_keys))

    def vault_problems(self) -> Iterator[str]:
        """What is wrong with the file."""
        try:
            self.vault()
        except (OSError, ValueError) as error:
            yield f"--encryption-keys: {self.encryption_keys}: {error}"
