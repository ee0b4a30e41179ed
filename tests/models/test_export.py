"""Exported files against torchvision's and timm's names, and against numpy forward passes over the file itself."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from numpy.lib.stride_tricks import sliding_window_view
from parametrize import some
from safetensors import safe_open
from safetensors.numpy import load_file
from scipy.special import erf

from mvcl.models import (
    HEADS,
    MLP,
    ConvNet,
    EegConv,
    MLPHead,
    ResNet,
    Transformer,
    ViT,
    _convolutional,
    eval_view,
    export,
    load_weights,
)


class Tensors(dict):
    """The tensors of a file in float64, which remembers the names that were read."""

    def __init__(self, path):
        super().__init__({name: value.astype(np.float64) for name, value in load_file(path).items()})
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)

    def check(self, metadata, config):
        """That all were read by the reference, except the counts of batches, one of each batch norm."""
        counts = {name for name in self if name.endswith("num_batches_tracked")}
        norms = {name for name in self if name.endswith("running_mean")}
        assert {name.replace("num_batches_tracked", "running_mean") for name in counts} == norms
        assert set(self) - self.read == counts
        assert metadata["format"] == "pt"
        assert metadata["names"] == {ResNet: "torchvision", ViT: "timm"}.get(type(config), "mvcl")
        assert metadata["config"] == json.dumps(dataclasses.asdict(config))


# Forward passes in numpy, float64, NCHW, over the exported dictionary, by torchvision's and timm's names


def conv(x, weight, stride=1, padding=0):
    """Of images (n, c, height, width) or of sequences (n, c, time)."""
    axes = tuple(range(2, x.ndim))
    x = np.pad(x, [(0, 0)] * 2 + [(padding, padding)] * len(axes))
    windows = sliding_window_view(x, weight.shape[2:], axis=axes)
    windows = windows[(slice(None),) * 2 + (slice(None, None, stride),) * len(axes)]
    taps = tuple(range(-len(axes), 0))
    return np.moveaxis(np.tensordot(windows, weight, ((1, *taps), (1, *taps))), -1, 1)


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


def resnet_features(t, x, config, train):
    blocks = _convolutional._BLOCKS[config.depth]
    if config.stem == "imagenet":
        x = relu(batch_norm(conv(x, t["conv1.weight"], 2, 3), t, "bn1", train))
        padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        x = sliding_window_view(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2].max((-1, -2))
    else:
        x = relu(batch_norm(conv(x, t["conv1.weight"], 1, 1), t, "bn1", train))
    for stage, count in enumerate(blocks, start=1):
        for index in range(count):
            b, stride = f"layer{stage}.{index}", 2 if stage > 1 and index == 0 else 1
            weights = [t[f"{b}.conv{i}.weight"] for i in (1, 2, 3) if f"{b}.conv{i}.weight" in t]
            strided = 2 if config.depth == 50 else 1  # v1.5: the 3x3, which is a bottleneck's second
            h = x
            for i, weight in enumerate(weights, start=1):
                h = conv(h, weight, stride if i == strided else 1, weight.shape[2] // 2)
                h = batch_norm(h, t, f"{b}.bn{i}", train)
                h = relu(h) if i < len(weights) else h
            if f"{b}.downsample.0.weight" in t:
                x = batch_norm(conv(x, t[f"{b}.downsample.0.weight"], stride), t, f"{b}.downsample.1", train)
            x = relu(x + h)
    return x.mean((2, 3))


def vit_features(t, x, config, _):
    weight = t["patch_embed.proj.weight"]
    patches = conv(x, weight, weight.shape[-1]) + t["patch_embed.proj.bias"][:, None, None]
    x = patches.reshape(*patches.shape[:2], -1).transpose(0, 2, 1)
    x = np.concatenate([np.repeat(t["cls_token"], len(x), 0), x], 1) + t["pos_embed"]
    return transformer_features(t, x, heads=config.heads)


def transformer_features(t, x, *, heads):
    """The normalised first token after two pre-norm blocks."""

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]

    def layer_norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return unit * t[f"{name}.weight"] + t[f"{name}.bias"]

    for index in range(2):
        b = f"blocks.{index}"
        qkv = linear(layer_norm(x, f"{b}.norm1"), f"{b}.attn.qkv")
        # (n, head, token, :)
        q, k, v = (np.stack(np.split(part, heads, -1), 1) for part in np.split(qkv, 3, -1))
        scores = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]))
        mixed = scores / scores.sum(-1, keepdims=True) @ v
        x = x + linear(np.concatenate(list(mixed.swapaxes(0, 1)), -1), f"{b}.attn.proj")
        h = linear(layer_norm(x, f"{b}.norm2"), f"{b}.mlp.fc1")
        x = x + linear(gelu(h), f"{b}.mlp.fc2")
    return layer_norm(x, "norm")[:, 0]


def eeg_features(t, x, config, _):
    """In the order of the released code."""
    h = x[:, None]
    for index, size in enumerate((3, 2, 2, 2, 2, 2)):
        names = ("conv.weight", "conv.bias", "norm.weight", "norm.bias")
        weight, bias, scale, shift = (t[f"blocks.{index}.{name}"] for name in names)
        h = conv(h, weight, size, size // 2) + bias[:, None]
        pairs = h.reshape(len(h), -1, 2 * h.shape[2])  # group norm with two maps a group
        deviations = np.sqrt(pairs.var(2, keepdims=True) + 1e-5)
        h = ((pairs - pairs.mean(2, keepdims=True)) / deviations).reshape(h.shape)
        h = gelu(h * scale[:, None] + shift[:, None])
    h = np.einsum("nct,dc->ndt", h, t["readout.weight"]) + t["readout.bias"][:, None]
    length, stretches = h.shape[2], config.stretches
    bounds = [(i * length // stretches, -(-(i + 1) * length // stretches)) for i in range(stretches)]
    return np.concatenate([h[:, :, a:b].mean(2) for a, b in bounds], axis=1)


def convnet_features(t, x, config, train):
    for index in range(3):
        x = conv(x, t[f"convs.{index}.weight"], 1 if index == 0 else 2, 1)
        x = relu(batch_norm(x, t, f"norms.{index}", train))
    return x.mean((2, 3))


def mlp_features(t, x, config, train):
    x = x.reshape(len(x), -1)
    for index in range(3):
        x = x @ t[f"linears.{index}.weight"].T
        if index == 2 or config.norm == "none":
            x = x + t[f"linears.{index}.bias"]
        if index < 2:
            x = relu(batch_norm(x, t, f"norms.{index}", train)) if config.norm == "batch" else gelu(x)
    return x


def new(config, shape, rng, tmp_path):
    """A network of random numbers, its exported tensors, which another network has loaded, and their metadata."""
    module, other = (config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(seed)) for seed in (0, 1))
    # every scale, shift, bias and statistic is random too, so that no default value hides an error
    for path, variable in nnx.to_flat_state(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat))):
        noise = rng.normal(size=variable.shape)
        if path[-1] in ("scale", "var"):
            variable[...] = jnp.asarray(rng.uniform(0.5, 1.5, size=variable.shape), jnp.float32)
        elif path[-1] in ("bias", "mean", "cls_token", "pos_embed"):
            variable[...] = jnp.asarray(0.3 * noise, jnp.float32)
        elif variable.ndim == 2:  # kernels of 0.02 would hide the attention
            variable[...] = jnp.asarray(noise / np.sqrt(variable.shape[0]), jnp.float32)
    path = tmp_path / "encoder.safetensors"
    export(module, config, path)
    load_weights(other, path)
    states = (nnx.state(of, nnx.Any(nnx.Param, nnx.BatchStat)) for of in (other, module))
    jax.tree.map(np.testing.assert_array_equal, *states)
    with safe_open(path, "numpy") as file:
        return module, Tensors(path), file.metadata()


def same(ours, reference):
    """To 1e-4 of the reference's largest entry."""
    reference = np.asarray(reference)
    np.testing.assert_allclose(np.asarray(ours), reference, rtol=0, atol=1e-4 * np.abs(reference).max())


def forward(module, x, train=True):
    graph, state = nnx.split(module if train else eval_view(module))
    return jax.jit(lambda state, x: nnx.merge(graph, state)(x))(state, x)


RESNET, CONVNET = ResNet(18, stem="cifar", width=4), ConvNet((8, 16, 24))
PERCEPTRON = MLP((16, 12, 6), norm="batch")
# Config, shape of an input, whether it is in training
FORWARDS = [
    (RESNET, (16, 16, 3), True),
    (ViT(patch=4, width=24, depth=2, heads=3), (12, 8, 3), True),
    (EegConv(channels=6, out=4, stretches=3), (257,), False),
    (CONVNET, (9, 8, 2), True),
    (MLP((16, 12, 6), activation="gelu"), (3, 4), True),
    (PERCEPTRON, (3, 4), True),
    (PERCEPTRON, (3, 4), False),
    (RESNET, (16, 16, 3), False),
    (ResNet(50, width=4), (64, 64, 3), True),
    (ViT(patch=4, width=24, depth=2, heads=3, positions="sincos"), (12, 8, 3), True),
    (EegConv(channels=6, out=4, stretches=1), (300,), False),
]
REFERENCES = {ResNet: resnet_features, ViT: vit_features, EegConv: eeg_features}
REFERENCES |= {ConvNet: convnet_features, MLP: mlp_features}


@pytest.mark.parametrize("case", some(FORWARDS, fast=FORWARDS[:7]))
def test_features_are_those_of_the_file(case, tmp_path, rng, monkeypatch):
    """By torchvision's, timm's and the released networks' passes over the exported tensors."""
    monkeypatch.setitem(_convolutional._BLOCKS, 18, (2, 1, 1, 1))  # two blocks in the first stage alone
    config, shape, train = case
    module, tensors, metadata = new(config, shape, rng, tmp_path)
    x = rng.normal(size=(6, *shape)).astype(np.float32)
    channels_first = np.moveaxis(x, -1, 1) if len(shape) == 3 else x
    found = forward(module, x, train)
    assert found.shape == (6, module.features)
    same(found, REFERENCES[type(config)](tensors, channels_first, config, train))
    tensors.check(metadata, config)
    if isinstance(config, EegConv):
        assert jax.eval_shape(eval_view(module), x[..., None]).shape == found.shape


def test_transformer_ignores_padding(tmp_path, rng):
    config = Transformer(width=8, depth=2, heads=2, dropout=0.5)
    module, t, _ = new(config, (7, 3), rng, tmp_path)
    x, lengths = rng.normal(size=(4, 7, 3)).astype(np.float32), (7, 4, 1, 0)
    for row, length in zip(x, lengths):
        row[length:] = np.nan
    x[1, 5] = 1.0  # a valid row in the padding: position 5, between two invalid ones
    x[1, 6, :2] = 0.5  # one NaN makes the whole row padding
    found, expected = forward(module, x, train=False), []
    for row, length in zip(x, lengths):
        tokens = row[:length] @ t["embed.weight"].T + t["embed.bias"] + t["pos_embed"][0, :length]
        tokens = np.concatenate([t["cls_token"][0], tokens])
        expected.append(transformer_features(t, tokens[None], heads=2)[0])
    for i in (0, 2, 3):
        same(found[i], expected[i])
    assert float(jnp.abs(found[1] - expected[1]).max()) > 1e-3
    x[1, 5] = np.nan
    same(forward(module, x, train=False)[1], expected[1])


def unit(x):
    return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)


def layer(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)


# A new head: scales are 1, shifts and biases 0. w: the linear layers' kernels.
@pytest.mark.parametrize(
    ("config", "by_hand"),
    [
        (HEADS["koromilas"](), lambda x, w: unit(relu(unit(x @ w[0])) @ w[1])),
        (dataclasses.replace(HEADS["piran"](), hidden=24, out=8), lambda x, w: gelu(layer(x @ w[0])) @ w[1]),
        (HEADS["moco_v2"](), lambda x, w: relu(x @ w[0]) @ w[1]),
        (
            MLPHead(layers=3, hidden=24, out=8, norm="batch", output_norm="batch_plain"),
            lambda x, w: unit(relu(unit(relu(unit(x @ w[0])) @ w[1])) @ w[2]),
        ),
        (MLPHead(hidden=24, out=8, norm="batch"), lambda x, w: relu(unit(x @ w[0])) @ w[1]),
        (MLPHead(layers=1, out=8), lambda x, w: x @ w[0]),
        (HEADS["none"](), lambda x, w: x),
    ],
)
def test_forward_by_hand(config, by_hand, rng):
    x = rng.normal(size=(32, 16)).astype(np.float32)

    @jax.jit
    def run(x):
        module = config.build(16, dtype=jnp.float32, rngs=nnx.Rngs(0))
        return module(x), [linear.kernel[...] for linear in module.linears]

    found, kernels = run(x)
    expected = by_hand(x.astype(np.float64), [np.float64(kernel) for kernel in kernels])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())
