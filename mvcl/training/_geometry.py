"""The embeddings of a run's views: as a file, how they fill the sphere, and what each tells alone and together."""

import dataclasses
import itertools
import json
import math
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from mvcl import _checks, _files, _progress, augment, data, evaluation, metrics
from mvcl.training import _evaluate, _program
from mvcl.training._run import Run, host_crop

OUTPUTS = ("encoder", "head")
_EXAMPLES_IN_TRAINING = 1_000  # of the split: enough for 3 digits of every measure, and quickly encoded
_DIGITS = 6  # of a number in the file, whose spectra are long
_COLUMNS = 4096  # of raw views that are probed too


@dataclasses.dataclass(frozen=True)
class RunGeometry:
    """The geometry of the embeddings of a state: of some examples of a split, at the outputs "encoder" and "head"."""

    step: int
    split: str
    examples: int
    outputs: dict[str, evaluation.Geometry]

    def numbers(self) -> dict[str, float]:
        """ "encoder: MEASURE" and "head: MEASURE" -> value, with the measures of `evaluation.Geometry.numbers`."""
        return {f"{at}: {name}": x for at, of in self.outputs.items() for name, x in of.numbers().items()}

    def results(self) -> dict[str, list[evaluation.Result]]:
        """Rows for `evaluation.evaluation_table`: "encoder, view 1" and so on."""
        rows = ((at, *row) for at, of in self.outputs.items() for row in of.results().items())
        return {f"{at}, {row}": results for at, row, results in rows}

    def text(self) -> str:
        """The content of geometry.json."""
        names = {"spreads": "spectra", "views": "names"} | {
            name: name for name in ("rows", "alignment", "positive", "negative", "positives", "negatives")
        }
        outputs = {at: {k: vars(of)[name] for k, name in names.items()} for at, of in self.outputs.items()}
        return json.dumps(vars(self) | {"outputs": outputs}, default=_rounded) + "\n"


def _rounded(values: np.ndarray) -> list[Any]:
    """The rows of a matrix; or numbers of a few digits, None for NaN, which JSON has not."""
    if values.ndim > 1 or values.dtype.kind in "iu":
        return list(values) if values.ndim > 1 else values.tolist()
    return [float(f"{x:.{_DIGITS}g}") if x == x else None for x in values.tolist()]


def geometry(
    run: Run,
    state: _program.State,
    out: Path | None = None,
    *,
    split: str | None = None,
    views: int | None = None,
    examples: int = 10_000,
) -> RunGeometry:
    """Embed each view of the examples of a split, at encoder and head, and measure the embeddings: `mvcl geometry`.

    Given views have one embedding at a head that takes them together, as that of method supervised. `ValueError` if
    there is no such split, no images to draw views of, or too few examples.
    """
    split = ("test", *run.config.evaluation.splits(tuple(run.splits)))[-1] if split is None else split
    _evaluate.check_split(run, split)
    config, used, k = run.config, run.splits[split], run.config.views.k if views is None else views
    _checks.whole("--examples", examples, 2)
    _checks.whole("--views", k)
    if used.spec.given and k != config.views.k:
        raise ValueError(f"--views must be left out or {config.views.k}, the views given, got {views}")
    names = (*config.view_names, *(f"view {view + 1}" for view in range(config.views.k, k)))[:k]
    names = used.spec.view_names or names if used.spec.given else names
    seed, outputs = config.evaluation.seed, {}
    rows = np.sort(np.random.default_rng(seed).permutation(len(used))[:examples])
    found, index = of_views(run, state, split, k, OUTPUTS, rows=rows)
    for output, arrays in found.items():
        of: dict[str, Any] = {"names": (evaluation.TOGETHER,)}  # of a head that takes the views together
        if len(arrays) == len(names):
            of = {"names": names, "present": None if used.present is None else used.present[index]}
        with _progress.during(f"measuring the embeddings of the {output}"):
            outputs[output] = evaluation.geometry(arrays, seed=seed, **of)
    result = RunGeometry(int(state["step"]), split, len(index), outputs)
    if out is not None and jax.process_index() == 0:
        _files.write_whole(out, result.text())
    return result


def scores(run: Run, state: _program.State) -> dict[str, float]:
    """`encoder_alignment`, `head_uniformity` and so on, of a part of the test split."""
    numbers = geometry(run, state, examples=_EXAMPLES_IN_TRAINING).numbers()
    names = {f"{of}_{key}": f"{of}: {name}" for of in OUTPUTS for key, name in evaluation.LOGGED.items()}
    return {key: numbers[name] for key, name in names.items() if name in numbers}


def embed(
    run: Run,
    state: _program.State,
    split: str,
    out: Path,
    *,
    views: int = 0,
    centres: np.ndarray | None = None,
) -> tuple[tuple[int, ...], list[evaluation.Result]]:
    """Write the features of a split, those that run.config.evaluation.features names, as `mvcl embed` does.

    `centres` (c, d) are those of clusters, and the file then has the nearest of each row. Returns the shape of the
    features, (n, d) or (n, views, d), and the means of `evaluation.geometry` over the views.
    """
    if _checks.whole("--views", views, 0):
        _evaluate.check_split(run, split)
        if run.splits[split].spec.given:
            raise ValueError(f"--views draws views of images, got the given views of split {split}; use 0")
        output = run.config.evaluation.features
        by_output, rows = of_views(run, state, split, views, (output,))
        by_view, readable = np.stack(by_output[output]), run.splits[split].only(rows)
        features = by_view.swapaxes(0, 1)
    else:
        encoded, of_split = _evaluate.encode_readable(run, state, splits=(split,))
        features, readable, by_view = encoded[split], of_split[split], encoded[split][None]
    with _progress.during("measuring the features"):
        measures: list[evaluation.Result] = []  # of one example there are none
        if len(features) > 1:
            measured = evaluation.geometry(list(by_view), seed=run.config.evaluation.seed).results()
            measures = measured["mean" if len(by_view) > 1 else "view 1"]
    if jax.process_index() == 0:
        more = {"labels": readable.labels, "class_names": readable.class_names, "ids": readable.named}
        more |= {} if readable.present is None else {"present": readable.present}
        more |= {} if centres is None else {"clusters": metrics.nearest_centre(features, centres)}
        _files.save_arrays(out, features=features, **more)
        text = json.dumps(measures, indent=1, default=dataclasses.asdict)
        _files.write_whole(out.with_suffix(".json"), text + "\n")
    return np.shape(features), measures


def of_views(
    run: Run,
    state: _program.State,
    split: str,
    views: int,
    outputs: tuple[str, ...],
    *,
    rows: np.ndarray | None = None,
) -> tuple[dict[str, list[np.ndarray]], np.ndarray]:
    """Output -> an (n, d) float32 array for each view of the readable examples of a split; and their (n,) rows.

    View v of an image is drawn by the policy of view v, modulo the config's k, and embedded by the encoder of view v if
    each view has one. `outputs` are `encoder`, `head` or both, in evaluation mode; of both the encoder is computed
    once. Vectors of missing views are zero. `rows`: only these of the split.
    """
    spec, learner, k = run.splits[split].spec, run.program.learner, run.config.views.k
    if not learner.one_encoder and views != k:
        raise ValueError(f"--views must be {k}, since each view has an encoder of its own; got {views}")
    policies = [run.config.policies[view % k] for view in range(0 if spec.given else views)]
    seed, fixed = run.config.evaluation.seed + _evaluate.SEED, run.outline.spec.image_shape is not None
    beside = {"encoder": "views", "head": "head_views"}  # of the views side by side, where a method has them
    beside = {of: beside[of] if beside.get(of) in learner.outputs else of for of in outputs}

    def each(params: Any, statistics: Any, inputs: Any, index: jax.Array) -> list[jax.Array]:
        """Of each output (b, Σ_l d_l) features of all views, side by side."""
        if not spec.given:
            images = inputs if fixed or views > 1 else (inputs,)  # one crop
            drawn = augment.draw_views(policies, images, seed, np.zeros(len(index), np.uint32), index)
            inputs = {"views": drawn}
        if spec.given or not learner.one_encoder:
            return [learner.features(params, statistics, inputs, beside[output]) for output in outputs]

        def of(output: str, x: jax.Array) -> jax.Array:  # XLA merges the calls of the encoder
            return learner.features(params, statistics, {"images": x}, output)

        return [augment.by_shape(partial(of, output), drawn).reshape((len(index), -1)) for output in outputs]

    def joined(params: Any, statistics: Any, inputs: Any) -> jax.Array:
        return jnp.concatenate(each(params, statistics, *inputs), axis=1)

    crop, what = host_crop(run, policies, seed), f"encoding the views of {split}"
    stream, options = _evaluate.in_order(run, split, what, crop=crop, rows=rows)
    batches = ({"inputs": (b["inputs"], b["index"]), "index": b["index"]} for b in stream)
    variables, first = _program.evaluated(state), next(batches)
    widths = [x.shape[1] for x in jax.eval_shape(each, *variables, *first["inputs"])]
    apply = jax.tree_util.Partial(joined, *variables)
    joint, index = evaluation.encode(apply, itertools.chain([first], batches), **options)
    found = {}
    for output, part in zip(outputs, np.split(joint, np.cumsum(widths)[:-1], axis=1)):
        lengths = [part.shape[1] // views] * views
        if not learner.one_encoder and beside[output] == output:  # the views' encoders differ in width
            encoders = learner.network(*variables).encoder
            lengths = [part.shape[1]] if output == "head" else [encoder.features for encoder in encoders]
        found[output] = np.split(part, np.cumsum(lengths)[:-1], axis=1)
    return found, index


def decompose(
    run: Run,
    state: _program.State,
    out: Path | None = None,
    *,
    raw: bool = True,
    probe: Literal["best", "linear", "network"] = "best",
    examples: int = 20_000,
    draws: int = 200,
) -> dict[str, evaluation.Decomposition]:
    """`evaluation.decompose` of the features of a run's encoder, "trained encoder", and of its "raw views".

    Of method fused the features of several views are their fusion, of other methods those of each side by side. Rows
    without a label are left out.

    The splits are those that the evaluation uses; arguments are those of `mvcl decompose`. `ValueError` if the run has
    one view or draws its views from images, its data have no labels, or too few rows.
    """
    spec, protocol = run.outline.spec, run.config.evaluation
    run = dataclasses.replace(run, reading=data.Reading(0))
    if not spec.given or len(spec.shapes) < 2:
        got = "views drawn from one image, which tell the same" if not spec.given else "one view"
        raise ValueError(f"mvcl decompose needs a run on at least 2 given views, such as tables; got {got}")
    names = spec.view_names or tuple(f"view {view + 1}" for view in range(len(spec.shapes)))
    parts, sources = _rows(run, examples), ["trained encoder"]
    if raw and sum(map(math.prod, spec.view_shapes)) <= _COLUMNS:
        sources.append("raw views")
    used: Any = [(run.splits[name], rows) for name, rows in parts]
    labels = tuple(split.labels[rows] for split, rows in used)
    present = tuple(None if split.present is None else split.present[rows] for split, rows in used)
    options: Any = {"present": present, "probe": probe, "draws": draws, "seed": protocol.seed}
    found = {}
    for source in sources:
        of = state if source == sources[0] else None
        train, test = (_features(run, of, *part, names, source) for part in parts)
        found[source] = evaluation.decompose(train, test, labels, **options)
    if out is not None and jax.process_index() == 0:
        rows = {}
        for name, each in found.items():
            numbers = {of: row.dropna().to_dict() for of, row in each.frame().iterrows()}  # JSON has no NaN
            more = {"entropy": each.entropy, "protocol": each.protocol, "numbers": numbers}
            rows[name] = {"parts": [*each.parts]} | more
        _files.write_whole(out, json.dumps({"step": int(state["step"]), "rows": rows}, indent=1) + "\n")
        frame = pd.concat({name: of.frame() for name, of in found.items()}, names=["row", "of"])
        _files.write_whole(out.with_suffix(".csv"), frame.to_csv())
    return found


def _rows(run: Run, examples: int) -> list[tuple[str, np.ndarray]]:
    """The names of two splits, and labelled rows of each: those of train and test, or of one of which parts are."""
    of, rng = run.config.evaluation.of, np.random.default_rng(run.config.evaluation.seed)
    names = [f"{of}/{part}" if of else part for part in ("train", "test")]
    _evaluate.check_split(run, names[-1])
    splits = [run.splits[name] for name in names]
    train, test = (np.flatnonzero((s.labels >= 0) | (not s.class_names)) for s in splits)
    if splits[0] is splits[1]:  # no row is held out of training
        test, train = np.split(rng.permutation(train), [len(train) // 3])
    return [(name, np.sort(rng.permutation(of)[:examples])) for name, of in zip(names, (train, test))]


def _features(
    run: Run, state: Any, split: str, rows: np.ndarray, names: tuple[str, ...], source: str
) -> dict[tuple[str, ...], np.ndarray]:
    """(n, d) features of each view or, of a network that fuses them, of each subset of views; the raw views without a
    state."""
    learner = run.program.learner
    fuse, chosen = getattr(learner, "of_subsets", None), evaluation.subsets(names)[: len(names)]
    if state is not None and fuse is None:
        found, _ = of_views(run, state, split, len(names), ("encoder",), rows=rows)
        if len(found["encoder"]) != len(names):
            raise ValueError(f"method {type(run.config.method).__name__} has no features of each view")
        return dict(zip(chosen, found["encoder"]))
    apply: Any = run.program.rows
    widths = [math.prod(shape) for shape in run.outline.spec.view_shapes]
    if state is not None and fuse is not None:
        chosen = evaluation.subsets(names)
        masks = np.array([[name in subset for name in names] for subset in chosen])

        def apply_fused(params: Any, statistics: Any, inputs: Any) -> jax.Array:
            z = fuse(params, statistics, inputs, masks).swapaxes(0, 1)
            return jnp.nan_to_num(z.reshape((len(z), -1)))  # of what is missing

        apply = jax.tree_util.Partial(apply_fused, *_program.evaluated(state))
        widths = [learner.abstract.features] * len(chosen)
    stream, options = _evaluate.in_order(run, split, f"{source}: encoding {split}", rows=rows)
    joint, _ = evaluation.encode(apply, stream, **options)
    return dict(zip(chosen, np.split(joint, np.cumsum(widths)[:-1], axis=1)))
