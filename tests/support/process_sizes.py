"""What a process holds, as the kernel counts it: memory and file descriptors."""

from pathlib import Path


def sizes_of(pid: int) -> tuple[float, int]:
    """Resident megabytes and open descriptors.

    Raises:
        OSError: there is no such process.
    """
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return pages * 4096 / 2**20, len(list((folder / "fd").iterdir()))
