"""benchmarks.reproduce accepts CIFAR-10 only, the data that it names."""

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import reproduce
from mvcl import data


def splits(shape=(32, 32, 3), classes=10, train=5_000, test=1_000):
    spec = data.ExampleSpec((shape,))
    labels = {"train": np.repeat(np.arange(classes), train), "test": np.repeat(np.arange(classes), test)}
    return {name: data.Split(of_split, (), spec, lambda row, epoch: ()) for name, of_split in labels.items()}


def test_cifar10_is_accepted():
    reproduce.check_cifar10(splits())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"shape": (28, 28, 1)}, r"5,000 train images .* got 50,000 of \(28, 28, 1\) in 10 classes"),
        (
            {"classes": 100, "train": 500, "test": 100},
            r"5,000 train .* in 100 classes of 500 to 500",
        ),  # CIFAR-100
        ({"test": 2_000}, r"1,000 test images .* got 20,000 .* classes of 2,000 to 2,000"),
    ],
)
def test_other_data_are_refused(other, message):
    with pytest.raises(ValueError, match=rf"--data must be CIFAR-10, {message}"):
        reproduce.check_cifar10(splits(**other))


def test_data_are_checked_though_their_part_is_there(tmp_path, monkeypatch):
    (tmp_path / "part_2_1.npz").write_bytes(b"of CIFAR-10")
    monkeypatch.setattr(data, "Arrays", lambda path: SimpleNamespace(open=lambda: splits(shape=(8, 8, 1))))
    with pytest.raises(ValueError, match="--data must be CIFAR-10"):
        reproduce.part_of(tmp_path / "other.npz", tmp_path, 2, 1)
