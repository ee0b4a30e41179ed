import itertools

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import data


@pytest.fixture
def split():
    images = np.arange(103, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    return data.in_memory((images,), np.zeros(103, np.int32), ("a",))


def take(stream, count):
    return list(itertools.islice(stream, count))


def test_an_epoch_is_a_new_permutation(split):
    steps = take(data.batches(split, batch_size=20, seed=3), 10)
    for epoch in (0, 1):
        index = np.concatenate([b["index"] for b in steps[5 * epoch : 5 * epoch + 5]])
        assert len(set(index.tolist())) == 100
        assert {int(e) for b in steps[5 * epoch : 5 * epoch + 5] for e in b["epoch"]} == {epoch}
    assert not np.array_equal(steps[0]["index"], steps[5]["index"])
    for batch in steps:
        np.testing.assert_array_equal(batch["images"][:, 0, 0, 0], batch["index"])


def test_the_last_batch_has_the_examples_that_are_left(split):
    steps = take(data.batches(split, batch_size=20, seed=3, last_batch=True), 12)
    assert [len(batch["index"]) for batch in steps] == [20, 20, 20, 20, 20, 3] * 2
    for epoch in (0, 1):
        part = steps[6 * epoch : 6 * epoch + 6]
        assert set(np.concatenate([b["index"] for b in part]).tolist()) == set(range(103))
        assert {int(e) for b in part for e in b["epoch"]} == {epoch}
    assert not np.array_equal(steps[0]["index"], steps[6]["index"])
    later = take(data.batches(split, batch_size=20, seed=3, last_batch=True, first_step=5), 2)
    for a, b in zip(steps[5:7], later):
        np.testing.assert_array_equal(a["index"], b["index"])
    assert data.epoch_steps(103, 20, last_batch=True) == 6
    assert data.epoch_steps(103, 20, last_batch=False) == data.epoch_steps(100, 20, last_batch=True) == 5


def test_crops_images_of_different_sizes_on_the_host(split):
    calls = []

    def crop(arrays, epoch, index):
        calls.append((epoch, index))
        (image,) = arrays
        return image, 255 - image[:1, :1]

    (batch,) = take(data.batches(split, batch_size=20, seed=0, threads=1, crop=crop), 1)
    assert [view.shape for view in batch["images"]] == [(20, 2, 2, 1), (20, 1, 1, 1)]
    np.testing.assert_array_equal(batch["images"][1], 255 - batch["images"][0][:, :1, :1])
    assert calls[:20] == [(0, int(i)) for i in batch["index"]]  # each example decoded once for its two views


def test_raises_on_invalid_batches(split):
    with pytest.raises(ValueError, match="multiple of 3 processes, got 20"):
        next(data.batches(split, batch_size=20, seed=0, process_count=3))
    with pytest.raises(ValueError, match="at most the 103 training examples, got 104"):
        next(data.batches(split, batch_size=104, seed=0))


def test_batches_reach_all_devices_in_order(split):
    sharding = NamedSharding(Mesh(np.asarray(jax.devices()[:4]), ("data",)), PartitionSpec("data"))
    host = take(data.batches(split, batch_size=20, seed=0), 5)
    device = take(data.to_devices(iter(host), sharding), 5)
    for a, b in zip(host, device):
        np.testing.assert_array_equal(a["images"], b["images"])
        assert {s.data.shape for s in b["images"].addressable_shards} == {(5, 2, 2, 1)}
