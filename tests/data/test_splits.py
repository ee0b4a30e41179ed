"""The source in the documentation, and checks of splits and specs."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from mvcl import data

DOCS = Path(__file__).parents[2] / "docs/how_to/data.md"


def test_the_documented_source_gives_batches(tmp_path):
    code = re.search(r"## A source of your own.*?```python\n(.*?)```", DOCS.read_text(), re.DOTALL)[1]
    namespace: dict = {"__name__": "documented"}
    exec(code, namespace)
    source = namespace["Sines"](examples=12)
    assert isinstance(source, data.Source)
    assert data.expected(source) is None
    train = source.open()["train"]
    assert (train.outline.spec.views, train.outline.examples, train.outline.classes) == (2, 12, 3)
    (batch,) = itertools.islice(data.batches(train, batch_size=6, seed=0), 1)
    np.testing.assert_array_equal(batch["views"][1], train.arrays[1][batch["index"]])
    np.testing.assert_array_equal(batch["labels"], batch["index"] % 3)


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


def test_raises_on_different_numbers_of_rows():
    with pytest.raises(ValueError, match="one row for each of 3 labels, got 3, 4"):
        data.in_memory((np.zeros((3, 2)), np.zeros((4, 2))), np.zeros(3), ("a",), given=True)


def test_raises_on_different_sizes_without_a_crop():
    spec = data.ExampleSpec(((None, None, 3),))
    split = data.Split(
        np.zeros(4, np.int32), ("a",), spec, lambda row, epoch: (np.zeros((2, 3, 3), np.uint8),)
    )
    with pytest.raises(ValueError, match="crop must be given"):
        next(data.batches(split, batch_size=2, seed=0))


@pytest.mark.parametrize("world", [1, 2])
def test_in_order_gives_every_readable_example_once(world, capfd):
    """Two processes have equally many batches and together the rows of one; corrupt ones are skipped and counted."""

    def read(row, epoch):
        if row in (2, 9):
            raise data.CorruptExample(f"row {row} is damaged")
        return (np.full(3, row, np.float32),)

    spec = data.ExampleSpec(((3,),), given=True)
    split = data.Split(np.arange(10, dtype=np.int32), (), spec, read)
    options = {"batch_size": 4, "process_count": world}
    shares = [
        list(data.in_order(split, "test", process_index=rank, reading=data.Reading(2), **options))
        for rank in range(world)
    ]
    assert {len(share) for share in shares} == {3}
    rows = [int(row) for step in zip(*shares) for batch in step for row in batch["index"]]
    assert sorted(rows) == [0, 1, 3, 4, 5, 6, 7, 8]
    for share in shares:
        for batch in share:
            np.testing.assert_array_equal(
                batch["inputs"]["views"][0], batch["index"][:, None] * np.ones((1, 3))
            )
            assert batch["inputs"]["views"][0].shape == (len(batch["index"]), 3)
    with pytest.raises(data.CorruptExample, match="row 9 is damaged; this is corrupt example 2"):
        list(data.in_order(split, "test", batch_size=4, reading=data.Reading(1)))
