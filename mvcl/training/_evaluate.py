"""Evaluation of a run: features of its splits, the table, the score, and augmented batches for the linear probe."""

import contextlib
import dataclasses
import itertools
import json
import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _checks, _files, _progress, augment, data, evaluation
from mvcl.training import _program, _serialise
from mvcl.training._config import Config
from mvcl.training._run import Run, host_crop

Features = dict[str, np.ndarray]
SEED = 1_000_003  # added to the seed of the evaluation, so that crops differ from those of pre-training
_RAW_BYTES = 8 << 30  # raw inputs of more are not evaluated
BASELINES = ("untrained encoder", "raw input")
"""Rows of what was not trained, measured beside a trained encoder."""
Table = dict[str, list[evaluation.Result]]  # row name -> results
Score = tuple[str, float]  # name and value of the protocol's score
_FILE, _UNFINISHED = "evaluation.json", "evaluation.unfinished.json"


def evaluate(run: Run, state: _program.State, workdir: Path | None = None) -> Table:
    """Evaluate the trained encoder, the untrained encoder and the raw input by the same protocol.

    With `workdir`, evaluation.json and embeddings.npz are written there, and an evaluation that was stopped goes on
    with the rows that it has not finished. Up to train.corrupt_limit unreadable examples are left out.
    """
    return evaluated(run, state, workdir)[0]


def evaluated(run: Run, state: _program.State, workdir: Path | None) -> tuple[Table, Score | None]:
    """`evaluate`, and the score of the state; None if the protocol has none."""
    protocol, step = run.config.evaluation, int(state["step"])
    folder = workdir if jax.process_index() == 0 else None
    table, score = (workdir and saved(run, workdir, step, _UNFINISHED)) or ({}, None)

    def write(name: str, **more: Any) -> None:
        if folder is not None:
            title = {"step": step, "weights": run.weights, "protocol": _serialise.tree(protocol)}
            content = title | {"score": score, "rows": table} | more
            _files.write_whole(folder / name, json.dumps(content, indent=2, default=dataclasses.asdict))

    if "trained encoder" not in table:
        features, splits = encode_readable(run, state, "trained encoder")
        score = protocol.score(features, splits) if protocol.scored else None
        crops = partial(augmented, run, state)
        table["trained encoder"] = protocol.measure_trained(features, splits, crops, folder)
        if folder is not None and features:
            last = protocol.splits(tuple(run.splits))[-1]
            arrays = {"labels": splits[last].labels, "class_names": splits[last].class_names}
            _files.save_arrays(folder / "embeddings.npz", features=features[last], **arrays)
        write(_UNFINISHED)
    for row in BASELINES if protocol.compared else ():
        if row not in table:
            table[row] = baseline(run, row)
            write(_UNFINISHED)
    warnings = protocol.warnings(table)
    for text in warnings:
        _progress.line(f"warning: {text}")
    write(_FILE, **({"warnings": warnings} if warnings else {}))
    if folder is not None:
        (folder / _UNFINISHED).unlink(missing_ok=True)
    return table, score


def baseline(run: Run, row: str) -> list[evaluation.Result]:
    """The results of one of `BASELINES`; one, not measured, for raw inputs of over 8 GiB."""
    protocol, spec = run.config.evaluation, run.outline.spec
    if row == "untrained encoder":
        return protocol.measure(*encode_readable(run, run.program.init(), row))
    side = run.config.policies[0].image_size
    numbers = sum(map(math.prod, spec.view_shapes)) if spec.given else side * side * spec.channels
    size = 4 * numbers * sum(len(run.splits[name]) for name in protocol.splits(tuple(run.splits)))
    if size > _RAW_BYTES:
        why = f"not measured: the inputs of all splits need {size / 2**30:.0f} GiB as float32"
        return [evaluation.Result("accuracy", None, None, why)]
    return protocol.measure_raw(*encode_readable(run, None, row))


def saved(run: Run, workdir: Path, step: int, name: str = _FILE) -> tuple[Table, Score | None] | None:
    """The rows that `evaluated` wrote for this step and protocol; None if there are none, or the file is damaged."""
    title, table = (step, run.weights, _serialise.tree(run.config.evaluation)), Table()
    try:
        content = _files.read_json(workdir / name)
        if tuple(map(content.get, ("step", "weights", "protocol"))) != title:
            return None
        for row, results in content["rows"].items():
            tuples = ({**result, "each": tuple(result.get("each", ()))} for result in results)
            table[row] = [_serialise.checked(evaluation.Result(**result)) for result in tuples]
        name, value = content["score"] or ("", 0.0)
        return table, (str(name), float(value)) if name else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def encode(
    run: Run, state: _program.State, splits: tuple[str, ...] | None = None
) -> tuple[Features, Features]:
    """Features and labels of splits; None encodes the splits that the evaluation needs."""
    features, readable = encode_readable(run, state, splits=splits)
    return features, {name: readable[name.removesuffix(", head")].labels for name in features}


def encode_readable(
    run: Run, state: _program.State | None, row: str = "encoder", splits: tuple[str, ...] | None = None
) -> tuple[Features, dict[str, data.Split]]:
    """Features of the readable examples of splits; and all splits, those restricted to these examples.

    Without a state the inputs themselves are the features, as rows: images at the encoder's size, or all views. `row`
    names the encoder in reports; None encodes the splits that the evaluation needs. The head's output of a split, if
    the evaluation needs that too, is `SPLIT, head`.
    """
    apply = run.program.rows if state is None else jax.tree_util.Partial(run.program.apply, state)
    features, readable = {}, dict(run.splits)
    for name in splits or ():
        check_split(run, name)
    for name in run.config.evaluation.splits(tuple(run.splits)) if splits is None else splits:
        stream, options = in_order(run, name, f"{row}: encoding {name}", crop=host_crop(run))
        features[name], index = evaluation.encode(apply, stream, **options)
        if state is not None and (width := run.program.head):
            features[name], features[f"{name}, head"] = np.split(features[name], [-width], axis=1)
        readable[name] = run.splits[name].only(index)
    return features, readable


def in_order(
    run: Run, name: str, what: str, *, crop: data.Crop | None = None, rows: np.ndarray | None = None
) -> tuple[Iterator[dict[str, Any]], dict[str, Any]]:
    """This process's share of the readable examples of a split, or of some rows of it, in order and with progress; and
    size and sharding of the batches, for `evaluation.encode`. Errors are those of `train`."""
    mesh = run.program.mesh
    size = -(-run.config.evaluation.batch_size // mesh.size) * mesh.size
    stream = data.in_order(
        run.splits[name],
        name,
        batch_size=size,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        crop=crop,
        reading=run.reading,
        rows=rows,
    )
    watched = data.watched(stream, run.config.train.stall_seconds, run.reading)
    count = len(run.splits[name]) if rows is None else len(rows)
    sharding = run.program.batch_sharding if mesh.size > 1 else None
    options = {"batch_size": size, "rows": count, "sharding": sharding}
    return _progress.track(watched, what, -(-count // size), f"batches of {size}"), options


def check_split(run: Run, name: str) -> None:
    """Raise `ValueError` for a split that does not exist or has no single feature, as examples of several images."""
    whole = [n for n, split in run.splits.items() if split.spec.given or len(split.spec.shapes) == 1]
    _checks.option("--split", name, whole)


def policy(config: Config, probe: evaluation.LinearProbe) -> augment.Policy:
    """The probe's own, or random crop and flip; of the size and normalised as the evaluation."""
    plain, flips = _program.evaluation_policy(config, None), config.policies[0].flip_probability
    if (own := probe.policy) is not None:
        return dataclasses.replace(own, image_size=plain.image_size, mean=plain.mean, std=plain.std)
    padding = probe.crop_padding
    return dataclasses.replace(plain, random_crop=True, crop_padding=padding, flip_probability=flips)


def augmented(
    run: Run,
    state: _program.State,
    split: str,
    *,
    probe: evaluation.LinearProbe,
    batch_size: int,
    steps: int,
    seed: int,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The encoder's features of shuffled batches under `policy`; memory holds a batch, not an epoch.

    Views are a function of (evaluation.seed, epoch, row), on any number of processes and devices. Rows are read by
    train.threads threads. Unreadable examples are replaced, as in training.
    """
    program, options, whole = run.program, run.config.evaluation, run.splits[split]
    seed_of_views, fixed = options.seed + SEED, run.outline.spec.image_shape is not None
    used = [policy(run.config, probe)]

    def features(state: _program.State, inputs: Any) -> jax.Array:
        images, epoch, index = inputs["images"], inputs["epoch"], inputs["index"]
        views = augment.draw_views(used, images if fixed else (images,), seed_of_views, epoch, index)
        first = {"images": jnp.asarray(views)[:, 0]}
        return program.learner.features(*_program.evaluated(state), first, options.features)

    apply = jax.tree_util.Partial(features, state)
    stream = data.batches(
        whole,
        batch_size=batch_size,
        seed=seed,
        process_index=jax.process_index(),
        process_count=jax.process_count(),
        threads=run.config.train.threads,
        crop=host_crop(run, used, seed_of_views),
        reading=run.reading,
    )
    watched = data.watched(stream, run.config.train.stall_seconds, run.reading)
    size = -(-min(batch_size, options.batch_size) // program.mesh.size) * program.mesh.size
    own, sharding = size // jax.process_count(), program.batch_sharding if program.mesh.size > 1 else None
    with contextlib.closing(watched):
        for batch in itertools.islice(watched, steps):
            parts = []  # of a process, as many as other processes have
            for first in range(0, -(-batch_size // size) * own, own):
                rows = slice(first, first + own)
                inputs = {name: batch[name][rows] for name in ("images", "epoch", "index")}
                parts.append({"inputs": inputs, "index": batch["index"][rows]})
            found, index = evaluation.encode(
                apply, parts, batch_size=size, rows=batch_size, sharding=sharding
            )
            drawn = np.resize(np.arange(len(index)), batch_size)  # `encode` keeps one of equal replacements
            yield found[drawn], whole.labels[index[drawn]]
