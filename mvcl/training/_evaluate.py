"""Evaluation of a run: the tables, and the score during training."""

import dataclasses
import json
from pathlib import Path

import jax

from mvcl import _files, data, evaluation
from mvcl.training import _augmented, _encoding, _program
from mvcl.training._log import log_line
from mvcl.training._run import Run

# Raw inputs of more bytes are not evaluated.
_RAW_BYTES = 8 << 30
Table = dict[str, list[evaluation.Result]]


def evaluate(
    run: Run, state: _program.State, workdir: Path | None = None, reading: data.Reading | None = None
) -> Table:
    """Evaluate the trained encoder, the untrained encoder and the raw input by the same protocol.

    With `workdir`, evaluation.json and embeddings.npz are written there. Unreadable examples are left out, as many as
    `reading` allows; by default the config's limit.
    """
    protocol = run.config.evaluation
    reading = data.Reading(run.config.train.corrupt_limit) if reading is None else reading
    trained, readable = _encoding.encode_readable(run, state, None, reading)
    splits = {**run.splits, **readable}
    rows = {"trained encoder": protocol.measure(trained, splits)}
    fresh = _augmented.augmented(run, state, reading)
    rows["trained encoder"] += protocol.measure_augmented(trained, splits, fresh)
    if protocol.compared:
        untrained, _ = _encoding.encode_readable(run, run.program.init(), None, reading)
        rows["untrained encoder"] = protocol.measure(untrained, splits)
        rows["raw input"] = _measure_raw(run, reading, splits, rows["trained encoder"])
    suspect = protocol.warnings(rows)
    for text in suspect:
        log_line(f"warning: {text}")
    if workdir is not None and jax.process_index() == 0:
        protocol.save(trained, splits, workdir)
        last = protocol.splits(tuple(run.splits))[-1]
        names = run.splits[last].class_names
        _encoding.save_embeddings(workdir / "embeddings.npz", trained[last], readable[last].labels, names)
        plain = {row: [dataclasses.asdict(r) for r in results] for row, results in rows.items()}
        table = {"step": int(state["step"]), "rows": plain} | ({"warnings": suspect} if suspect else {})
        _files.write_whole(workdir / "evaluation.json", json.dumps(table, indent=2))
    return rows


def _measure_raw(
    run: Run, reading: data.Reading, splits: dict[str, data.Split], columns: list[evaluation.Result]
) -> list[evaluation.Result]:
    """Results of the raw inputs, unless they need too much memory."""
    size = _encoding.raw_bytes(run)
    if size <= _RAW_BYTES:
        return run.config.evaluation.measure_raw(_encoding.raw_inputs(run, reading), splits)
    why = f"not measured: the inputs of all splits need {size / 2**30:.0f} GiB as float32"
    return [evaluation.Result(column.name, None, None, why) for column in columns]


def saved_table(workdir: Path, step: int) -> Table | None:
    """The table that `evaluate` wrote for this step; None if there is none."""
    path = workdir / "evaluation.json"
    saved = json.loads(path.read_text()) if path.is_file() else {}
    if saved.get("step") != step:
        return None
    return {row: [evaluation.Result(**r) for r in results] for row, results in saved["rows"].items()}


def score(run: Run, state: _program.State, reading: data.Reading) -> tuple[str, float] | None:
    """Name and value of the protocol's score during training; None, without encoding, if it has none."""
    if not run.config.evaluation.scored:
        return None
    features, readable = _encoding.encode_readable(run, state, None, reading)
    return run.config.evaluation.score(features, {**run.splits, **readable})
