"""What a command reads from and writes to."""

import io
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Terminal:
    """Standard input, output and error of one command."""

    input: TextIO
    output: TextIO
    error: TextIO

    def read_all(self) -> str:
        """Everything that standard input holds, with its line ends as they are.

        Raises:
            UnicodeError: it is no text.
        """
        if isinstance(self.input, io.TextIOWrapper):
            self.input.reconfigure(newline="")
        return self.input.read()

    def write(self, text: str) -> None:
        """Writes a piece of an answer at once. Piped, it is the text as it is."""
        # A model may have learned escape sequences; on a terminal they could do anything.
        self.output.write(_shown(text) if self.output.isatty() else text)
        self.output.flush()

    def line(self, text: str = "") -> None:
        """Writes a line of output."""
        self.write(text + "\n")

    def note(self, text: str) -> None:
        """Writes a line beside the output."""
        print(text, file=self.error, flush=True)

    def table(self, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Writes rows in aligned columns."""
        for line in table_lines(head, rows):
            self.line(line)

    def frame(self, text: str) -> None:
        """Writes text in place of what a terminal shows; anything else gets it behind the former."""
        if self.output.isatty():
            self.output.write("\x1b[H\x1b[2J")
        self.line(text)

    def progress(self, text: str) -> None:
        """Writes a line beside the output that a terminal shows in place of the last one."""
        end = "\x1b[K\r" if self.error.isatty() else "\n"
        self.error.write(text + end)
        self.error.flush()


def table_lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Rows in aligned columns."""
    cells = [list(head), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _shown(text: str) -> str:
    """The text with control characters made visible."""
    return "".join(
        char
        if char in "\n\t" or unicodedata.category(char) != "Cc"
        else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
