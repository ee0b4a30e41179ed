"""Encoder weights as safetensors files, under torchvision's and timm's names."""

import json
import os
from dataclasses import asdict, is_dataclass

import numpy as np
from flax import nnx

from mvcl import _buckets, _files
from mvcl.models._configs import EncoderConfig
from mvcl.models._convolutional import ResNet
from mvcl.models._vit import Frozen, ViT

_LEAVES = {"kernel": "weight", "scale": "weight", "mean": "running_mean", "var": "running_var"}


def named_variables(encoder: nnx.Module) -> dict[str, nnx.Variable]:
    """Parameters, running statistics and fixed values by their names in PyTorch."""
    kinds = nnx.Any(nnx.Param, nnx.BatchStat, Frozen)
    return {
        ".".join(_LEAVES.get(part, part) for part in map(str, path)): variable
        for path, variable in nnx.to_flat_state(nnx.state(encoder, kinds))
    }


def laid_out(name: str, value: np.ndarray, *, back: bool = False) -> np.ndarray:
    """Kernels in PyTorch's layout, IO -> OI and HWIO -> OIHW, or back; all else unchanged."""
    if not name.endswith("weight"):
        return value
    return value.transpose((2, 3, 1, 0) if back else (3, 2, 0, 1)) if value.ndim == 4 else value.T


def export(encoder: nnx.Module, config: EncoderConfig, path: str | os.PathLike[str]) -> None:
    """Write an encoder's parameters and running statistics to a safetensors file, for PyTorch.

    ResNet has torchvision's names (`layer1.0.conv1.weight`), ViT timm's (`blocks.0.attn.qkv.weight`), ConvNet and MLP
    their own (`convs.0.weight`, `norms.0.weight`; `linears.0.weight`, whose input is flattened in (height, width,
    channels) order). Kernels are laid out as PyTorch's: (out, in, height, width) and (out, in). Every batch norm also
    has `num_batches_tracked`, which a strict `load_state_dict` needs: int64 zero. The config and the origin of the
    names are in the file's metadata. The running variance is not multiplied by n/(n-1) as PyTorch's is.

    The file is written atomically. Raises OSError if it cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    tensors: dict[str, np.ndarray] = {}
    for name, variable in named_variables(encoder).items():
        tensors[name] = np.ascontiguousarray(laid_out(name, np.asarray(variable[...])))
        if name.endswith("running_mean"):
            tensors[name.removesuffix("running_mean") + "num_batches_tracked"] = np.zeros((), np.int64)
    assert is_dataclass(config)
    names = "torchvision" if isinstance(config, ResNet) else "timm" if isinstance(config, ViT) else "mvcl"
    metadata = {"format": "pt", "names": names}  # PyTorch's readers expect the format
    metadata |= {"encoder": type(config).__name__, "config": json.dumps(asdict(config))}
    path = _buckets.path(path)
    try:
        with _files.replacing(path) as temporary:
            save_file(tensors, temporary, metadata)
    except SafetensorError as error:  # raised for a full disk or a missing folder
        raise OSError(f"cannot write {path}: {error}") from error
