"""Encoder weights as safetensors files, under torchvision's and timm's names."""

import json
import os
from dataclasses import asdict, is_dataclass

import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _buckets, _extras, _files
from mvcl.models._convolutional import ResNet
from mvcl.models._registry import EncoderConfig
from mvcl.models._transformers import Frozen, ViT

_LEAVES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


def _name(path: tuple[object, ...]) -> str:
    *modules, leaf = map(str, path)
    return ".".join([*modules, _LEAVES.get(leaf, leaf)])


def _to_torch(path: tuple[object, ...], value: np.ndarray) -> np.ndarray:
    """The value in PyTorch's layout: kernels HWIO -> OIHW and IO -> OI, all else unchanged."""
    if path[-1] != "kernel":
        return value
    return value.transpose(3, 2, 0, 1) if value.ndim == 4 else value.T


def _from_torch(path: tuple[object, ...], value: np.ndarray) -> np.ndarray:
    """The inverse of `_to_torch`."""
    if path[-1] != "kernel":
        return value
    return value.transpose(2, 3, 1, 0) if value.ndim == 4 else value.T


def _variables(encoder: nnx.Module) -> list[tuple[tuple[object, ...], nnx.Variable]]:
    return list(nnx.to_flat_state(nnx.state(encoder, nnx.Any(nnx.Param, nnx.BatchStat, Frozen))))


def export(encoder: nnx.Module, config: EncoderConfig, path: str | os.PathLike[str]) -> None:
    """Write an encoder's parameters and running statistics to a safetensors file, for PyTorch.

    ResNet has torchvision's names (`layer1.0.conv1.weight`; with group norm the same names, without
    running statistics), ViT timm's (`blocks.0.attn.qkv.weight`), ConvNet and MLP their own
    (`convs.0.weight`, `norms.0.weight`; `linears.0.weight`, whose input is flattened in (height, width,
    channels) order). Kernels are laid out as PyTorch's: (out, in, height, width) and (out, in). Every batch norm also
    has `num_batches_tracked`, which a strict `load_state_dict` needs: int64 zero, since mvcl does not count batches.
    The config and the origin of the names are in the file's metadata.

    The running variance is flax's, which is not multiplied by n/(n-1) as PyTorch's is.

    The file is written atomically. Raises OSError if it cannot be written.
    """
    with _extras.needed("export", by="an exported encoder"):
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

    tensors: dict[str, np.ndarray] = {}
    for keys, variable in _variables(encoder):
        name = _name(keys)
        tensors[name] = np.ascontiguousarray(_to_torch(keys, np.asarray(variable[...])))
        if keys[-1] == "mean":
            tensors[name.removesuffix("running_mean") + "num_batches_tracked"] = np.zeros((), np.int64)
    assert is_dataclass(config)
    names = "torchvision" if isinstance(config, ResNet) else "timm" if isinstance(config, ViT) else "mvcl"
    metadata = {
        "format": "pt",  # expected by PyTorch readers
        "names": names,
        "encoder": type(config).__name__,
        "config": json.dumps(asdict(config)),
    }
    path = _buckets.path(path)
    try:
        with _files.replacing(path) as temporary:
            save_file(tensors, temporary, metadata)
    except SafetensorError as error:  # raised for a full disk or a missing folder
        raise OSError(f"cannot write {path}: {error}") from error


def load_exported(encoder: nnx.Module, path: str | os.PathLike[str]) -> None:
    """Load an encoder's parameters and running statistics from a file that `export` wrote.

    Weight files of torchvision and timm load too; their classifier (`fc.*`, `head.*`) and `num_batches_tracked` are
    ignored. Raises ValueError, without changing the encoder, if a name is missing or unknown, a shape differs, or the
    file is not a safetensors file.
    """
    with _extras.needed("export", by="an exported encoder"):
        from safetensors.numpy import load_file

    if not os.path.isfile(path):
        raise ValueError(f"path must be a safetensors file; {path} does not exist")
    with _files.reading(path, "safetensors file"):  # it checks sizes against the file's before it reads
        tensors = load_file(path)
    variables = _variables(encoder)
    wanted = {_name(keys) for keys, _ in variables}
    given = {
        name
        for name in tensors
        if not name.endswith("num_batches_tracked") and name.split(".")[0] not in ("fc", "head")
    }
    if wanted != given:
        raise ValueError(
            f"path must have this encoder's weights; {path} lacks {sorted(wanted - given)[:5]} "
            f"and has {sorted(given - wanted)[:5]} too"
        )
    loaded = []
    for keys, variable in variables:
        value = _from_torch(keys, tensors[_name(keys)])
        if value.shape != variable.shape:
            raise ValueError(
                f"{_name(keys)} in {path} must have the encoder's shape {variable.shape}; got {value.shape} "
                f"(in flax's layout)"
            )
        loaded.append((variable, jnp.asarray(value, variable.dtype)))
    for variable, array in loaded:  # only after all checks
        variable[...] = array
