"""How much of what is predictable each view of a run tells alone, in common, and only together (`mvcl decompose`)."""

import json
import math
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from mvcl import _files, data, evaluation
from mvcl.training import _evaluate, _geometry, _program
from mvcl.training._run import Run

_COLUMNS = 4096  # of raw views that are probed too


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
        content = {"step": int(state["step"]), "rows": rows}
        _files.write_whole(out, json.dumps(content, indent=1) + "\n")
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
    reading, learner = data.Reading(0), run.program.learner
    fuse, chosen = getattr(learner, "of_subsets", None), evaluation.subsets(names)[: len(names)]
    if state is not None and fuse is None:
        found, _ = _geometry.of_views(run, state, split, len(names), ("encoder",), reading, rows=rows)
        if len(found["encoder"]) != len(names):
            raise ValueError(f"method {type(run.config.method).__name__} has no features of each view")
        return dict(zip(chosen, found["encoder"]))
    apply: Any = jax.tree_util.Partial(run.program.rows)
    widths = [math.prod(shape) for shape in run.outline.spec.view_shapes]
    if state is not None and fuse is not None:
        chosen = evaluation.subsets(names)
        masks = np.array([[name in subset for name in names] for subset in chosen])

        def apply_fused(params: Any, statistics: Any, inputs: Any) -> jax.Array:
            z = fuse(params, statistics, inputs, masks).swapaxes(0, 1)
            return jnp.nan_to_num(z.reshape((len(z), -1)))  # of what is missing

        apply = jax.tree_util.Partial(apply_fused, *_program.evaluated(state))
        widths = [learner.abstract.fusion.features] * len(chosen)
    stream, options = _evaluate.in_order(run, split, f"{source}: encoding {split}", reading, rows=rows)
    joint, _ = evaluation.encode(apply, stream, **options)
    return dict(zip(chosen, np.split(joint, np.cumsum(widths)[:-1], axis=1)))
