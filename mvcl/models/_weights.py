"""Weights of an encoder and its head, from files of safetensors and of PyTorch, of which nothing is executed, and to
safetensors: under torchvision's (ResNet) and timm's (ViT) names; those of Hugging Face are renamed."""

import io
import json
import math
import os
import pickle
import re
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from functools import cache
from itertools import takewhile
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from mvcl import _buckets, _files
from mvcl.models._autoencoders import Autoencoders
from mvcl.models._configs import EncoderConfig
from mvcl.models._convolutional import ResNet, ResNetEncoder
from mvcl.models._vit import Frozen, ViT, ViTEncoder, resized

# Of Hugging Face, in this order; q, k and v become one matrix.
_RENAMED = [
    (r"embeddings\.(cls_token|class_embedding)$", "cls_token"),
    (r"embeddings\.position_embeddings?(\.weight)?$", "pos_embed"),
    (r"embeddings\.patch_embedding(s\.projection)?\.", "patch_embed.proj."),
    (r"encoder\.layers?\.(\d+)\.", r"blocks.\1."),
    (r"(attention\.attention|self_attn)\.([qkv])(uery|ey|alue|_proj)\.", r"attn.\2."),
    (r"(attention\.output\.dense|self_attn\.out_proj)\.", "attn.proj."),
    (r"(blocks\.\d+)\.intermediate\.dense\.", r"\1.mlp.fc1."),
    (r"(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"(layernorm_before|layer_norm1)\.", "norm1."),
    (r"(layernorm_after|layer_norm2)\.", "norm2."),
    (r"layer_scale(\d)\.lambda1$", r"ls\1.gamma"),
    (r"(^|\.)(layernorm|post_layernorm)\.", r"\1norm."),
    (r"pre_layrnorm\.", "norm_pre."),
]
_SCALED = {"ls1": "attn.proj", "ls2": "mlp.fc2"}


def as_timm(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a file with the names and shapes of timm's ViT.

    DINOv2's LayerScale becomes part of a branch's last linear map. `ValueError` for registers, which it lacks.
    """
    found: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        for pattern, to in _RENAMED:
            name = re.sub(pattern, to, name)
        if name.endswith(("cls_token", "pos_embed")):
            value = value.reshape(1, -1, value.shape[-1])
        found[name] = value
    for name in [name for name in found if name.endswith((".attn.q.weight", ".attn.q.bias"))]:
        each = [name.replace(".attn.q.", f".attn.{of}.") for of in "qkv"]
        if all(of in found for of in each):
            found[name.replace(".attn.q.", ".attn.qkv.")] = np.concatenate([found.pop(of) for of in each])
    for name in [name for name in found if re.search(r"\.ls\d\.gamma$", name)]:
        block, of, _ = name.rsplit(".", 2)
        scale = found.pop(name).astype(np.float32)
        for leaf in ("weight", "bias"):
            key = f"{block}.{_SCALED[of]}.{leaf}"
            found[key] = found[key] * (scale[:, None] if leaf == "weight" else scale)
    for name in [name for name in found if name.endswith("patch_embed.proj.weight")]:
        found.setdefault(name.removesuffix("weight") + "bias", np.zeros(len(found[name]), np.float32))
    if registers := [name for name in found if "register_token" in name or name.endswith("reg_token")]:
        what = f"the encoder ViT has no registers, and the file has {registers[0]}"
        raise ValueError(f"{what}; take one without")
    return found


def squared(positions: np.ndarray, tokens: int) -> np.ndarray:
    """`resized` from one square of patches to another of so many; else as they are."""
    old, new = math.isqrt(positions.shape[1] - 1), math.isqrt(tokens)
    if old * old != positions.shape[1] - 1 or new * new != tokens:
        return positions
    return np.asarray(resized(jnp.asarray(positions, jnp.float32), (old, old), (new, new)))


_TYPES = {"Float": "f4", "Double": "f8", "Half": "f2", "BFloat16": "bfloat16", "Bool": "?", "Byte": "u1"}
_TYPES |= {"Char": "i1", "Short": "i2", "Int": "i4", "Long": "i8"}
File = str | os.PathLike[str]
Tensors = dict[str, np.ndarray]
Layout = dict[str, tuple[str, ...]]
"""Name of a variable -> its names in a file, several if the variable stacks them."""


def load_weights(
    encoder: nnx.Module, path: File, *, prefix: str | None = None, head: nnx.Module | None = None
) -> str:
    """Load an encoder's parameters and running statistics, and its head's, from a file; return the prefix of its names.

    The file is one of safetensors, such as `export` writes, an .npz, or one of torch.save (PyTorch 1.6 and later). Its
    names are those of `export` after a prefix that all have, such as `state_dict.module.base_encoder.`; of a ResNet
    also an nn.Sequential's of torchvision's layers, of `Autoencoders` those of SEM's released code, of a ViT those of
    Hugging Face's ViT, CLIP and DINOv2, whose positions are interpolated to the encoder's grid. The head is what has
    its shapes, in its order, nearest to the encoder. Other names, such as a classifier's, are ignored.

    Args:
      encoder: Module to change.
      path: The file, on a disk.
      prefix: The prefix or its end, such as `encoder_q`; needed if several fit.
      head: Head to change too.

    Raises:
      ValueError: the file is none of these, lacks names, has more of the encoder's layers, or other shapes; or no
        prefix or several fit. Nothing is changed then.
    """
    tensors, variables, new = _read(path), named_variables(encoder), []
    layouts: list[Layout] = [{name: (name,) for name in variables}]
    if isinstance(encoder, Autoencoders):
        layouts = [encoder.released_names()]
    elif isinstance(encoder, ResNetEncoder):
        order = ["conv1", "bn1", "relu", *["maxpool"] * encoder.pools, *(f"layer{i}" for i in range(1, 5))]
        first = [name.partition(".")[0] for name in variables]
        layouts.append({n: (f"{order.index(f)}{n.removeprefix(f)}",) for n, f in zip(variables, first)})
    elif isinstance(encoder, ViTEncoder):
        with _files.naming(path):
            tensors = as_timm(tensors)
    start, layout = _found(tensors, layouts, path, prefix)
    extra = "norm_pre.weight"
    if isinstance(encoder, ViTEncoder) and start + extra in tensors and extra not in variables:
        what = f"{path} has a norm before the blocks, as CLIP"
        raise ValueError(f"{what}: give the encoder --encoder.pre-norm True")
    for name, variable in variables.items():
        each = [laid_out(part, tensors.pop(start + part), back=True) for part in layout[name]]
        if name == "pos_embed":
            each = [squared(each[0], variable.shape[1] - 1)]
        new.append((variable, value := each[0] if len(each) == 1 else np.stack(each)))
        if value.shape != variable.shape:
            images = "; its images had another size" if name.endswith("pos_embed") else ""
            what = f"{start}{layout[name][0]} in {path} must have the encoder's shape {variable.shape}"
            raise ValueError(f"{what}; got {value.shape} (in flax's layout){images}")
    if head is not None and named_variables(head):
        new += _of_head(head, tensors, start, path)
    for variable, value in new:  # only after all checks
        variable[...] = jnp.asarray(value, variable.dtype)
    return start


def _found(tensors: Tensors, layouts: list[Layout], path: File, prefix: str | None) -> tuple[str, Layout]:
    """What stands before an encoder's names in a file, and which they are."""
    wanted = f"path must have this encoder's weights; {path}"
    parts_of = [{part for parts in layout.values() for part in parts} for layout in layouts]
    fits: dict[str, int] = {}
    near = (0, "", 0)
    for i, parts in enumerate(parts_of):
        starts = [n.removesuffix(part) for part in parts for n in tensors if f".{n}".endswith(f".{part}")]
        near = max([near, *((count, start, i) for start, count in Counter(starts).items())])
        fits |= {start: i for start, count in Counter(starts).items() if count == len(parts)}
    if not fits:
        _, start, i = near
        lacking = sorted(part for part in parts_of[i] if start + part not in tensors)
        after = f" after {start}" if start else ""
        raise ValueError(f"{wanted} lacks {lacking[:5]}{after} and has {sorted(tensors)[:5]}")
    end = (prefix or "").strip(".")
    found = [start for start in fits if prefix is None or start.strip(".") == end]
    found = found or [start for start in fits if start.endswith(f".{end}.")]
    if len(found) != 1:
        known = ", ".join(start.strip(".") or '""' for start in fits)
        raise ValueError(f"{path} has this encoder under {known}; choose one with --prefix, got {prefix!r}")
    (start,) = found
    parts = parts_of[fits[start]] | {"num_batches_tracked"}
    layers = tuple(start + part.partition(".")[0] + "." for part in parts)
    ours = [name for name in tensors if name.startswith(layers)]
    if more := [n for n in ours if not {n.removeprefix(start), n.rpartition(".")[2]} & parts]:
        raise ValueError(f"{wanted} has {more[:5]} too")
    return start, layouts[fits[start]]


def _of_head(head: nnx.Module, tensors: Tensors, start: str, path: File) -> list[tuple[Any, np.ndarray]]:
    """A head's variables with their values, of the names nearest to an encoder's that have its shapes in its order."""
    groups: dict[str, Tensors] = {}
    for name, value in tensors.items():
        for dot in re.finditer(r"\.", name):
            groups.setdefault(name[: dot.start()], {})[name] = laid_out(name, value, back=True)
    ours, near = _layers(named_variables(head)), start.split(".")
    for group in sorted(
        groups, key=lambda name: -sum(takewhile(bool, map(str.__eq__, name.split("."), near)))
    ):
        both = list(zip(ours, theirs := _layers(groups[group])))
        # A shift that the head lacks is zero: the released code of Koromilas 2025 saves one.
        unused = [b[leaf] for a, b in both for leaf in b.keys() - a.keys()]
        fits = all(leaf in b and b[leaf].shape == x.shape for a, b in both for leaf, x in a.items())
        if len(ours) == len(theirs) and fits and not any(map(np.any, unused)):
            return [(x, b[leaf]) for a, b in both for leaf, x in a.items()]
    shapes = ", ".join(str(of["weight"].shape) for of in ours if "weight" in of and of["weight"].ndim == 2)
    raise ValueError(
        f"the evaluation of the head needs its layers, {shapes}; {path} has none of these shapes beside the encoder, "
        f"but {', '.join([*groups][:8]) or 'nothing'}. Set the head's options, or evaluate the encoder alone"
    )


def _layers(tensors: Any) -> list[dict[str, Any]]:
    """Leaf -> value of each layer, linear layers before norms, each in order."""
    layers: dict[str, dict[str, Any]] = {}
    for name in sorted(tensors, key=lambda name: [(len(part), part) for part in name.split(".")]):
        layer, _, leaf = name.rpartition(".")
        if leaf != "num_batches_tracked":
            layers.setdefault(layer, {})[leaf] = tensors[name]
    return sorted(layers.values(), key=lambda of: "weight" not in of or of["weight"].ndim != 2)


def _read(path: File) -> Tensors:
    """The tensors of a file by name; those of nested dictionaries have their keys before."""
    if not os.path.isfile(path):
        raise ValueError(f"path must be a file of weights on a disk; {path} does not exist")
    if str(path).endswith(".npz"):
        return dict(_files.read_npz(path))
    if zipfile.is_zipfile(path):
        with _files.reading(path, "file of PyTorch's weights"), zipfile.ZipFile(path) as archive:
            if sum(part.file_size for part in archive.infolist()) > os.path.getsize(path):
                raise ValueError("its parts are compressed, which torch.save does not do")
            return dict(_flat(_Unpickler(archive).load(), "", set()))
    with open(path, "rb") as file:
        first = file.read(9)
    if first[:1] == b"\x80" and first[8:] != b"{":  # a pickle, and no header of safetensors
        convert = f"import torch; torch.save(torch.load('{path}', map_location='cpu'), '{path}.pt')"
        how = f'where PyTorch is, convert it: python -c "{convert}"'
        raise ValueError(f"{path} is of PyTorch before 1.6; {how}")
    from safetensors.numpy import load_file

    with _files.reading(path, "safetensors file"):  # it checks sizes against the file's before it reads
        return load_file(path)


def _flat(tree: Any, name: str, seen: set[int]) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of nested dictionaries, each dictionary once."""
    if isinstance(tree, np.ndarray):
        yield name[:-1], tree
    elif isinstance(tree, dict) and id(tree) not in seen:
        seen.add(id(tree))
        for key, value in tree.items():
            yield from _flat(value, f"{name}{key}.", seen)


class _Ignored:
    """Stands for an object of another class of the file, and keeps nothing of it."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    __setstate__ = __setitem__ = append = extend = __init__


# Python's own: that in C takes as much memory as a number of the file says.
class _Unpickler(pickle._Unpickler):
    """The dictionaries of tensors of torch.save; no class or function that a file names is imported."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        names = [name for name in archive.namelist() if name.endswith("data.pkl")]
        folder = names[0].removesuffix("data.pkl") if names else ""
        self.storage = cache(lambda key: archive.read(f"{folder}data/{key}"))
        super().__init__(io.BytesIO(archive.read(f"{folder}data.pkl")))

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name.endswith("Storage"):
            return name.removesuffix("Storage")
        known = {
            "collections.OrderedDict": OrderedDict,
            "torch._utils._rebuild_tensor_v2": self.tensor,
            "torch._utils._rebuild_parameter": lambda data, *_: data,
        }
        return known.get(f"{module}.{name}") or type(name, (_Ignored,), {})

    def persistent_load(self, pid: Any) -> Any:
        return pid

    def tensor(self, storage: Any, offset: int, shape: Any, strides: Any, *_: Any) -> np.ndarray:
        """The tensor of a storage ("storage", type, key, device, length); numpy checks its bounds."""
        kind = np.dtype(_TYPES[storage[1]])
        steps = [stride * kind.itemsize for stride in strides]
        return np.ndarray(shape, kind, self.storage(storage[2]), offset * kind.itemsize, steps)


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
