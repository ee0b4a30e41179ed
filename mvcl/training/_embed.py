"""`mvcl embed`: features of a split in a file, and their rank, uniformity and alignment."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np

from mvcl import _files, _progress, data, evaluation
from mvcl.training import _augmented, _encoding, _program
from mvcl.training._run import Run


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
        _encoding.check_split(run, split)
        reading = data.Reading(run.config.train.corrupt_limit)
        output = run.config.evaluation.features
        by_output, rows = _augmented.of_views(run, state, split, views, (output,), reading)
        by_view = np.stack(by_output[output])
        labels, features = run.splits[split].labels[rows], by_view.swapaxes(0, 1)
    else:
        encoded, of_split = _encoding.encode(run, state, (split,))
        features, labels, by_view = encoded[split], of_split[split], encoded[split][None]
    with _progress.during("measuring the features"):
        measures = evaluation.embedding_measures(by_view, seed=run.config.evaluation.seed)
    if jax.process_index() == 0:
        _encoding.save_embeddings(out, features, labels, run.splits[split].class_names)
        text = json.dumps([dataclasses.asdict(result) for result in measures], indent=1)
        _files.write_whole(out.with_suffix(".json"), text + "\n")
    return np.shape(features), measures
