"""Evaluation of a run: the tables, and the score during training."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from mvcl import _files, _progress, data, evaluation
from mvcl.training import _augmented, _encoding, _program, _saved
from mvcl.training._guard import Guard
from mvcl.training._log import log_line
from mvcl.training._run import Run

# Raw inputs of more bytes are not evaluated.
_RAW_BYTES = 8 << 30
Table = dict[str, list[evaluation.Result]]
Score = tuple[str, float]
# What the content of a damaged file raises; it is measured again.
_DAMAGED = (ValueError, KeyError, TypeError, AttributeError)
_FILE, _UNFINISHED = "evaluation.json", "evaluation.unfinished.json"


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The evaluation of a state."""

    table: Table
    """Row name -> results."""
    score: Score | None
    """Name and value of the protocol's score; None if it has none."""


def evaluate(
    run: Run, state: _program.State, workdir: Path | None = None, reading: data.Reading | None = None
) -> Table:
    """Evaluate the trained encoder, the untrained encoder and the raw input by the same protocol.

    With `workdir`, evaluation.json and embeddings.npz are written there, and an evaluation that was stopped goes on
    with the rows that it has not finished. Unreadable examples are left out, as many as `reading` allows; by default
    the config's limit.
    """
    return evaluated(run, state, workdir, reading, Guard(progress=run.progress)).table


def evaluated(
    run: Run,
    state: _program.State,
    workdir: Path | None,
    reading: data.Reading | None,
    guard: Guard,
) -> Evaluated:
    """`evaluate` under a guard, and the score of the state.

    Raises:
      Interrupted: the guard stopped the evaluation; the finished rows are kept in `workdir`.
    """
    protocol = run.config.evaluation
    reading = data.Reading(run.config.train.corrupt_limit) if reading is None else reading
    kept = _Kept(workdir, _title(run, state))
    with _progress.checked(guard.check):
        rows = {
            "trained encoder": kept.row(
                "trained encoder", lambda: _trained(run, state, workdir, reading, guard)
            )
        }
        if protocol.compared:
            rows["untrained encoder"] = kept.row("untrained encoder", lambda: _untrained(run, reading, guard))
            columns = rows["trained encoder"].results
            rows["raw input"] = kept.row("raw input", lambda: _raw(run, reading, guard, columns))
    table = {name: row.results for name, row in rows.items()}
    suspect = protocol.warnings(table)
    for text in suspect:
        log_line(f"warning: {text}")
    found = Evaluated(table, rows["trained encoder"].score)
    if workdir is not None and jax.process_index() == 0:
        content = kept.title | {"score": found.score, "rows": _plain(table)}
        content |= {"warnings": suspect} if suspect else {}
        _files.write_whole(workdir / _FILE, json.dumps(content, indent=2))
        forget_unfinished(workdir)
    return found


def forget_unfinished(workdir: Path) -> None:
    """Delete what an evaluation that did not end has kept."""
    if jax.process_index() == 0:
        (workdir / _UNFINISHED).unlink(missing_ok=True)


def saved(run: Run, workdir: Path, step: int) -> Evaluated | None:
    """What `evaluated` wrote for this step and protocol; None if it has not ended."""
    content = _read(workdir / _FILE)
    if content.get("step") != step or content.get("protocol") != _saved.tree(run.config.evaluation):
        return None
    try:
        table = {row: _results(results) for row, results in content["rows"].items()}
        return Evaluated(table, None if content["score"] is None else _score(content["score"]))
    except _DAMAGED:
        return None


def score(run: Run, state: _program.State, reading: data.Reading, guard: Guard) -> Score | None:
    """Name and value of the protocol's score during training; None, without encoding, if it has none.

    Raises:
      Interrupted: the guard stopped it.
    """
    if not run.config.evaluation.scored:
        return None
    features, readable = _encoding.encode_readable(run, state, None, reading, guard)
    return run.config.evaluation.score(features, {**run.splits, **readable})


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of the table; the score belongs to the trained encoder."""

    results: list[evaluation.Result]
    score: Score | None = None


class _Kept:
    """The finished rows of an evaluation, in a file of the run folder until it ends."""

    def __init__(self, workdir: Path | None, title: dict[str, Any]) -> None:
        self.title = title
        self._path = None if workdir is None else workdir / _UNFINISHED
        content = {} if self._path is None else _read(self._path)
        self._rows: dict[str, Any] = {}
        if {name: content.get(name) for name in title} == title:
            try:
                for row in content["rows"].values():
                    _row(row)
                self._rows = content["rows"]
            except _DAMAGED:
                pass

    def row(self, name: str, compute: Callable[[], _Row]) -> _Row:
        """The row, from the file if it was finished before."""
        if name not in self._rows:
            with _progress.during(name):
                row = compute()
            self._rows[name] = {"results": _plain_results(row.results), "score": row.score}
            if self._path is not None and jax.process_index() == 0:
                _files.write_whole(self._path, json.dumps(self.title | {"rows": self._rows}, indent=1))
        return _row(self._rows[name])


def _trained(
    run: Run,
    state: _program.State,
    workdir: Path | None,
    reading: data.Reading,
    guard: Guard,
) -> _Row:
    """The row of the trained encoder; with `workdir`, also its embeddings and the protocol's files."""
    protocol = run.config.evaluation
    features, readable = _encoding.encode_readable(run, state, None, reading, guard, "trained encoder")
    splits = {**run.splits, **readable}
    found = protocol.score(features, splits) if protocol.scored else None
    results = protocol.measure(features, splits)
    fresh = _augmented.augmented(run, state, reading)
    results += protocol.measure_augmented(features, splits, fresh)
    if workdir is not None and jax.process_index() == 0:
        protocol.save(features, splits, workdir)
        last = protocol.splits(tuple(run.splits))[-1]
        names = run.splits[last].class_names
        _encoding.save_embeddings(workdir / "embeddings.npz", features[last], readable[last].labels, names)
    return _Row(results, found)


def _untrained(run: Run, reading: data.Reading, guard: Guard) -> _Row:
    """The row of the encoder's initial parameters."""
    with guard.during("untrained encoder: initialising the parameters"):
        state = run.program.init()
    features, readable = _encoding.encode_readable(run, state, None, reading, guard, "untrained encoder")
    return _Row(run.config.evaluation.measure(features, {**run.splits, **readable}))


def _raw(
    run: Run,
    reading: data.Reading,
    guard: Guard,
    columns: list[evaluation.Result],
) -> _Row:
    """The row of the raw inputs, unless they need too much memory."""
    size = _encoding.raw_bytes(run)
    if size > _RAW_BYTES:
        why = f"not measured: the inputs of all splits need {size / 2**30:.0f} GiB as float32"
        return _Row([evaluation.Result(column.name, None, None, why) for column in columns])
    features, readable = _encoding.raw_inputs(run, reading, guard)
    return _Row(run.config.evaluation.measure_raw(features, {**run.splits, **readable}))


def _title(run: Run, state: _program.State) -> dict[str, Any]:
    """What an evaluation is of: the step and the protocol."""
    return {"step": int(state["step"]), "protocol": _saved.tree(run.config.evaluation)}


def _read(path: Path) -> dict[str, Any]:
    """A JSON file of the run folder; empty without a file, and of a damaged one, which is measured again."""
    try:
        content = _files.read_json(path) if path.is_file() else {}
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _plain(table: Table) -> dict[str, Any]:
    return {row: _plain_results(results) for row, results in table.items()}


def _plain_results(results: list[evaluation.Result]) -> list[dict[str, Any]]:
    return [dataclasses.asdict(result) for result in results]


def _results(plain: list[dict[str, Any]]) -> list[evaluation.Result]:
    tuples = ({**result, "each": tuple(result.get("each", ()))} for result in plain)
    return [_saved.checked(evaluation.Result(**result)) for result in tuples]


def _row(plain: Mapping[str, Any]) -> _Row:
    """The inverse of what `_Kept` writes for a row."""
    return _Row(_results(plain["results"]), None if plain["score"] is None else _score(plain["score"]))


def _score(plain: Any) -> Score:
    name, value = plain
    return str(name), float(value)
