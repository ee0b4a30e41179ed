"""docs/reproduction.md is what `benchmarks.reproduce --write` makes of docs/reproduction.json."""

import json
from pathlib import Path

from benchmarks import reproduce

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_made_from_its_rows():
    rows = json.loads((DOCS / "reproduction.json").read_text())
    made, heading, _ = (DOCS / "reproduction.md").read_text().partition("\n## Results")
    assert heading
    assert made == reproduce.page(rows, 10_000, 2_000, 5.0)


def test_writing_keeps_what_is_written_by_hand(tmp_path):
    rows = json.loads((DOCS / "reproduction.json").read_text())
    reproduce.write(rows, tmp_path, 10_000, 2_000, 5.0)
    page = tmp_path / "reproduction.md"
    page.write_text(page.read_text() + "\n## Results\n\nBy hand.\n")
    reproduce.write(rows[:4], tmp_path, 10_000, 2_000, 5.0)
    assert page.read_text().endswith("\n## Results\n\nBy hand.\n")
    assert json.loads((tmp_path / "reproduction.json").read_text()) == rows[:4]


def test_new_rows_of_moco_are_not_called_old():
    rows = json.loads((DOCS / "reproduction.json").read_text())
    assert reproduce.EARLIER_MOCO in reproduce.page(rows, 10_000, 2_000, 5.0)
    new = [*rows, {"line": "moco_v2", "seed": 0, "k": 2, "k-NN": 0.4, "linear": 0.4}]
    assert reproduce.EARLIER_MOCO not in reproduce.page(new, 10_000, 2_000, 5.0)


def test_published_numbers_name_rows():
    assert set(reproduce.PUBLISHED) <= set(reproduce.LINES)
