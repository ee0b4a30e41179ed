"""Batches: their order, corrupt examples, stalled readers; checks of splits, and the source in the documentation."""

import dataclasses
import itertools
import threading
import time

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mvcl import data

N, B = 24, 6
IMAGE = data.ExampleSpec(((2, 2, 1),))


def split(bad=()):
    """24 constant images, one value each; some cannot be read."""

    def read(row, epoch):
        if row in bad:
            raise data.CorruptExample(f"image {row}.png cannot be decoded")
        return (np.full((2, 2, 1), row, np.uint8),)

    labels, classes = np.arange(N, dtype=np.int32), tuple(map(str, range(N)))
    return data.Split(labels, classes, IMAGE, read, name=lambda row: f"{row}.png")


def take(steps, bad=(), limit=10, first_step=0, processes=1, threads=1, reading=None):
    """Global batches: rows, images and labels, concatenated over all processes."""
    options = {"batch_size": B, "seed": 3, "first_step": first_step, "threads": threads}
    streams, found = [], []
    for rank in range(processes):
        own = {"process_index": rank, "reading": reading or data.Reading(limit)}
        streams.append(data.batches(split(bad), process_count=processes, **own, **options))
    for parts in itertools.islice(zip(*streams), steps):
        whole = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        np.testing.assert_array_equal(whole["images"][:, 0, 0, 0], whole["index"])
        np.testing.assert_array_equal(whole["labels"], whole["index"])
        found.append(whole["index"])
    return np.asarray(found)


def test_corrupt_examples_do_not_move_the_others():
    sound, damaged = take(8), take(8, bad=(5, 11))
    there = ~np.isin(sound, (5, 11))
    np.testing.assert_array_equal(damaged[there], sound[there])
    assert not np.isin(damaged, (5, 11)).any()
    assert all(len(set(batch)) == B for batch in damaged)
    assert (~there).sum() == 4  # two epochs, both in them


@pytest.mark.parametrize(("first_step", "processes", "threads"), [(0, 2, 1), (0, 3, 4), (5, 1, 1)])
def test_batches_do_not_depend_on_processes_and_resume(first_step, processes, threads):
    bad = tuple(range(0, N, 2))
    found = take(8 - first_step, bad, 12, first_step=first_step, processes=processes, threads=threads)
    np.testing.assert_array_equal(found, take(8, bad, 12)[first_step:])
    assert (found % 2 == 1).all()


def test_limit_counts_each_example_once_and_names_the_last(capfd):
    reading = data.Reading(2)
    take(12, (5, 11), reading=reading)  # three epochs
    assert capfd.readouterr().err.count("skipped a corrupt example") == 2
    message = r"cannot be decoded; this is corrupt example 3, and --train.corrupt-limit is 2"
    with pytest.raises(data.CorruptExample, match=message):
        take(12, (5, 11, 13), limit=2)
    with pytest.raises(data.CorruptExample, match=r"corrupt example 1, and --train\.corrupt-limit is 0"):
        take(12, (5,), limit=0)
    take(4, (5, 11), reading=data.Reading(2, passed=reading.passed))  # a resumed run goes on counting
    with pytest.raises(data.CorruptExample, match="corrupt example 3"):
        take(4, (5, 11, 13), reading=data.Reading(2, passed=reading.passed))


def test_a_stalled_reader_raises_naming_the_example():
    gate = threading.Event()

    def read(row, epoch):
        if row == 4:
            gate.wait(20)
        return (np.zeros((2, 2, 1), np.uint8),)

    stuck = data.Split(np.zeros(N, np.int32), ("a",), IMAGE, read, name=lambda row: f"image {row}.png")
    reading = data.Reading()
    stream = data.watched(data.batches(stuck, batch_size=B, seed=0, threads=1, reading=reading), 0.3, reading)
    begun = time.monotonic()
    message = r"no batch for 0.3 s \(--train.stall-seconds\): image 4.png has been read for 0 s"
    with pytest.raises(RuntimeError, match=message):
        list(itertools.islice(stream, N // B + 1))
    assert time.monotonic() - begun < 10
    gate.set()


@pytest.mark.parametrize("world", [1, 2])
def test_in_order_gives_every_readable_example_once(world):
    """Two processes have equally many batches and together the rows of one; corrupt ones are skipped and counted."""
    options = {"batch_size": 10, "process_count": world}
    shares = [
        list(data.in_order(split((2, 9)), "test", process_index=rank, reading=data.Reading(2), **options))
        for rank in range(world)
    ]
    assert {len(share) for share in shares} == {3}
    rows = [int(row) for step in zip(*shares) for batch in step for row in batch["index"]]
    assert rows == sorted(set(range(N)) - {2, 9})
    for batch in itertools.chain(*shares):
        assert batch["inputs"].shape == (len(batch["index"]), 2, 2, 1)
        np.testing.assert_array_equal(batch["inputs"][:, 0, 0, 0], batch["index"])
    message = r"image 9.png cannot be decoded; this is corrupt example 2"
    with pytest.raises(data.CorruptExample, match=message):
        list(data.in_order(split((2, 9)), "test", batch_size=4, reading=data.Reading(1)))


def test_two_batches_are_on_the_devices_before_they_are_asked_for():
    """While a step runs, the thread of the reader places the next; here the step waits for that."""
    third = threading.Event()

    def host():
        for i in range(9):
            if i == 3:
                third.set()  # asks for the fourth when batches 1 and 2 have been placed
            yield {"x": np.full(4, i)}

    placed = data.to_devices(host(), jax.sharding.SingleDeviceSharding(jax.devices()[0]))
    stream = data.watched(placed, 0, data.Reading(), ahead=3)
    assert next(stream)["x"].tolist() == [0] * 4
    assert third.wait(20)
    assert [batch["x"].tolist() for batch in stream] == [[i] * 4 for i in range(1, 9)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((),), "at least one"),
        ((((3,), (4,)), ("a",), True), r"one name for each of shapes"),
        ((((None, 3),), (), True), "shapes of given views must be known"),
        ((((8, 8),),), r"shapes of images must be \(H, W, C\)"),
        ((((8, 8, None),),), r"shapes of images must be \(H, W, C\) with a known C"),
    ],
)
def test_raises_on_invalid_specs(arguments, message):
    with pytest.raises(ValueError, match=message):
        data.ExampleSpec(*arguments)


def first(stream, count):
    return list(itertools.islice(stream, count))


@pytest.fixture
def whole():
    images = np.arange(103, dtype=np.uint8)[:, None, None, None] * np.ones((1, 2, 2, 1), np.uint8)
    return data.in_memory((images,), np.zeros(103, np.int32), ("a",))


@pytest.mark.parametrize("last", [False, True])
def test_an_epoch_is_a_new_permutation(whole, last):
    whole = dataclasses.replace(whole, read=None)  # what is in memory is not read again
    options = {"batch_size": 20, "seed": 3, "last_batch": last}
    lengths = [20] * 5 + [3] * last
    count = data.epoch_steps(103, 20, last_batch=last)
    assert (count, data.epoch_steps(100, 20, last_batch=last)) == (len(lengths), 5)
    steps = first(data.batches(whole, **options), 2 * count)
    assert [len(batch["index"]) for batch in steps] == lengths * 2
    for epoch in (0, 1):
        part = steps[count * epoch :][:count]
        assert len(set(np.concatenate([b["index"] for b in part]).tolist())) == sum(lengths)
        assert {int(e) for b in part for e in b["epoch"]} == {epoch}
    assert not np.array_equal(steps[0]["index"], steps[count]["index"])
    for batch in steps:
        np.testing.assert_array_equal(batch["images"][:, 0, 0, 0], batch["index"])
    for a, b in zip(steps[count - 1 :], first(data.batches(whole, **options, first_step=count - 1), 2)):
        np.testing.assert_array_equal(a["index"], b["index"])


def test_raises_on_invalid_batches(whole):
    of_any_size = dataclasses.replace(whole, spec=data.ExampleSpec(((None, None, 3),)))
    for split, options, message in (
        (whole, {"batch_size": 20, "process_count": 3}, "multiple of 3 processes, got 20"),
        (whole, {"batch_size": 104}, "at most the 103 training examples, got 104"),
        (of_any_size, {"batch_size": 2}, "crop must be given"),
    ):
        with pytest.raises(ValueError, match=message):
            next(data.batches(split, seed=0, **options))
    with pytest.raises(ValueError, match="one row for each of 3 labels, got 3, 4"):
        data.in_memory((np.zeros((3, 2)), np.zeros((4, 2))), np.zeros(3), ("a",), given=True)


def test_batches_reach_all_devices_in_order(whole):
    sharding = NamedSharding(Mesh(np.asarray(jax.devices()[:4]), ("data",)), PartitionSpec("data"))
    host = first(data.batches(whole, batch_size=20, seed=0), 5)
    device = first(data.to_devices(iter(host), sharding), 5)
    for a, b in zip(host, device):
        np.testing.assert_array_equal(a["images"], b["images"])
        assert {s.data.shape for s in b["images"].addressable_shards} == {(5, 2, 2, 1)}
