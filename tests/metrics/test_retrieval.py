"""Recall against loops over cosines and over determinants of Gram matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl.metrics import _retrieval, recall_at, volume_recall_at


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def by_hand(queries, keys, ks):
    n, hits = len(queries), np.zeros(len(ks))
    for i in range(n):
        cosine = [unit(queries[i]) @ unit(keys[j]) for j in range(n)]
        rank = sum(cosine[j] >= cosine[i] for j in range(n) if j != i)
        hits += [rank < k for k in ks]
    return hits / n


def volume_by_hand(others, keys, ks):
    n, hits = len(keys), np.zeros(len(ks))
    for i in range(n):
        volumes = []
        for j in range(n):
            a = np.stack([*(unit(view[i]) for view in others), unit(keys[j])])
            volumes.append(np.sqrt(max(np.linalg.det(a @ a.T), 0)))
        rank = sum(volumes[j] <= volumes[i] for j in range(n) if j != i)
        hits += [rank < k for k in ks]
    return hits / n


@pytest.fixture(params=[None, 100], ids=["one block", "blocks"])
def blocks(request, monkeypatch):
    """Blocks of one or two rows, the last one not full; programs are compiled again."""
    if request.param is not None:
        monkeypatch.setattr(_retrieval, "_CELLS", request.param)
    jax.clear_caches()
    yield
    jax.clear_caches()


@pytest.mark.parametrize(("n", "d"), [(43, 5), (37, 2)])
def test_equals_the_loop(x64, rng, blocks, n, d):
    ks = (1, 3, 10, n - 1)
    keys = rng.normal(size=(n, d))
    queries = keys + 0.4 * rng.normal(size=(n, d))
    expected = by_hand(queries, keys, ks)
    np.testing.assert_allclose(recall_at(queries, keys, ks), expected, rtol=1e-14)
    assert 0 < expected[0] < expected[2] <= expected[3]
    assert recall_at(keys, queries, ks).tolist() != expected.tolist()  # the two directions differ


@pytest.mark.parametrize("others", [1, 2, 4])
def test_volume_equals_the_loop(x64, rng, blocks, others):
    ks, n = (1, 2, 5), 31
    views = rng.normal(size=(others + 1, n, 6))
    views = views[-1] + 0.8 * views * np.exp(rng.normal(size=(others + 1, n, 1)))
    expected = volume_by_hand(views[:-1], views[-1], ks)
    np.testing.assert_allclose(volume_recall_at(views[:-1], views[-1], ks), expected, rtol=1e-14)
    assert 0 < expected[0] < 1


def test_volume_of_one_other_is_the_order_by_absolute_cosine(rng):
    x, y = rng.normal(size=(2, 50, 4)).astype(np.float32)
    cosine = np.abs(unit(x) @ unit(y).T)
    expected = np.mean((cosine > np.diag(cosine)[:, None]).sum(1) < 5)
    np.testing.assert_allclose(volume_recall_at(x[None], y, (5,)), [expected])
    np.testing.assert_array_equal(volume_recall_at(-x[None], y), volume_recall_at(x[None], y))


def test_dependent_others_span_fewer_dimensions(rng):
    """A repeated view, a zero view and a sum of two add nothing to the span."""
    a, b, keys = rng.normal(size=(3, 60, 8)).astype(np.float32)
    a, b = keys + a, keys + b
    expected = volume_recall_at(np.stack([a, b]), keys)
    assert 0 < expected[0] < 1
    for more in (a, 0 * a, -3 * b, a + b):
        np.testing.assert_array_equal(volume_recall_at(np.stack([a, b, more]), keys), expected)


@pytest.mark.parametrize("d", [1, 3, 64, 515])
@pytest.mark.parametrize("n", [2, 37, 130])
def test_coinciding_vectors_tie(rng, n, d):
    """Products of equal vectors may differ by rounding with their place in the matrix."""
    same = np.broadcast_to(rng.normal(size=d), (n, d)).astype(np.float32)
    expected = [0, 0, 1, 1]
    np.testing.assert_array_equal(recall_at(same, same, (1, n - 1, n, 9 * n)), expected)
    np.testing.assert_array_equal(volume_recall_at(same[None], same, (1, n - 1, n, 9 * n)), expected)
    half = jnp.asarray(same, jnp.bfloat16)
    np.testing.assert_array_equal(recall_at(half, half, (1, n)), [0, 1])


def test_copies_of_keys_rank_before_them(rng):
    """Each key occurs three times at different lengths, so that two others always rank before the own one."""
    once = rng.normal(size=(20, 9)).astype(np.float32)
    keys = np.concatenate([once, np.float32(2) * once, np.float32(0.3) * once])
    np.testing.assert_array_equal(recall_at(keys, keys, (1, 2, 3)), [0, 0, 1])


def test_zero_vectors_and_lengths(rng):
    keys = rng.normal(size=(12, 5)).astype(np.float32)
    queries = keys.copy()
    queries[3] = 0  # cosine 0 with all
    np.testing.assert_allclose(recall_at(queries, keys, (1, 11, 12)), [11 / 12, 11 / 12, 1])
    assert recall_at(np.eye(4, dtype=np.float32), np.float32(1e30) * np.eye(4, dtype=np.float32), (1,)) == 1
    np.testing.assert_array_equal(
        recall_at(np.eye(4, dtype=np.float32), -np.eye(4, dtype=np.float32), (3, 4)), [0, 1]
    )
    zero = np.zeros((5, 2), np.float32)
    np.testing.assert_array_equal(recall_at(zero, zero, (4, 5)), [0, 1])
    np.testing.assert_array_equal(volume_recall_at(zero[None], zero, (4, 5)), [0, 1])
    assert recall_at(zero[:1], zero[:1]).tolist() == [1, 1, 1]


def test_independent_vectors_are_at_chance(rng):
    x, y = rng.normal(size=(2, 400, 16)).astype(np.float32)
    found = recall_at(x, y, (20, 200))
    np.testing.assert_allclose(found, [0.05, 0.5], atol=0.08)  # 3 standard deviations of a share of 400 rows


def test_half_precision_is_widened(rng):
    x = jnp.asarray(rng.normal(size=(50, 6)), jnp.bfloat16)
    y = jnp.asarray(np.asarray(x, np.float32) + 0.3 * rng.normal(size=(50, 6)), jnp.bfloat16)
    wide = np.asarray(x, np.float64), np.asarray(y, np.float64)
    np.testing.assert_allclose(recall_at(x, y), by_hand(*wide, (1, 5, 10)), rtol=1e-6)
    found = volume_recall_at(jnp.stack([x, y]), x, (1, 5))
    assert found.dtype == jnp.float32


def test_memory_does_not_grow_with_the_square_of_the_rows():
    def extra(n):
        x = jax.ShapeDtypeStruct((n, 8), jnp.float32)
        return _retrieval._cosine_ranks.lower(x, x).compile().memory_analysis().temp_size_in_bytes

    assert extra(40_000) < 2 * extra(20_000)
    assert extra(40_000) < 40_000**2  # bytes; a matrix has four times as many


def test_nan_is_a_value_error_and_no_hit_under_jit(rng):
    x = rng.normal(size=(6, 3)).astype(np.float32)
    bad = x.copy()
    bad[2, 1] = np.nan
    jitted = jax.jit(lambda q, z: recall_at(q, z, (1,)))
    for of_queries, of_keys, name in ((bad, x, "queries"), (x, bad, "keys")):
        with pytest.raises(ValueError, match=f"{name} must be finite, got 1 entries"):
            recall_at(of_queries, of_keys)
        assert jitted(of_queries, of_keys) < 0.9
    with pytest.raises(ValueError, match="others must be finite"):
        volume_recall_at(bad[None], x)
    assert jitted(x, x) == 1


def test_bad_input():
    x = np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match=r"keys must have the shape of queries, \(4, 3\), got \(3, 3\)"):
        recall_at(x, x[:3])
    with pytest.raises(ValueError, match=r"queries must have shape \(n, d\), got \(3,\)"):
        recall_at(x[0], x)
    with pytest.raises(ValueError, match="keys must have the dtype of queries, float32, got bfloat16"):
        recall_at(x, jnp.asarray(x, jnp.bfloat16))
    with pytest.raises(ValueError, match="ks must be whole numbers >= 1, at least one, got none"):
        recall_at(x, x, ())
    for ks in ((0,), (1.5,), (True,)):
        with pytest.raises(ValueError, match="ks must be a whole number >= 1, got"):
            recall_at(x, x, ks)
    with pytest.raises(ValueError, match=r"others must have shape \(k, n, d\), got \(4, 3\)"):
        volume_recall_at(x, x)
    with pytest.raises(
        ValueError, match=r"keys must have the shape of each of others, \(4, 3\), got \(3, 3\)"
    ):
        volume_recall_at(x[None], x[:3])
