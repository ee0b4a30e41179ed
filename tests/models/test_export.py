"""Exported files against torchvision's and timm's names, and against numpy forward passes over the file itself."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.lib.stride_tricks import sliding_window_view
from parametrize import some
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from scipy.special import erf

from mvcl.models import MLP, ConvNet, EegConv, ResNet, Transformer, ViT, eval_view, export, load_exported


class Tensors(dict):
    """The tensors of a file in float64, which remembers the names that were read."""

    def __init__(self, path):
        super().__init__({name: value.astype(np.float64) for name, value in load_file(path).items()})
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)

    def check(self, metadata, config, names):
        """That all were read by the reference, except the counts of batches, one of each batch norm."""
        counts = {name for name in self if name.endswith("num_batches_tracked")}
        norms = {name for name in self if name.endswith("running_mean")}
        assert {name.replace("num_batches_tracked", "running_mean") for name in counts} == norms
        assert set(self) - self.read == counts
        assert metadata["format"] == "pt"
        assert metadata["names"] == names
        assert type(config)(**json.loads(metadata["config"])) == config


# Forward passes in numpy, float64, NCHW, over the exported dictionary, by torchvision's and timm's names


def conv2d(x, weight, stride=1, padding=0):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    windows = sliding_window_view(x, weight.shape[2:], axis=(2, 3))[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", windows, weight, optimize=True)


def batch_norm(x, t, name, train):
    axes = (0,) + tuple(range(2, x.ndim))
    mean, var = t[f"{name}.running_mean"], t[f"{name}.running_var"]
    if train:
        mean, var = x.mean(axes), x.var(axes)
    shape = (1, -1) + (1,) * (x.ndim - 2)
    scale = t[f"{name}.weight"] / np.sqrt(var + 1e-5)
    return x * scale.reshape(shape) + (t[f"{name}.bias"] - mean * scale).reshape(shape)


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


def resnet_features(t, x, *, depth, stem, train):
    blocks = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]
    if stem == "imagenet":
        x = relu(batch_norm(conv2d(x, t["conv1.weight"], 2, 3), t, "bn1", train))
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        x = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max((-1, -2))
    else:
        x = relu(batch_norm(conv2d(x, t["conv1.weight"], 1, 1), t, "bn1", train))
    for stage, count in enumerate(blocks, start=1):
        for index in range(count):
            b, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            weights = [t[f"{b}.conv{i}.weight"] for i in (1, 2, 3) if f"{b}.conv{i}.weight" in t]
            strided = 2 if depth == 50 else 1  # v1.5: the 3x3, which is a bottleneck's second
            h = x
            for i, weight in enumerate(weights, start=1):
                h = conv2d(h, weight, stride if i == strided else 1, weight.shape[2] // 2)
                h = batch_norm(h, t, f"{b}.bn{i}", train)
                h = relu(h) if i < len(weights) else h
            if f"{b}.downsample.0.weight" in t:
                x = batch_norm(
                    conv2d(x, t[f"{b}.downsample.0.weight"], stride), t, f"{b}.downsample.1", train
                )
            x = relu(x + h)
    return x.mean((2, 3))


def vit_features(t, x, *, heads):
    n = len(x)
    weight = t["patch_embed.proj.weight"]
    patches = conv2d(x, weight, weight.shape[-1]) + t["patch_embed.proj.bias"][:, None, None]
    x = patches.reshape(n, len(weight), -1).transpose(0, 2, 1)
    x = np.concatenate([np.repeat(t["cls_token"], n, 0), x], 1) + t["pos_embed"]

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return unit * t[f"{name}.weight"] + t[f"{name}.bias"]

    index = 0
    while f"blocks.{index}.norm1.weight" in t:
        b = f"blocks.{index}"
        qkv = linear(layer_norm(x, f"{b}.norm1"), f"{b}.attn.qkv")
        q, k, v = (
            np.stack(np.split(part, heads, -1), 1) for part in np.split(qkv, 3, -1)
        )  # (n, head, token, :)
        scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        x = x + linear(np.concatenate(list(mixed.swapaxes(0, 1)), -1), f"{b}.attn.proj")
        h = linear(layer_norm(x, f"{b}.norm2"), f"{b}.mlp.fc1")
        x = x + linear(gelu(h), f"{b}.mlp.fc2")
        index += 1
    return layer_norm(x, "norm")[:, 0]


def randomise(module, rng):
    """Randomise every scale, shift, bias and statistic too, so that no default value hides an error."""
    for path, variable in nnx.to_flat_state(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat))):
        noise = rng.normal(size=variable.shape)
        if path[-1] in ("scale", "var"):
            variable[...] = jnp.asarray(rng.uniform(0.5, 1.5, size=variable.shape), jnp.float32)
        elif path[-1] in ("bias", "mean", "cls_token", "pos_embed"):
            variable[...] = jnp.asarray(0.3 * noise, jnp.float32)
        elif variable.ndim == 2:  # kernels of 0.02 would hide the attention
            variable[...] = jnp.asarray(noise / np.sqrt(variable.shape[0]), jnp.float32)


def exported(module, config, tmp_path):
    path = tmp_path / "encoder.safetensors"
    export(module, config, path)
    with safe_open(path, "numpy") as file:
        return Tensors(path), file.metadata()


def same(ours, reference):
    """To 1e-4 of the reference's largest entry."""
    reference = np.asarray(reference)
    np.testing.assert_allclose(np.asarray(ours), reference, rtol=0, atol=1e-4 * np.abs(reference).max())


def forward(module, x):
    return module(x)


def pure(function, module, x):
    graph, state = nnx.split(module)
    return jax.jit(lambda state, x: function(nnx.merge(graph, state), x))(state, x)


@pytest.mark.parametrize("train", some([False, True], fast=[True]))
@pytest.mark.parametrize(
    ("depth", "stem", "size"),
    [(18, "cifar", 16), pytest.param(50, "imagenet", 64, marks=pytest.mark.exhaustive)],
)
def test_resnet_equals_torchvision(depth, stem, size, train, tmp_path, rng):
    config = ResNet(depth=depth, stem=stem, width=8)
    module = config.build((size, size, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))
    randomise(module, rng)
    x = rng.normal(size=(6, size, size, 3)).astype(np.float32)
    tensors, metadata = exported(module, config, tmp_path)
    reference = resnet_features(tensors, x.transpose(0, 3, 1, 2), depth=depth, stem=stem, train=train)
    module = module if train else eval_view(module)
    same(pure(forward, module, x), reference)
    tensors.check(metadata, config, "torchvision")


@pytest.mark.parametrize("positions", some(["learned", "sincos"], fast=["learned"]))
def test_vit_equals_timm(positions, tmp_path, rng):
    config = ViT(patch=4, width=24, depth=2, heads=3, positions=positions)
    module = config.build((12, 8, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))
    randomise(module, rng)
    x = rng.normal(size=(3, 12, 8, 3)).astype(np.float32)
    tensors, metadata = exported(module, config, tmp_path)
    same(pure(forward, module, x), vit_features(tensors, x.transpose(0, 3, 1, 2), heads=3))
    tensors.check(metadata, config, "timm")


@pytest.mark.parametrize("train", some([False, True], fast=[True]))
def test_convnet_by_numpy(train, tmp_path, rng):
    config = ConvNet((8, 16, 24))
    module = config.build((9, 8, 2), dtype=jnp.float32, rngs=nnx.Rngs(0))
    randomise(module, rng)
    x = rng.normal(size=(5, 9, 8, 2)).astype(np.float32)
    t, _ = exported(module, config, tmp_path)
    h = x.transpose(0, 3, 1, 2)
    for index in range(3):
        h = conv2d(h, t[f"convs.{index}.weight"], 1 if index == 0 else 2, 1)
        h = relu(batch_norm(h, t, f"norms.{index}", train))
    same(pure(forward, module if train else eval_view(module), x), h.mean((2, 3)))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("norm", ["none", "batch"])
def test_mlp_by_numpy(norm, train, tmp_path, rng):
    config = MLP((16, 12, 6), norm=norm, activation="gelu" if norm == "none" else "relu")
    module = config.build((3, 4), dtype=jnp.float32, rngs=nnx.Rngs(0))
    randomise(module, rng)
    x = rng.normal(size=(7, 3, 4)).astype(np.float32)
    t, _ = exported(module, config, tmp_path)
    h = x.reshape(7, 12)
    for index in range(3):
        h = h @ t[f"linears.{index}.weight"].T + t.get(f"linears.{index}.bias", 0)
        if index < 2:
            h = relu(batch_norm(h, t, f"norms.{index}", train)) if norm == "batch" else gelu(h)
    same(pure(forward, module if train else eval_view(module), x), h)


ROUND_TRIPS = [
    (ResNet(stem="cifar", width=8), (8, 8, 3)),
    (ResNet(stem="cifar", norm="group", width=8), (8, 8, 3)),
    (ViT(patch=4, width=24, depth=2, heads=3), (8, 8, 1)),
    (ViT(patch=4, width=24, depth=2, heads=3, positions="sincos"), (8, 8, 1)),
    (ConvNet((4, 8)), (8, 8, 1)),
    (MLP((8, 4), norm="batch"), (5,)),
    (EegConv(channels=4, out=2), (64,)),
    (Transformer(width=8, depth=1, heads=2), (7, 3)),
]


@pytest.mark.parametrize(("config", "shape"), ROUND_TRIPS[1:])
def test_round_trip(config, shape, tmp_path, rng):
    source, target = (config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    randomise(source, rng)
    path = tmp_path / "encoder.safetensors"
    export(source, config, path)
    load_exported(target, path)
    variables = nnx.Any(nnx.Param, nnx.BatchStat)
    for a, b in zip(
        jax.tree.leaves(nnx.state(source, variables)),
        jax.tree.leaves(nnx.state(target, variables)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)
    assert [child.name for child in tmp_path.iterdir()] == [path.name]


def convnet(seed=0, widths=(4, 8)):
    return ConvNet(widths).build((8, 8, 1), dtype=jnp.float32, rngs=nnx.Rngs(seed))


def test_ignores_a_classifier(tmp_path):
    path = tmp_path / "encoder.safetensors"
    export(convnet(), ConvNet((4, 8)), path)
    save_file(load_file(path) | {"fc.weight": np.ones((10, 8)), "head.bias": np.ones(10)}, path)
    target = convnet(seed=1)
    load_exported(target, path)
    np.testing.assert_array_equal(target.convs[1].kernel[...], convnet().convs[1].kernel[...])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda t: {k: v for k, v in t.items() if k != "norms.1.running_var"},
            r"lacks \['norms.1.running_var'\]",
        ),
        (lambda t: t | {"extra.weight": np.ones(1)}, r"has \['extra.weight'\]"),
        (
            lambda t: t | {"norms.1.running_var": np.ones(9)},
            r"norms.1.running_var .* must have .* shape \(8,\); got \(9,\)",
        ),
    ],
)
def test_raises_on_a_file_of_another_encoder_without_changes(spoil, message, tmp_path):
    path = tmp_path / "encoder.safetensors"
    export(convnet(), ConvNet((4, 8)), path)
    save_file(spoil(load_file(path)), path)
    target = convnet(seed=1)
    with pytest.raises(ValueError, match=message):
        load_exported(target, path)
    for a, b in zip(
        jax.tree.leaves(nnx.state(target)), jax.tree.leaves(nnx.state(convnet(seed=1))), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_raises_on_a_file_that_is_not_safetensors(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not weights")
    with pytest.raises(ValueError, match=r"notes\.txt is not a readable safetensors file"):
        load_exported(convnet(), path)
    with pytest.raises(ValueError, match=r"missing\.safetensors does not exist"):
        load_exported(convnet(), tmp_path / "missing.safetensors")


def test_a_failed_export_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "encoder.safetensors"
    path.write_bytes(b"old")

    def full(tensors, path, metadata):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.numpy.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        export(convnet(), ConvNet((4, 8)), path)
    assert path.read_bytes() == b"old"
    assert [child.name for child in tmp_path.iterdir()] == [path.name]
