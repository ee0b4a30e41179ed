"""Scores of a run during training: rows of its log."""

from pathlib import Path

from mvcl.training import _folder

KEY = "score"
"""A row of metrics.jsonl with this key is a score; its value is the name of the entry with the number."""


def scores(workdir: Path) -> dict[int, float]:
    """Step -> score, of the log of a run folder."""
    rows = _folder.read_log(workdir)
    found = [(row.get("step"), row.get(str(row[KEY]))) for row in rows if KEY in row]
    return {step: value for step, value in found if isinstance(step, int) and isinstance(value, float)}


def append_score(workdir: Path, step: int, name: str, value: float) -> None:
    """Add the score of a step to the log of a run that is not open."""
    _folder.append_line(workdir / "metrics.jsonl", {"step": step, name: value, KEY: name})
