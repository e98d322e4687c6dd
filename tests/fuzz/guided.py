"""Coverage-guided fuzzing of whatever parses bytes: atheris changes inputs that reached new code.

In one process and without a server, so that an input costs a millisecond at most. An exception that no client is meant to
cause ends it with the input, its traceback and a status that is not 0.

    python -m tests.fuzz.guided grpc|http|stored [libFuzzer's own flags, as -runs=100000]
"""

import sys
import tempfile
from pathlib import Path

import atheris

# Only what is imported in here is watched for code that an input reaches first.
with atheris.instrument_imports(include=["common.wire", "common.errors", "gateway"]):
    from tests.fuzz import seeds, targets


def main(name: str, flags: list[str]) -> None:
    """Ends the process."""
    with tempfile.TemporaryDirectory() as folder:
        given = [f"-artifact_prefix={folder}/", *seeds.write(name, Path(folder)), *flags]
        atheris.Setup([sys.argv[0], *given], targets.target(name))
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
