"""The EEG network, the transformer over feature sequences, and the dropout of both."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from safetensors.numpy import load_file
from scipy.special import erf, softmax

from mvcl.models import (
    EegConv,
    Transformer,
    advance_dropout,
    eval_view,
    export,
    parameter_count,
)
from mvcl.models._sequences import Dropout, positions

EEG = EegConv(channels=6, out=4, dropout=0.5)
TEXT = Transformer(width=8, depth=2, heads=2, dropout=0.5)


def build(config, shape):
    return config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0))


@functools.partial(jax.jit, static_argnums=0)
def apply(graph, state, x):
    return nnx.merge(graph, state)(x)


def evaluate(module, x):
    return apply(*nnx.split(eval_view(module)), x)


def gelu(x):
    return x * (1 + erf(x / np.sqrt(2))) / 2


def eeg_by_hand(module, x, stretches):
    """Loops over positions and kernel taps, double precision, in the order of the released code."""
    h = x.astype(np.float64)[:, None, :]  # (n, channels, time) as in PyTorch
    for size, block in zip((3, 2, 2, 2, 2, 2), module.blocks, strict=True):
        kernel, bias = (np.asarray(v[...], np.float64) for v in (block.conv.kernel, block.conv.bias))
        padded = np.pad(h, ((0, 0), (0, 0), (size // 2, size // 2)))
        steps = (padded.shape[2] - size) // size + 1
        out = np.zeros((len(x), kernel.shape[2], steps))
        for step in range(steps):
            for tap in range(size):
                out[:, :, step] += padded[:, :, step * size + tap] @ kernel[tap]
        h = out + bias[:, None]
        for first in range(0, h.shape[1], 2):  # group norm with two maps a group
            pair = h[:, first : first + 2]
            mean, var = pair.mean((1, 2), keepdims=True), pair.var((1, 2), keepdims=True)
            h[:, first : first + 2] = (pair - mean) / np.sqrt(var + 1e-5)
        scale, shift = (np.asarray(v[...], np.float64)[:, None] for v in (block.norm.scale, block.norm.bias))
        h = gelu(h * scale + shift)
    h = np.einsum("nct,cd->ndt", h, np.asarray(module.readout.kernel[...], np.float64))
    h += np.asarray(module.readout.bias[...])[:, None]
    length = h.shape[2]
    bounds = [(i * length // stretches, -(-(i + 1) * length // stretches)) for i in range(stretches)]
    return np.concatenate([h[:, :, a:b].mean(2) for a, b in bounds], axis=1)


def randomised(module, rng):
    """Random scales and shifts of norms: a new module has ones and zeros."""
    for _, variable in nnx.to_flat_state(nnx.state(module, nnx.Param)):
        value = np.asarray(variable[...]) + 0.1 * rng.normal(size=variable.shape)
        variable[...] = jax.device_put(value.astype(np.float32))
    return module


@pytest.mark.parametrize(("time", "stretches"), [(300, 1), (257, 3)])
def test_eeg_equals_the_released_network(rng, time, stretches):
    config = EegConv(channels=6, out=4, stretches=stretches)
    module = randomised(build(config, (time,)), rng)
    x = rng.normal(size=(3, time)).astype(np.float32)
    expected = eeg_by_hand(module, x, stretches)
    found = evaluate(module, x)
    assert found.shape == (3, module.features) == expected.shape
    np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(evaluate(module, x[..., None]), found)


def test_eeg_sizes():
    # 3 + 1 taps to 256 maps, four times 2·256·256 + 256, then 2·256·64 + 64; norms; the read-out's 64·64 + 64
    count = 4 * 256 + 4 * (2 * 256 * 256 + 256) + 2 * 256 * 64 + 64 + 2 * (5 * 256 + 64) + 64 * 64 + 64
    module = nnx.eval_shape(lambda: build(EegConv(), (3000,)))
    assert parameter_count(module) == count == 566_016
    assert positions(3000) == 33  # the time_length of the released code
    assert module.features == 64


def text_by_hand(module, x):
    """One sequence without padding, by loops over heads."""
    p = lambda v: np.asarray(v[...], np.float64)  # noqa: E731
    linear = lambda m, v: v @ p(m.kernel) + p(m.bias)  # noqa: E731

    def norm(m, v):
        return (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-6) * p(m.scale) + p(
            m.bias
        )

    h = linear(module.embed, x) + p(module.pos_embed)[0, : len(x)]
    h = np.concatenate([p(module.cls_token)[0], h])
    for block in module.blocks:
        q, k, v = np.split(linear(block.attn.qkv, norm(block.norm1, h)), 3, axis=1)
        size = q.shape[1] // block.attn.heads
        heads = []
        for i in range(block.attn.heads):
            s = slice(i * size, (i + 1) * size)
            heads.append(softmax(q[:, s] @ k[:, s].T / np.sqrt(size), axis=1) @ v[:, s])
        h = h + linear(block.attn.proj, np.concatenate(heads, axis=1))
        h = h + linear(block.fc2, gelu(linear(block.fc1, norm(block.norm2, h))))
    return norm(module.norm, h[:1])[0]


def test_transformer_ignores_padding(rng):
    module = randomised(build(TEXT, (7, 3)), rng)
    x = rng.normal(size=(4, 7, 3)).astype(np.float32)
    lengths = (7, 4, 1, 0)
    for row, length in zip(x, lengths):
        row[length:] = np.nan
    x[1, 5] = 1.0  # a valid row in the padding: position 5, between two invalid ones
    x[1, 6, :2] = 0.5  # one NaN makes the whole row padding
    found = evaluate(module, x)
    expected = [text_by_hand(module, row[:length].astype(np.float64)) for row, length in zip(x, lengths)]
    for i in (0, 2, 3):
        np.testing.assert_allclose(found[i], expected[i], rtol=2e-4, atol=2e-5)
    assert float(jnp.abs(found[1] - expected[1]).max()) > 1e-3
    x[1, 5] = np.nan
    np.testing.assert_allclose(evaluate(module, x)[1], expected[1], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("config", "shape"), [(EEG, (64,)), (TEXT, (7, 3))])
def test_gradients_are_finite_with_missing_views(rng, config, shape):
    graph, params, rest = nnx.split(build(config, shape), nnx.Param, ...)
    x = rng.normal(size=(4, *shape)).astype(np.float32)
    x[0], x[1, 2] = np.nan, np.nan

    @jax.jit
    def gradient(params):
        return jax.grad(lambda p: jnp.sum(nnx.merge(graph, p, rest, copy=True)(x) ** 3))(params)

    for path, leaf in nnx.to_flat_state(gradient(params)):
        assert bool(jnp.isfinite(leaf[...]).all()), path


@pytest.mark.parametrize(("config", "shape"), [(EEG, (64,)), (TEXT, (7, 3))])
def test_dropout_is_a_function_of_the_statistics(rng, config, shape):
    graph, params, rest = nnx.split(build(config, shape), nnx.Param, ...)

    @jax.jit
    def step(rest, x):
        module = nnx.merge(graph, params, rest, copy=True)
        return module(x), nnx.state(module, nnx.Not(nnx.Param))

    x = rng.normal(size=(4, *shape)).astype(np.float32)
    first, after = step(rest, x)
    again, _ = step(rest, x)
    second, _ = step(after, x)
    np.testing.assert_array_equal(first, again)
    assert float(jnp.abs(first - second).max()) > 1e-3  # the next step has other masks
    module = nnx.merge(graph, params, rest, copy=True)
    advance_dropout(module)
    np.testing.assert_array_equal(step(nnx.state(module, nnx.Not(nnx.Param)), x)[0], second)
    leaves = jax.tree.leaves(rest)
    assert {(leaf.shape, leaf.dtype) for leaf in leaves} == {((), jnp.dtype("uint32"))}
    assert len({int(leaf) for leaf in leaves}) == len(leaves)  # all layers have different masks


def test_dropout_keeps_the_mean_and_drops_whole_maps():
    layer = Dropout(0.25, broadcast_dims=(1,), rngs=nnx.Rngs(3))
    out = np.asarray(layer(jnp.ones((40, 5, 100))))
    assert set(np.unique(out)) == {0, np.float32(1 / 0.75)}
    assert (out == out[:, :1]).all()
    # 4000 draws: the share of zeros deviates by sqrt(0.25·0.75/4000) = 0.007
    assert abs((out[:, 0] == 0).mean() - 0.25) < 4 * 0.007
    assert not nnx.state(Dropout(0.0, rngs=nnx.Rngs(3)))


def test_masks_do_not_depend_on_devices():
    layer = Dropout(0.5, rngs=nnx.Rngs(3))
    graph, state = nnx.split(layer)
    run = jax.jit(lambda state, x: nnx.merge(graph, state, copy=True)(x))
    x = np.ones((8, 6), np.float32)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    np.testing.assert_array_equal(
        run(state, jax.device_put(x, NamedSharding(mesh, PartitionSpec("data")))), run(state, x)
    )


def test_exports_eeg_weights_in_pytorch_layout(tmp_path):
    module = build(EEG, (64,))
    export(module, EEG, tmp_path / "eeg.safetensors")
    tensors = load_file(tmp_path / "eeg.safetensors")
    assert tensors["blocks.0.conv.weight"].shape == (6, 1, 3)  # (out, in, kernel)
    kernel = np.asarray(module.blocks[1].conv.kernel[...])
    np.testing.assert_array_equal(tensors["blocks.1.conv.weight"][4, 2], kernel[:, 2, 4])


@pytest.mark.parametrize(
    ("config", "shape", "message"),
    [
        (EegConv(), (3000, 2), r"input_shape of EegConv must be \(time,\) or \(time, 1\).* got \(3000, 2\)"),
        (EegConv(), (), r"input_shape of EegConv .* got \(\)"),
        (EegConv(channels=255), (3000,), r"channels must be even.* got 255"),
        (EegConv(dropout=1.0), (3000,), r"dropout must be in \[0, 1\); got 1.0"),
        (EegConv(stretches=4), (90,), r"stretches must be at most the 2 positions of 90 samples; got 4"),
        (Transformer(), (50,), r"input_shape of Transformer must be \(time, d\); got \(50,\)"),
        (Transformer(width=30), (50, 4), r"heads must divide width; got 4 heads for width 30"),
        (Transformer(dropout=-0.1), (50, 4), r"dropout must be in \[0, 1\); got -0.1"),
        (Transformer(depth=0), (50, 4), r"depth must be an integer of at least 1; got 0"),
    ],
)
def test_raises_on_bad_configs(config, shape, message):
    with pytest.raises(ValueError, match=message):
        config.build(shape, dtype=jnp.float32, rngs=nnx.Rngs(0))
