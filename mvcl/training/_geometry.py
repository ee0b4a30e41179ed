"""`mvcl geometry`: how the embeddings of a run's views fill the sphere, at the encoder and the head."""

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mvcl import _files, _progress, data, evaluation
from mvcl.training import _encode, _log, _program, _views
from mvcl.training._run import Run

FILE = "geometry.json"
OUTPUTS = ("encoder", "head")
# Of the split, in training: enough for 3 digits of every measure, and quickly encoded.
_EXAMPLES_IN_TRAINING = 1_000
_KEY = "encoder_uniformity"  # in every row of the log with a geometry
_DIGITS = 6  # of a number in the file, whose spectra are long


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
    split = _test(run) if split is None else split
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


def is_due(run: Run, step: int) -> bool:
    """Whether the geometry of this step belongs in the log, by train.geometry_every."""
    every = run.config.train.geometry_every
    return every > 0 and step > 0 and step % max(1, round(every * run.program.steps_per_epoch)) == 0


def is_logged(workdir: Path, step: int) -> bool:
    """Whether the log has the geometry of this step."""
    return any(row.get("step") == step and _KEY in row for row in _log.read_log(workdir))


def scores(run: Run, state: _program.State, reading: data.Reading) -> dict[str, float]:
    """`encoder_alignment`, `head_uniformity` and so on: the measures that cost least, of a part of the test split."""
    split = _test(run)
    embedded, present, names = _embedded(run, state, split, None, _EXAMPLES_IN_TRAINING, reading)
    found: dict[str, float] = {}
    for output, arrays in embedded.items():
        with _progress.during(f"measuring the embeddings of the {output}"):
            values = evaluation.geometry_scores(
                arrays, present=present if len(arrays) == len(names) else None
            )
        found |= {f"{output}_{name}": value for name, value in values.items()}
    return found


def _test(run: Run) -> str:
    return run.config.evaluation.splits(tuple(run.splits))[-1]


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
    rows = np.random.default_rng(config.evaluation.seed).permutation(len(used))[:examples]
    rows = np.sort(rows)
    if used.spec.given:
        if views not in (None, config.views.k):
            raise ValueError(f"--views must be left out or {config.views.k}, the views given, got {views}")
        found, index = _views.of_given_views(run, state, split, OUTPUTS, reading, rows=rows)
        return found, None if used.present is None else used.present[index], _names(used.spec, config)
    k = config.views.k if views is None else views
    if k < 1:
        raise ValueError(f"--views must be at least 1, got {k}")
    found, index = _views.of_views(run, state, split, k, OUTPUTS, reading, rows=rows)
    names = (*config.view_names, *(f"view {view + 1}" for view in range(config.views.k, k)))[:k]
    return found, None, names


def _names(spec: data.ExampleSpec, config: Any) -> tuple[str, ...]:
    return spec.view_names or config.view_names


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
