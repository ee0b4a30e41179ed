"""The weights of SEM against loops and scikit-learn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from sklearn.metrics import normalized_mutual_info_score

from mvcl import losses


def test_cmi(rng):
    labels = rng.integers(4, size=(3, 50))
    expected = np.exp([[normalized_mutual_info_score(a, b) for b in labels] for a in labels]) - 1
    np.testing.assert_allclose(losses.cmi_weights(labels), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(losses.cmi_weights(labels[:2]), losses.cmi_weights(labels)[:2, :2])


def test_jsd(x64, rng):
    z = rng.normal(size=(3, 6, 4))
    p = np.exp(z) / np.exp(z).sum(-1, keepdims=True)
    jsd = [[np.mean([jensenshannon(u, v) ** 2 for u, v in zip(a, b)]) for b in p] for a in p]
    np.testing.assert_allclose(jax.jit(losses.jsd_weights)(z), np.exp(1 - np.array(jsd)) - 1, rtol=1e-10)


def mmd(a, b):
    pooled = np.concatenate([a, b])
    n = len(pooled)
    square = [[np.sum((u - v) ** 2) for v in pooled] for u in pooled]
    width = np.sum(square) / (n * (n - 1)) / 16
    kernel = sum(np.exp(-np.array(square) / (width * 4**i)) for i in range(4))
    h = len(a)
    return kernel[:h, :h].mean() + kernel[h:, h:].mean() - 2 * kernel[:h, h:].mean()


def test_mmd(x64, rng):
    z = rng.normal(size=(3, 7, 2)) + np.arange(3)[:, None, None]
    expected = np.exp([[-mmd(a, b) for b in z] for a in z])
    np.testing.assert_allclose(jax.jit(losses.mmd_weights)(z), expected, rtol=1e-10)
    expected = np.exp([[-mmd(a[:4], b[:4]) for b in z] for a in z])
    few = jax.jit(functools.partial(losses.mmd_weights, samples=4))
    np.testing.assert_allclose(few(z), expected, rtol=1e-10)
    np.testing.assert_allclose(few(np.ones((3, 7, 2))), 1, rtol=1e-6)


def test_weights_are_constants(rng):
    z = rng.normal(size=(2, 5, 3)).astype(np.float32)
    for weights in (losses.jsd_weights, losses.mmd_weights):
        assert not np.any(jax.jit(jax.grad(lambda z, w=weights: w(z).sum()))(z))


def test_corrupted_inputs(rng, monkeypatch):
    x = rng.normal(size=(400, 50)).astype(np.float32)
    key = jax.random.key(0)
    np.testing.assert_array_equal(losses.corrupted(key, x), x)
    noise = np.asarray(losses.corrupted(key, x, "noise")) - x
    np.testing.assert_allclose([noise.mean(), noise.std()], [0, 1], atol=0.02)
    masked = np.asarray(losses.corrupted(key, x, "masked"))
    assert np.sum(masked == 0) == int(0.3 * x.size)
    np.testing.assert_array_equal(masked[masked != 0], x[masked != 0])
    keys = jax.random.split(key, 400)
    often = np.mean(jax.vmap(lambda key: losses.corrupted(key, np.ones((3, 4)), "masked"))(keys) == 0, axis=0)
    np.testing.assert_allclose(often, 3 / 12, atol=0.08)  # 3.7 deviations
    with pytest.raises(ValueError, match=r"kind must be one of 'none', 'noise', 'masked', got 'x'"):
        losses.corrupted(key, x, "x")
    monkeypatch.setattr(
        jax.random, "bits", lambda key, shape: jnp.arange(np.prod(shape), dtype=jnp.uint32) // 9
    )
    equal = np.asarray(losses.corrupted(key, x, "masked"))  # nine entries of each random number
    assert np.flatnonzero(equal.ravel() == 0).tolist() == list(range(6000))
