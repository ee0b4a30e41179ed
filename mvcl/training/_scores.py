"""Scores of a run during training: rows of its log."""

from pathlib import Path

from mvcl.training import _folder

KEY = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""


def scores(workdir: Path) -> dict[int, float]:
    """Step -> score, of the log of a run folder."""
    rows = _folder.read_log(workdir)
    return {row["step"]: row[row[KEY]] for row in rows if KEY in row}
