"""A trained encoder by itself, with the preprocessing and the weights of its run; and `fit`, which trains one."""

import dataclasses
import json
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from mvcl import _buckets, _files, augment, data, losses, methods, models
from mvcl.training import _arguments, _evaluate, _program
from mvcl.training._config import Config, Train, Views
from mvcl.training._run import KEPT, Run, open_run
from mvcl.training._serialise import load, replace_at, to_json, tree
from mvcl.training._train import Hook, train

Output = Literal["config", "encoder", "head", "views", "head_views", "mean"]
"""Outputs of an encoder, see `Encoder`."""


class Encoder:
    """The encoder of a run, in evaluation mode: `encoder(images)`, `encoder({"text": t, "image": i})`.

    Attributes:
      config: the run's config.
      module: the network, with `encoder` and `head` (lists of them, where each view has its own), in evaluation mode.
      params: its parameters.
      views: names of the views that it takes; () for images.
      class_names: of the classes of its training data.
    """

    def __init__(self, run: Run, state: _program.State) -> None:
        """Of a run, with or without its splits, and a state; the optimiser's part of the state is not kept."""
        self.run, spec = dataclasses.replace(run, splits={}), run.outline.spec
        self.state = {name: state[name] for name in KEPT if name in state}
        self.config, self.params = run.config, _program.evaluated(state)[0]
        self.views = (spec.view_names or tuple(f"view {i + 1}" for i in range(spec.views or 0))) * spec.given
        self.class_names = tuple(run.kept.get("class_names", ()))
        self._runs: dict[str, Run] = {}  # one for each output

    @cached_property
    def module(self) -> Any:
        return models.eval_view(self.run.program.learner.network(*_program.evaluated(self.state)))

    def __call__(self, given: Any, *, mask: Any = None, output: Output = "config") -> np.ndarray:
        """Features (n, d) float32 of arrays, the same numbers as `mvcl embed` writes; computed in batches by jit.

        Args:
          given: images (n, H, W, C), uint8 or floating in [0, 1], or a list of images of any sizes; or views by name,
            in the units of the training data. A view that is left out or None, and rows of NaN, are missing.
          mask: (n, k) bool, False where a view is missing; None: as the NaN say.
          output: `encoder` or `head`; of given views also each, side by side, `views` or `head_views`, or the `mean`
            over the views of an example; `config`: what the run evaluates.

        Raises:
          ValueError: an array has not the type or shape of the training data, or the method has no such output.
        """
        spec = self.run.outline.spec
        if isinstance(given, (list, tuple)) and spec.image_shape is not None:  # a program for each size
            sizes = [np.shape(image) for image in given]
            rows = {size: [row for row, one in enumerate(sizes) if one == size] for size in sizes}
            parts = [self(np.stack([given[row] for row in of]), output=output) for of in rows.values()]
            return np.concatenate(parts)[np.argsort(np.concatenate(list(rows.values())))]
        split, mean = self.split(given, mask), output == "mean"
        found = self.encode(split, "encoder" if mean and not spec.given else output)
        if not mean or not spec.given:
            return found
        there = np.ones((len(split), len(self.views)), bool) if split.present is None else split.present
        return found.reshape(*there.shape, -1).sum(1) / there.sum(1, keepdims=True, dtype=np.float32)

    transform = __call__

    def split(self, given: Any, mask: Any = None) -> data.Split:
        """Arrays, as in a call, as a split of the run, with its scaling."""
        scaling = self.run.kept.get("scaling", {})
        return data.split_of_arrays(given, mask=mask, spec=self.run.outline.spec, scaling=scaling)

    def encode(self, split: data.Split, output: Output = "config") -> np.ndarray:
        """Features of the examples of a split that has the shapes of the run's."""
        return self._encoded(split, self.state, output)

    def preprocess(self, given: Any) -> Any:
        """What `module.encoder` takes: images (n, side, side, C) at its size, normalised; or scaled views."""
        split, side = self.split(given), self.config.policies[0].image_size
        if split.spec.given:
            return data.inputs(split, np.arange(len(split)))["views"]
        return self._encoded(split, None).reshape(len(split), side, side, -1)

    def save(self, folder: str | Path) -> Path:
        """Write the encoder into a folder for `mvcl.load`, without its data; an existing file of it is replaced."""
        place = _buckets.path(folder)
        place.mkdir(parents=True, exist_ok=True)
        _files.write_whole(place / "config.json", to_json(self.config))
        _files.write_whole(place / "data.json", json.dumps(self.run.kept) + "\n")
        arrays = jax.tree_util.tree_flatten_with_path(self.state)[0]
        _files.save_arrays(place / "encoder.npz", **{jax.tree_util.keystr(path): x for path, x in arrays})
        return place

    def __reduce__(self) -> Any:
        """Pickled as the files that `save` writes."""
        with tempfile.TemporaryDirectory(prefix="mvcl_") as folder:
            files = {file.name: file.read_bytes() for file in self.save(folder).iterdir()}
        return _of_files, (files,)

    def _encoded(self, split: data.Split, state: _program.State | None, output: str = "config") -> np.ndarray:
        """Features of every row of a split; without a state what the encoder sees of it."""
        if output not in self._runs:
            features = {"config": self.config.evaluation.features, "mean": "views"}.get(output, output)
            config = replace_at(self.config, ("evaluation", "features"), features)
            apply, rows, head = _program.features_of(config, self.run.outline.spec, self.run.program.learner)
            program = dataclasses.replace(self.run.program, apply=apply, rows=rows, head=head)
            self._runs[output] = dataclasses.replace(self.run, config=config, program=program)
        run = self._runs[output]
        size = run.config.evaluation.batch_size
        if not split.spec.given:  # few are a small batch; a row of a table is the same, whatever is beside it
            size = min(1 << (len(split) - 1).bit_length(), size)
        config = replace_at(run.config, ("evaluation", "batch_size"), size)
        run = dataclasses.replace(run, config=config, splits={"given": split}, reading=data.Reading(0))
        return _evaluate.encode_readable(run, state, splits=("given",))[0]["given"]


def _of_files(files: dict[str, bytes]) -> Encoder:
    with tempfile.TemporaryDirectory(prefix="mvcl_") as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        return open_encoder(folder)


def open_encoder(
    run: str | Path, checkpoint: str = "latest", *, network: str = "config", config: str | None = None
) -> Encoder:
    """The encoder of a run's folder, or of one that `Encoder.save` wrote; the data are not needed.

    Args:
      run: the folder.
      checkpoint: `latest`, `best`, or a step.
      network: `online` or `momentum`, for methods with both; `config` uses the method's `evaluate` field.
      config: its config file, needed if the encoder or the method is a class from outside mvcl.

    Raises:
      ValueError: the folder is not that of a run, has no such checkpoint or network, or needs its config file; or the
        checkpoint cannot be read.
    """
    if config is not None:
        load(config)
    return Encoder(*open_run(run, checkpoint, network, with_data=False))


def fit(
    given: Any,
    objective: losses.Loss | str = losses.mv_infonce,
    *,
    labels: Any = None,
    mask: Any = None,
    scaling: Sequence[str] = ("standard",),
    workdir: str | Path | None = None,
    hooks: Sequence[Hook] = (),
    **fields: Any,
) -> Encoder:
    """Train an encoder on arrays in memory, as `train` does, and return it.

        encoder = mvcl.fit({"text": t, "image": i}, losses.mv_dhel, train=Train(epochs=20))
        features = encoder({"text": new_t, "image": new_i})

    Args:
      given: images (n, H, W) or (n, H, W, C), or a `datasets.Dataset` of them, of which views are drawn; or views by
        name, a mapping or a list of arrays and DataFrames (n, ...). A view's rows of NaN are missing.
      objective: a function of embeddings, or a name of `losses.objectives()`.
      labels: (n,) classes, for an evaluation and for method supervised.
      mask: (n, k) bool, False where a view is missing.
      scaling: of tables' columns, `standard`, `minmax` or `none`, one for all views or one for each.
      workdir: folder of the run, which a repeated call resumes, or opens if it has ended; None: nothing is kept.
      hooks: as for `train`.
      fields: of `Config`, such as `encoder`, `views` or `train`. By default tables get an MLP, sequences (time, d) a
        Transformer, images up to 64 pixels a ConvNet and larger ones a ResNet-18; views by name have an encoder each
        (method multi_encoder); and nothing is evaluated. These defaults are ours.

    Raises:
      TypeError: an argument is not known.
      ValueError: arrays, mask or fields are invalid, or the folder is of another config or of other arrays.
      Diverged, Interrupted: as `train`.
    """
    own = [field.name for field in dataclasses.fields(Config) if field.name not in ("data", "objective")]
    if unknown := [name for name in fields if name not in own]:
        takes = f"labels, mask, scaling, workdir, hooks and {', '.join(own)}"
        raise TypeError(f"mvcl.fit has no argument {unknown[0]!r}; it takes {takes}")
    kinds: Any = scaling
    if hasattr(given, "cast_column"):
        split = data.split_of_dataset(given)
    else:
        split = data.split_of_arrays(given, labels=labels, mask=mask, scaling=kinds)
    config = Config(**({"data": data.Memory()} | _suited(split, fields) | fields))
    if isinstance(objective, str):
        config = _arguments.choose(config, "objective", objective)
    else:
        config = replace_at(config, ("objective",), objective)
    tree(config)  # raises for a value of another type
    with ExitStack() as files:
        if workdir is None:
            workdir = files.enter_context(tempfile.TemporaryDirectory(prefix="mvcl_"))
        train(config, Path(workdir), splits={"train": split, "test": split}, hooks=hooks)
        return open_encoder(workdir)


def _suited(split: data.Split, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config that fit arrays of these shapes."""
    spec = split.spec
    head, train = models.MLPHead(out=64, norm="batch"), Train(evaluate_every=0)
    found: dict[str, Any] = {"evaluation": None, "head": head, "train": train}
    if spec.given:
        encoder, method = fields.get("encoder"), fields.pop("method", methods.MultiEncoder())
        if getattr(method, "encoders", None) == ():
            encoders = tuple(encoder or models.ByShape().of(shape) for shape in spec.view_shapes)
            method = dataclasses.replace(method, encoders=encoders)
        return found | {"method": method}
    own: dict[str, Any] = {"mean": (0.5,), "std": (0.5,)}
    policies = {1: augment.digits(0), 3: augment.moco_v2(0, **own)}
    policy = policies.get(spec.channels, augment.Policy(0, **own))  # crops and flips
    return found | {"views": Views(policy=policy), "encoder": models.ByShape()}
