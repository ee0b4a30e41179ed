"""Evaluation of a run: the table, and the score during training."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from mvcl import _files, data, evaluation
from mvcl.training import _encode, _program, _serialise
from mvcl.training._log import log_line
from mvcl.training._run import Run

# Raw inputs of more bytes are not evaluated.
_RAW_BYTES = 8 << 30
Table = dict[str, list[evaluation.Result]]
"""Row name -> results."""
Score = tuple[str, float]
"""Name and value of the protocol's score."""
_FILE, _UNFINISHED = "evaluation.json", "evaluation.unfinished.json"


@dataclasses.dataclass(frozen=True)
class _Row:
    """A row of the table; the score belongs to the trained encoder."""

    results: list[evaluation.Result]
    score: Score | None = None


def evaluate(
    run: Run, state: _program.State, workdir: Path | None = None, reading: data.Reading | None = None
) -> Table:
    """Evaluate the trained encoder, the untrained encoder and the raw input by the same protocol.

    With `workdir`, evaluation.json and embeddings.npz are written there, and an evaluation that was stopped goes on
    with the rows that it has not finished. Unreadable examples are left out, as many as `reading` allows; by default
    the config's limit.
    """
    return evaluated(run, state, workdir, reading)[0]


def evaluated(
    run: Run, state: _program.State, workdir: Path | None, reading: data.Reading | None
) -> tuple[Table, Score | None]:
    """`evaluate`, and the score of the state; None if the protocol has none."""
    protocol = run.config.evaluation
    reading = data.Reading(run.config.train.corrupt_limit) if reading is None else reading
    title = {"step": int(state["step"]), "protocol": _serialise.tree(protocol)}
    path = None if workdir is None else workdir / _UNFINISHED
    rows = {} if path is None else _read_rows(path, title)

    def row(name: str, compute: Callable[[], _Row]) -> _Row:
        """The row, if it was not finished before."""
        if name not in rows:
            rows[name] = compute()
            if path is not None and jax.process_index() == 0:
                _files.write_whole(path, json.dumps(title | {"rows": _plain(rows)}))
        return rows[name]

    trained = row("trained encoder", lambda: _trained(run, state, workdir, reading))
    if protocol.compared:
        row("untrained encoder", lambda: _untrained(run, reading))
        row("raw input", lambda: _raw(run, reading, trained.results))
    table = {name: row.results for name, row in rows.items()}
    warnings = protocol.warnings(table)
    for text in warnings:
        log_line(f"warning: {text}")
    if workdir is not None and jax.process_index() == 0:
        content = title | {
            "score": trained.score,
            "rows": {name: _plain(rows)[name]["results"] for name in rows},
        }
        content |= {"warnings": warnings} if warnings else {}
        _files.write_whole(workdir / _FILE, json.dumps(content, indent=2))
        (workdir / _UNFINISHED).unlink(missing_ok=True)
    return table, trained.score


def saved(run: Run, workdir: Path, step: int) -> tuple[Table, Score | None] | None:
    """What `evaluated` wrote for this step and protocol; None if it has not ended."""
    title = {"step": step, "protocol": _serialise.tree(run.config.evaluation)}
    try:
        content = _files.read_json(workdir / _FILE)
        if {name: content.get(name) for name in title} != title:
            return None
        table = {name: _results(results) for name, results in content["rows"].items()}
        return table, _score(content["score"])
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
    ):  # missing or damaged: it is measured again
        return None


def score(run: Run, state: _program.State, reading: data.Reading) -> Score | None:
    """Name and value of the protocol's score during training; None, without encoding, if it has none."""
    if not run.config.evaluation.scored:
        return None
    features, readable = _encode.encode_readable(run, state, None, reading)
    return run.config.evaluation.score(features, {**run.splits, **readable})


def _trained(run: Run, state: _program.State, workdir: Path | None, reading: data.Reading) -> _Row:
    """The row of the trained encoder; with `workdir`, also its embeddings and the protocol's files."""
    protocol = run.config.evaluation
    features, readable = _encode.encode_readable(run, state, None, reading, "trained encoder")
    splits = {**run.splits, **readable}
    found = protocol.score(features, splits) if protocol.scored else None
    folder = workdir if jax.process_index() == 0 else None
    if folder is None:
        results = protocol.measure(features, splits)
    else:
        results = protocol.measure_and_save(features, splits, folder)
    results += protocol.measure_augmented(features, splits, _encode.augmented(run, state, reading))
    if folder is not None:
        last = protocol.splits(tuple(run.splits))[-1]
        names = run.splits[last].class_names
        _encode.save_embeddings(folder / "embeddings.npz", features[last], readable[last].labels, names)
    return _Row(results, found)


def _untrained(run: Run, reading: data.Reading) -> _Row:
    """The row of the encoder's initial parameters."""
    features, readable = _encode.encode_readable(run, run.program.init(), None, reading, "untrained encoder")
    return _Row(run.config.evaluation.measure(features, {**run.splits, **readable}))


def _raw(run: Run, reading: data.Reading, columns: list[evaluation.Result]) -> _Row:
    """The row of the raw inputs, unless they need too much memory."""
    size = _encode.raw_bytes(run)
    if size > _RAW_BYTES:
        why = f"not measured: the inputs of all splits need {size / 2**30:.0f} GiB as float32"
        return _Row([evaluation.Result(column.name, None, None, why) for column in columns])
    features, readable = _encode.raw_inputs(run, reading)
    return _Row(run.config.evaluation.measure_raw(features, {**run.splits, **readable}))


def _read_rows(path: Path, title: dict[str, Any]) -> dict[str, _Row]:
    """The finished rows of an evaluation of the same title; none of a damaged file."""
    try:
        content = _files.read_json(path)
        if {name: content.get(name) for name in title} != title:
            return {}
        return {
            name: _Row(_results(row["results"]), _score(row["score"]))
            for name, row in content["rows"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _plain(rows: dict[str, _Row]) -> dict[str, Any]:
    return {name: dataclasses.asdict(row) for name, row in rows.items()}


def _results(plain: list[dict[str, Any]]) -> list[evaluation.Result]:
    tuples = ({**result, "each": tuple(result.get("each", ()))} for result in plain)
    return [_serialise.checked(evaluation.Result(**result)) for result in tuples]


def _score(plain: Any) -> Score | None:
    if plain is None:
        return None
    name, value = plain
    return str(name), float(value)
