"""Writes the dashboards: `python -m deploy.grafana`, after a change of `boards`."""

import json
from pathlib import Path

from deploy.grafana.boards import BOARDS
from deploy.grafana.panels import Board, board_json

FOLDER = Path(__file__).parent / "dashboards"


def text_of(board: Board) -> str:
    """A dashboard's file."""
    return json.dumps(board_json(board), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write all of them."""
    FOLDER.mkdir(exist_ok=True)
    for board in BOARDS:
        (FOLDER / f"{board.name}.json").write_text(text_of(board))


if __name__ == "__main__":
    main()
