"""Writes the list of modules in docs/architecture.md: a line each, from the modules' own docstrings.

python deploy/module_list.py [--check]      or: make docs
"""

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_PAGE = _ROOT / "docs" / "architecture.md"
_BEGIN = "<!-- Written by `make docs` from the modules' docstrings. -->\n"
_PACKAGES = ("common", "gateway", "scheduler", "worker", "deploy", "protos/python/headrace")


def module_list() -> str:
    """A heading per package, a line per module that says something."""
    lines = []
    for package in _PACKAGES:
        lines += [f"### {package}", "", "| module | |", "|---|---|"]
        lines += [f"| `{name}` | {says} |" for name, says in _modules(_ROOT / package)]
        lines.append("")
    return "\n".join(lines)


def _modules(folder: Path) -> Iterator[tuple[str, str]]:
    found = [*folder.rglob("*.py"), *folder.rglob("*.lua")]
    for path in sorted(found, key=lambda p: (p.parent, p.name)):
        if "_pb2" in path.name or path.stat().st_size == 0:
            continue
        if path.name == "__init__.py" and path.parent == folder:
            continue
        docstring = _docstring(path)
        name = path.relative_to(folder).as_posix()
        yield name.removesuffix("__init__.py"), _first_sentence(docstring)


def _docstring(path: Path) -> str:
    """Of a Python module, or the comment at the top of a Lua script."""
    text = path.read_text()
    if path.suffix == ".lua":
        comment = itertools.takewhile(lambda line: line.startswith("--"), text.splitlines())
        return "\n".join(line.removeprefix("--").strip() for line in comment)
    return ast.get_docstring(ast.parse(text)) or ""


def _first_sentence(docstring: str) -> str:
    paragraph = " ".join(docstring.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.]) ", paragraph, maxsplit=1)[0]
    return sentence.rstrip(".").replace("``", "`").replace("|", "\\|")


def main(argv: list[str]) -> int:
    """Exit status 1 when `--check` finds the page out of date."""
    page = _PAGE.read_text()
    head, marker, _ = page.partition(_BEGIN)
    wanted = head + (marker or _BEGIN) + "\n" + module_list()
    if "--check" in argv:
        if page != wanted:
            sys.stderr.write(
                "docs/architecture.md does not list the modules as they are: make docs\n"
            )
        return int(page != wanted)
    _PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
