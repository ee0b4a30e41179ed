"""The embeddings of a run's views: as a file (`mvcl embed`), and how they fill the sphere (`mvcl geometry`)."""

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mvcl import _files, _progress, augment, data, evaluation
from mvcl.training import _encode, _program
from mvcl.training._run import Run

OUTPUTS = ("encoder", "head")
# Of the split, in training: enough for 3 digits of every measure, and quickly encoded.
_EXAMPLES_IN_TRAINING = 1_000
_DIGITS = 6  # of a number in the file, whose spectra are long
Embedded = tuple[dict[str, list[np.ndarray]], np.ndarray]
"""Output -> a (n, d) float32 array for each view; and the (n,) rows of the split."""


@dataclasses.dataclass(frozen=True)
class RunGeometry:
    """The geometry of the embeddings of a state.

    Attributes:
      step: of the state.
      split: whose examples are embedded.
      examples: their number.
      outputs: "encoder" and "head" -> the geometry of the views there.
    """

    step: int
    split: str
    examples: int
    outputs: dict[str, evaluation.Geometry]

    def numbers(self) -> dict[str, float]:
        """ "encoder: MEASURE" and "head: MEASURE" -> value, with the measures of `evaluation.Geometry.numbers`."""
        return {
            f"{output}: {name}": value
            for output, found in self.outputs.items()
            for name, value in found.numbers().items()
        }

    def results(self) -> dict[str, list[evaluation.Result]]:
        """Rows for `evaluation.evaluation_table`: "encoder, view 1" and so on."""
        return {
            f"{output}, {row}": results
            for output, found in self.outputs.items()
            for row, results in found.results().items()
        }

    def plain(self) -> dict[str, Any]:
        """The content of geometry.json."""
        title = {"step": self.step, "split": self.split, "examples": self.examples}
        return title | {"outputs": {output: _plain(found) for output, found in self.outputs.items()}}


def geometry(
    run: Run,
    state: _program.State,
    out: Path | None = None,
    *,
    split: str | None = None,
    views: int | None = None,
    examples: int = 10_000,
) -> RunGeometry:
    """Embed each view of the examples of a split, at encoder and head, and measure the embeddings.

    Args:
      run, state: as from `open_run`.
      out: the .json file to write; None: none.
      split: its name; None: the last that the evaluation uses, usually `test`.
      views: random views of each image, drawn by the policies of training; None: the config's k. Given views are
        embedded as they are, all of them.
      examples: at most so many examples, a fixed random sample.

    Returns:
      The geometry of the views at each output; with views that are given and a head that takes them together (method
      supervised), one embedding at the head.

    Raises:
      ValueError: there is no such split, no images to draw views of, or too few examples.
    """
    split = run.config.evaluation.splits(tuple(run.splits))[-1] if split is None else split
    reading = data.Reading(run.config.train.corrupt_limit)
    embedded, present, names = _embedded(run, state, split, views, examples, reading)
    found = {}
    for output, arrays in embedded.items():
        with _progress.during(f"measuring the embeddings of the {output}"):
            whole = len(arrays) == len(names)
            found[output] = evaluation.geometry(
                arrays,
                present=present if whole else None,
                names=names if whole else (evaluation.TOGETHER,),
                seed=run.config.evaluation.seed,
            )
    result = RunGeometry(int(state["step"]), split, len(next(iter(embedded.values()))[0]), found)
    if out is not None and jax.process_index() == 0:
        _files.write_whole(out, json.dumps(result.plain()) + "\n")
    return result


def scores(run: Run, state: _program.State, reading: data.Reading) -> dict[str, float]:
    """`encoder_alignment`, `head_uniformity` and so on: the measures that cost least, of a part of the test split."""
    split = run.config.evaluation.splits(tuple(run.splits))[-1]
    embedded, present, names = _embedded(run, state, split, None, _EXAMPLES_IN_TRAINING, reading)
    found: dict[str, float] = {}
    for output, arrays in embedded.items():
        with _progress.during(f"measuring the embeddings of the {output}"):
            values = evaluation.geometry_scores(
                arrays, present=present if len(arrays) == len(names) else None
            )
        found |= {f"{output}_{name}": value for name, value in values.items()}
    return found


def _embedded(
    run: Run,
    state: _program.State,
    split: str,
    views: int | None,
    examples: int,
    reading: data.Reading,
) -> tuple[dict[str, list[np.ndarray]], np.ndarray | None, tuple[str, ...]]:
    """Of each output the embeddings of each view; the (n, k) mask if views may be missing; and names of the views."""
    _encode.check_split(run, split)
    config, used = run.config, run.splits[split]
    if examples < 2:
        raise ValueError(f"--examples must be at least 2, got {examples}")
    rows = np.sort(np.random.default_rng(config.evaluation.seed).permutation(len(used))[:examples])
    if used.spec.given:
        if views not in (None, config.views.k):
            raise ValueError(f"--views must be left out or {config.views.k}, the views given, got {views}")
        found, index = of_given_views(run, state, split, reading, rows)
        names = used.spec.view_names or config.view_names
        return found, None if used.present is None else used.present[index], names
    k = config.views.k if views is None else views
    if k < 1:
        raise ValueError(f"--views must be at least 1, got {k}")
    found, index = of_views(run, state, split, k, OUTPUTS, reading, rows=rows)
    names = (*config.view_names, *(f"view {view + 1}" for view in range(config.views.k, k)))[:k]
    return found, None, names


def _plain(found: evaluation.Geometry) -> dict[str, Any]:
    spreads = dict(zip(found.names, found.views))
    if found.together is not None and len(found.views) > 1:
        spreads[evaluation.TOGETHER] = found.together
    return {
        "rows": found.rows(),
        "spreads": {
            name: {
                "vectors": spread.vectors,
                "dimension": spread.dimension,
                "singular_values": _rounded(spread.singular_values),
                "eigenvalues": _rounded(spread.eigenvalues),
            }
            for name, spread in spreads.items()
        },
        "views": list(found.names),
        "alignment": [_rounded(row) for row in found.alignment],
        "positive": [_rounded(row) for row in found.positive],
        "negative": [_rounded(row) for row in found.negative],
        "positives": found.positives.tolist(),
        "negatives": found.negatives.tolist(),
    }


def _rounded(values: np.ndarray) -> list[float | None]:
    """Numbers of a few digits; None for NaN, which JSON has not."""
    return [float(f"{x:.{_DIGITS}g}") if math.isfinite(x) else None for x in values.tolist()]


def embed(
    run: Run, state: _program.State, split: str, out: Path, *, views: int = 0
) -> tuple[tuple[int, ...], list[evaluation.Result]]:
    """Write features, labels and class names of a split as .npz, and the measures of the features beside it as .json.

    Args:
      run, state: as from `open_run`; the features are the output that run.config.evaluation.features names.
      split: its name.
      out: the .npz file.
      views: 0 for one vector of each example, as evaluated; else random views of each image, by the policies of
        training.

    Returns:
      The shape of the features, (n, d) or (n, views, d), and `evaluation.embedding_measures` of them.

    Raises:
      ValueError: there is no such split, or no images to draw views of.
    """
    if views < 0:
        raise ValueError(f"--views must be at least 0, got {views}")
    if views:
        _encode.check_split(run, split)
        reading = data.Reading(run.config.train.corrupt_limit)
        output = run.config.evaluation.features
        by_output, rows = of_views(run, state, split, views, (output,), reading)
        by_view = np.stack(by_output[output])
        labels, features = run.splits[split].labels[rows], by_view.swapaxes(0, 1)
    else:
        encoded, of_split = _encode.encode(run, state, (split,))
        features, labels, by_view = encoded[split], of_split[split], encoded[split][None]
    with _progress.during("measuring the features"):
        measures = evaluation.embedding_measures(by_view, seed=run.config.evaluation.seed)
    if jax.process_index() == 0:
        _encode.save_embeddings(out, features, labels, run.splits[split].class_names)
        text = json.dumps([dataclasses.asdict(result) for result in measures], indent=1)
        _files.write_whole(out.with_suffix(".json"), text + "\n")
    return np.shape(features), measures


def of_views(
    run: Run,
    state: _program.State,
    split: str,
    views: int,
    outputs: tuple[str, ...],
    reading: data.Reading,
    *,
    rows: np.ndarray | None = None,
) -> Embedded:
    """Features of random views of the readable images of a split, by the policies of training.

    Args:
      run, state: the run, and the state whose encoder (and head) is used.
      split: its name.
      views: views per image, at least 1; view v is drawn by the policy of view v, modulo the config's k, and embedded
        by the encoder of view v if each view has one.
      outputs: `encoder`, `head` or both, in evaluation mode; of both the encoder is computed once.
      reading: counts unreadable images.
      rows: only these rows of the split; None: all.

    Raises:
      ValueError: an example is not one image, or there are other views than the encoders have.
    """
    spec, learner, k = run.splits[split].spec, run.program.learner, run.config.views.k
    if spec.given or len(spec.shapes) > 1:
        raise ValueError(f"--views draws views of one image, got examples of {len(spec.shapes)} arrays")
    if not learner.one_encoder and views != k:
        raise ValueError(f"--views must be {k}, since each view has an encoder of its own; got {views}")
    policies = [run.config.policies[view % k] for view in range(views)]
    seed, fixed = run.config.evaluation.seed + _encode.SEED, run.outline.spec.fixed

    def each(params: Any, statistics: Any, inputs: Any) -> list[jax.Array]:
        """Of each output (b, Σ_l d_l) features of all views, side by side."""
        images, index = inputs["images"], inputs["index"]
        if not fixed and views == 1:
            images = (images,)  # one crop
        drawn = augment.draw_views(policies, images, seed, np.zeros(len(index), np.uint32), index)
        if not learner.one_encoder:
            given = {"views": drawn}
            return [learner.features(params, statistics, given, _beside(run, output)) for output in outputs]

        def of(output: str, x: jax.Array) -> jax.Array:  # XLA merges the calls of the encoder
            return learner.features(params, statistics, {"images": x}, output)

        return [augment.by_shape(partial(of, output), drawn).reshape((len(index), -1)) for output in outputs]

    def crop(arrays: data.Example, epoch: int, row: int) -> data.Example:
        return augment.host_crop(arrays[0], policies, seed, 0, row)

    what = f"encoding {views} views of {split}"
    batches = (
        {"inputs": {"images": batch["inputs"], "index": batch["index"]}, "index": batch["index"]}
        for batch in _encode.in_order(run, split, what, reading, crop=None if fixed else crop, rows=rows)
    )
    return _encoded(run, state, each, batches, views, outputs)


def of_given_views(
    run: Run, state: _program.State, split: str, reading: data.Reading, rows: np.ndarray
) -> Embedded:
    """Features of each given view, at encoder and head, of these rows of a split; by its own encoder if it has one.

    Vectors of missing views are zero. A method whose head takes all views together, as `supervised`, has one array for
    `head`.
    """

    def each(params: Any, statistics: Any, inputs: Any) -> list[jax.Array]:
        features = run.program.learner.features
        return [features(params, statistics, inputs, _beside(run, output)) for output in OUTPUTS]

    batches = _encode.in_order(run, split, f"encoding the views of {split}", reading, rows=rows)
    return _encoded(run, state, each, batches, run.config.views.k, OUTPUTS)


def _beside(run: Run, output: str) -> str:
    """The output of a method that has those of the views side by side."""
    views = {"encoder": "views", "head": "head_views"}[output]
    return views if views in run.program.learner.outputs else output


def _encoded(
    run: Run,
    state: _program.State,
    each: Callable[..., list[jax.Array]],
    batches: Iterator[dict[str, Any]],
    views: int,
    outputs: tuple[str, ...],
) -> Embedded:
    """What `each` computes of the batches, split into outputs and views."""
    learner, variables = run.program.learner, run.program.evaluated(state)
    first = next(batches)
    widths = [x.shape[1] for x in jax.eval_shape(each, *variables, first["inputs"])]

    def joined(params: Any, statistics: Any, inputs: Any) -> jax.Array:
        return jnp.concatenate(each(params, statistics, inputs), axis=1)

    apply = jax.tree_util.Partial(joined, *variables)
    stream = itertools.chain([first], batches)
    joint, index = evaluation.encode(apply, stream, **_encode.batch_of(run))
    found = {}
    for output, part in zip(outputs, np.split(joint, np.cumsum(widths)[:-1], axis=1)):
        lengths = [part.shape[1] // views] * views
        if not learner.one_encoder and _beside(run, output) == output:  # the views' encoders differ in width
            encoders = learner.network(*variables).encoder
            lengths = [part.shape[1]] if output == "head" else [encoder.features for encoder in encoders]
        found[output] = np.split(part, np.cumsum(lengths)[:-1], axis=1)
    return found, index
