"""The user of Redis' ACL that docs/operations.md names, word by word."""

import re
from pathlib import Path

_GUIDE = Path(__file__).parents[2] / "docs/operations.md"


def documented_user(secret: str) -> str:
    """The guide's line for an aclfile, with this secret."""
    (line,) = re.findall(r"^user headrace .*$", _GUIDE.read_text(), re.MULTILINE)
    return line.replace(">SECRET", f">{secret}")
