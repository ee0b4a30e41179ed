"""Synthetic data: shapes, determinism, a signal that probes find, all evaluations."""

import dataclasses
import itertools

import numpy as np
import pytest

from mvcl.data import Synthetic

OPTIONS = {
    "images": Synthetic(image_size=12, channels=1),
    "sizes": Synthetic(image_size=12, sizes="different"),
    "views": Synthetic(view_shapes=((5,), (7, 3)), padded=True, missing=0.4, groups=6),
    "numbers": Synthetic(view_shapes=((20,), (4,)), regression=True, examples=200),
    "domains": Synthetic(domains=("a", "b", "c"), sizes="different"),
    "transfer": Synthetic(view_shapes=((30,), (30,)), transfer=True),
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_same_options_give_the_same_examples_of_the_stated_shapes(kind):
    one, two = OPTIONS[kind].open(), OPTIONS[kind].open()
    assert one.keys() == two.keys()
    for name, split in one.items():
        assert split.labels.shape == (len(split),)
        for row, epoch in itertools.product(range(0, len(split), 7), (0, 3)):
            both = split.read(row, epoch), two[name].read(row, epoch)
            for array, again, shape in zip(*both, split.spec.shapes, strict=True):
                np.testing.assert_array_equal(array, again)
                assert all(size in (None, found) for size, found in zip(shape, array.shape, strict=True))
    # another seed gives other examples
    other = dataclasses.replace(OPTIONS[kind], seed=1).open()["train"]
    assert not np.array_equal(other.read(0, 0)[0], one["train"].read(0, 0)[0])


def test_missing_views_padding_and_groups():
    splits = OPTIONS["views"].open()
    train = splits["train"]
    assert train.present.any(axis=1).all()
    assert 0.1 < 1 - train.present.mean() < 0.4
    table, sequence = train.arrays
    np.testing.assert_array_equal(np.isnan(table).all(axis=1), ~train.present[:, 0])
    padding = np.isnan(sequence)
    assert (padding == padding.all(axis=2, keepdims=True)).all()  # whole rows
    assert (np.diff(padding.all(axis=2).astype(int), axis=1) >= 0).all()  # at the end
    assert not set(train.groups) & set(splits["test"].groups)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examples": 1}, "data.examples must be at least 2, got 1"),
        ({"channels": 2}, "data.channels must be 1 or 3, got 2"),
        ({"missing": 1.0}, r"data.missing must be in \[0, 1\), got 1.0"),
        ({"missing": 0.5}, "data.padded and data.missing need data.view_shapes"),
        ({"domains": ("a", "b")}, "data.domains must be at least 3 names"),
    ],
)
def test_raises_on_options_out_of_range(options, message):
    with pytest.raises(ValueError, match=message):
        Synthetic(**options).open()
