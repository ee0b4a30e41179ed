"""Features of a split against the function applied to all rows at once."""

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax.tree_util import Partial

from mvcl.evaluation import encode


def linear(weights, images):
    return images.reshape(len(images), -1) @ weights


def batches(images, index, size):
    for start in range(0, len(index), size):
        rows = index[start : start + size]
        yield {"inputs": images[rows], "index": rows, "epoch": np.zeros(len(rows), int)}


def mesh(**axes):
    return jax.make_mesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


@pytest.fixture
def split(rng):
    images = rng.normal(size=(23, 4, 4, 1)).astype(np.float32)
    return images, rng.permutation(23), rng.normal(size=(16, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("axes", "spec"),
    [(None, None), ({"data": 8}, "data"), ({"data": 2}, "data"), ({"data": 4, "fsdp": 2}, ("data", "fsdp"))],
)
def test_rows_are_in_index_order_on_any_mesh(split, axes, spec):
    images, order, weights = split
    sharding = None if axes is None else NamedSharding(mesh(**axes), PartitionSpec(spec))
    stream = batches(images, order, 8)
    features, index = encode(Partial(linear, weights), stream, batch_size=8, sharding=sharding)
    np.testing.assert_array_equal(index, np.arange(23))
    np.testing.assert_allclose(features, images.reshape(23, 16) @ weights, rtol=1e-5, atol=1e-5)
    assert features.dtype == np.float32


def test_devices_compute_only_their_rows(split):
    images, order, weights = split
    seen = []

    def noting(weights, images):
        jax.debug.inspect_array_sharding(images, callback=lambda s: seen.append(s.shard_shape(images.shape)))
        return linear(weights, images)

    sharding = NamedSharding(mesh(data=8), PartitionSpec("data"))
    encode(Partial(noting, weights), batches(images, order, 16), batch_size=16, sharding=sharding)
    assert set(seen) == {(2, 4, 4, 1)}


def test_compiles_once_for_all_batches_and_parameters(split):
    images, order, weights = split
    traces = []

    def counting(weights, images):
        traces.append(images.shape)
        return linear(weights, images)

    first, _ = encode(Partial(counting, weights), batches(images, order, 8), batch_size=8)
    second, _ = encode(Partial(counting, 2 * weights), batches(images, order, 8), batch_size=8)
    assert traces == [(8, 4, 4, 1)]
    np.testing.assert_allclose(second, 2 * first, rtol=1e-6)


def test_keeps_repeated_rows_once_and_accepts_part_of_a_split(split):
    images, _, weights = split
    stream = batches(images, np.array([7, 3, 9, 3, 7]), 2)
    features, index = encode(Partial(linear, weights), stream, batch_size=4)
    np.testing.assert_array_equal(index, [3, 7, 9])
    np.testing.assert_allclose(features, images[[3, 7, 9]].reshape(3, 16) @ weights, rtol=1e-5, atol=1e-5)


def test_bad_input(split):
    images, order, weights = split
    with pytest.raises(ValueError, match="at most 4 of batch_size=4, got 8 and 8"):
        encode(Partial(linear, weights), batches(images, order, 8), batch_size=4)
    with pytest.raises(ValueError, match=r"\(b, d\) features, got \(8, 4, 4, 1\)"):
        encode(lambda x: x, batches(images, order, 8), batch_size=8)
    with pytest.raises(ValueError, match="at least one batch"):
        encode(lambda x: x, [], batch_size=8)
    sharding = NamedSharding(mesh(data=8), PartitionSpec("data"))
    with pytest.raises(ValueError, match="batch_size must be a positive multiple of 8 devices, got 12"):
        encode(lambda x: x, batches(images, order, 8), batch_size=12, sharding=sharding)
