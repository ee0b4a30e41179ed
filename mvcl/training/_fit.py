"""From arrays to an encoder: a config for their shapes, trained by `train`."""

import dataclasses
import tempfile
import typing
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mvcl import augment, data, losses, methods, models
from mvcl.data import Memory
from mvcl.training import _arguments, _serialise
from mvcl.training._config import Config, Train, Views
from mvcl.training._encoder import Encoder, open_encoder
from mvcl.training._train import Hook, train


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
    types = typing.get_type_hints(Config)
    own = [name for name in types if name not in ("data", "objective")]
    for name, value in fields.items():
        if name not in own:
            takes = f"labels, mask, scaling, workdir, hooks and {', '.join(own)}"
            raise TypeError(f"mvcl.fit has no argument {name!r}; it takes {takes}")
        _serialise.check(name, value, types[name])
        _serialise.checked(value)
    kinds: Any = scaling
    if hasattr(given, "cast_column"):
        split = data.split_of_dataset(given)
    else:
        split = data.split_of_arrays(given, labels=labels, mask=mask, scaling=kinds)
    config = Config(**({"data": Memory()} | _suited(split, fields) | fields))
    if isinstance(objective, str):
        config = _arguments.choose(config, "objective", objective)
    else:
        config = _arguments.replace_at(config, ("objective",), objective)
    with ExitStack() as files:
        if workdir is None:
            workdir = files.enter_context(tempfile.TemporaryDirectory(prefix="mvcl_"))
        train(config, Path(workdir), splits={"train": split, "test": split}, hooks=hooks)
        return open_encoder(workdir)


def _suited(split: data.Split, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a config that fit arrays of these shapes."""
    spec = split.spec
    found: dict[str, Any] = {
        "evaluation": None,
        "head": models.MLPHead(out=64, norm="batch"),
        "train": Train(evaluate_every=0),
    }
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
