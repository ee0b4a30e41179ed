"""Attention: the formula, with masks, and the fused kernel where it is chosen."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax._src.cudnn import fused_attention_stablehlo as cudnn

from mvcl.models import Transformer, _remat, _vit


def case(rng, tokens, masked, dtype=jnp.float32):
    """Queries, keys, values, and a mask in which the first token is always there."""
    q, k, v = (jnp.asarray(rng.normal(size=(3, tokens, 2, 8)), dtype) for _ in range(3))
    there = np.concatenate([np.ones((3, 1), bool), rng.random((3, tokens - 1)) < 0.6], axis=1)
    return q, k, v, there if masked else None


def formula(q, k, v, there):
    """Of each head: softmax(q k' / sqrt(d)) v, over the tokens that are there."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    out = np.zeros_like(v)
    for i, t, h in np.ndindex(*q.shape[:3]):
        weights = np.exp(k[i, :, h] @ q[i, t, h] / np.sqrt(8)) * (1 if there is None else there[i])
        out[i, t, h] = weights @ v[i, :, h] / weights.sum()
    return out


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_attention_is_the_formula(fused, masked, rng, monkeypatch):
    """The arguments of the fused kernel are those of XLA's, which stands for it."""
    arrays, plain = case(rng, 5, masked), jax.nn.dot_product_attention
    monkeypatch.setattr(_vit, "_fused", lambda q: fused)
    attention = lambda *arrays, implementation, **which: plain(*arrays, **which)  # noqa: E731
    monkeypatch.setattr(jax.nn, "dot_product_attention", attention)
    expected = formula(*arrays)
    np.testing.assert_allclose(_vit.attend(*arrays), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(_vit.attend(*arrays, first=2), expected[:, :2], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("depth", [1, 2])
def test_the_summary_is_that_of_all_tokens(depth, rng, monkeypatch):
    """Values and gradients, though the last block computes one token."""
    config = Transformer(width=8, depth=depth, heads=2, dropout=0.0)
    net = config.build((5, 3), dtype=jnp.float32, rngs=nnx.Rngs(0))
    x = rng.normal(size=(4, 5, 3)).astype(np.float32)
    x[1, 3:] = np.nan
    graph, params = nnx.split(net)

    def both():
        return jax.value_and_grad(lambda params: (nnx.merge(graph, params)(x) ** 2)[:, ::2].sum())(params)

    found = both()
    monkeypatch.setattr(_vit, "_summary", lambda blocks, x, *there: _remat.in_turn(blocks, x, *there)[:, 0])
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found, both())


@pytest.mark.parametrize("masked", [False, True])
def test_a_gpu_gets_the_fused_kernel_both_ways(masked, rng, monkeypatch):
    """Lowered for a GPU that is not there: 197 tokens, as a ViT's of 224 pixels."""
    monkeypatch.setattr(_vit, "_fused", lambda q: True)
    monkeypatch.setattr(cudnn, "check_cudnn_version", lambda: 91_000)
    monkeypatch.setattr(cudnn, "check_compute_capability", lambda capability: True)
    *arrays, there = case(rng, 197, masked, jnp.bfloat16)

    total = lambda *arrays: _vit.attend(*arrays, there).sum().astype(jnp.float32)  # noqa: E731
    text = jax.jit(jax.grad(total, (0, 1, 2))).trace(*arrays).lower(lowering_platforms=("cuda",)).as_text()
    kernel = "fmhaScaleBiasSoftmax" if masked else "fmhaSoftmax"
    assert f"{kernel}(" in text
    assert f"{kernel}Backward(" in text
    assert masked == ("198x198" in text)  # a mask is of pairs of tokens, scores would be of each head


def test_the_fused_kernel_is_for_recent_gpus_and_half_precision(monkeypatch):
    def chosen(capability, dtype, numbers):
        device = type("Device", (), {"compute_capability": capability} if capability else {})()
        monkeypatch.setattr(jax, "devices", lambda: [device])
        return _vit._fused(jax.ShapeDtypeStruct((1, 4, 2, numbers), dtype))

    assert chosen("9.0", jnp.bfloat16, 64)
    assert chosen("8.0", jnp.bfloat16, 32)
    refused = [("7.5", jnp.bfloat16, 64), ("gfx90a", jnp.bfloat16, 64), (None, jnp.bfloat16, 64)]
    refused += [("9.0", jnp.float32, 64), ("9.0", jnp.bfloat16, 12), ("9.0", jnp.bfloat16, 192)]
    assert not any(chosen(*case) for case in refused)
