"""The recipe of the small studies on images: part of CIFAR-10 at 12 pixels, a small ConvNet.

docs/how_to/bench.md has its cost and what it separates; the study `pilot` measures both.
"""

import dataclasses
import functools
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _rows
import numpy as np

from mvcl import _files, augment, evaluation, losses, methods, models, studies
from mvcl import data as sources
from mvcl.studies import Cell, Factors, Measure, Training, Values
from mvcl.training import AdamW, Checkpoint, Config, Train, Views

TRAIN, VALIDATION, SIDE, EPOCHS, BATCH = 10_000, 5_000, 12, 6, 128
RATES = (3e-3, 1e-2, 3e-2)  # learning rates that a cell chooses among, on validation images
OTHER_SEEDS = 1_000  # added to the seeds of runs on validation images
RECIPE = f"""\
The first {TRAIN:,} training images of CIFAR-10 and all 10,000 test images, views of {SIDE} x {SIDE} pixels by SimCLR's
policy at strength 0.5 without blur, a ConvNet of widths 16, 32 and 64 with BatchNorm, Koromilas 2025's head, AdamW with
cosine decay, {EPOCHS} epochs of batches of {BATCH}."""
ABOUT = f"""\
{RECIPE} Accuracy of frozen features of the encoder: weighted k-NN and a linear classifier, on the labels of the
{TRAIN:,} images.

With as many images, a row of 4 views takes twice the encoder passes of 2 in as many steps. "Gain" is the k-NN accuracy
at the end minus that after two thirds of training: how far from flat the curve is."""
GAIN = "k-NN, gain of the last third"
_ACCURACIES = (Measure("k-NN", percent=True), Measure("linear", percent=True))
MEASURES = (*_ACCURACIES, Measure(GAIN, percent=True, better=""))
NT_XENT = partial(losses.nt_xent, temperature=0.5)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Images:
    """The first training images of CIFAR-10, and its test images or further training images, for validation.

    Images are decoded once in a process, and held in memory.
    """

    path: str = ""
    """The .npz file, as `data:arrays` reads it: JPEG files or pixels, all images of both splits."""
    validation: bool = False
    """Test on the training images that follow, and not on the test images."""

    def open(self) -> dict[str, sources.Split]:
        """The splits `train` and `test`.

        Raises:
          ValueError: the file cannot be read, or holds other images.
        """
        return _opened(self.path, self.validation)


@functools.lru_cache(maxsize=2)
def _opened(path: str, validation: bool) -> dict[str, sources.Split]:
    first = (TRAIN + VALIDATION, 1) if validation else (TRAIN, 10_000)
    splits = sources.Arrays(path=path, first=first).open()
    arrays = _files.read_npz(Path(path))
    for name, each in (("train", 5_000), ("test", 1_000)):
        labels = arrays.get(f"{name}_labels", arrays.get(f"y_{name}", np.zeros(0, np.int64)))
        check_cifar10(name, splits[name].spec.shapes[0], labels.reshape(-1), each)
    if not validation:
        return splits
    whole = splits["train"]
    assert whole.arrays is not None
    parts = {"train": slice(TRAIN), "test": slice(TRAIN, None)}
    return {
        name: sources.in_memory((whole.arrays[0][rows],), whole.labels[rows], whole.class_names)
        for name, rows in parts.items()
    }


def check_cifar10(name: str, shape: tuple[int | None, ...], labels: np.ndarray, each: int) -> None:
    """Raise `ValueError` for a split of anything but CIFAR-10, which the published numbers are about.

    Args:
      name: of the split.
      shape: of an image.
      labels: (N,) integers >= 0, of all images.
      each: images of each class.
    """
    counts = np.bincount(labels, minlength=1)
    if shape != (32, 32, 3) or len(counts) != 10 or (counts != each).any():
        raise ValueError(
            f"--data must be CIFAR-10, {each:,} {name} images of 32x32x3 in each of 10 classes, got {len(labels):,} of "
            f"{shape} in {len(counts)} classes of {counts.min():,} to {counts.max():,}"
        )


def bench_of(k: int, data: sources.Source) -> Config:
    """The recipe for k views of `Images`, or of `smoke_images`: NT-Xent averaged over pairs of views."""
    return Config(
        data=data,
        views=Views(
            k=k,
            # Images in [0, 1], as SimCLR's code has them.
            policy=augment.simclr(0.5, image_size=SIDE, blur_probability=0.0, mean=(0.0,), std=(1.0,)),
        ),
        encoder=models.ConvNet(widths=(16, 32, 64)),
        head=models.koromilas_head(),
        objective=losses.all_pairs(NT_XENT),
        optimizer=AdamW(learning_rate=1e-2, weight_decay=1e-4, warmup_epochs=1),  # rate: pilot_rates
        train=Train(epochs=EPOCHS, batch_size=BATCH, evaluate_every=2 * EPOCHS / 3, log_every=13),
        checkpoint=Checkpoint(every_steps=10_000, keep=1),
        evaluation=evaluation.Classification(labels_per_class=(), baselines=False),
    )


def smoke_of(k: int) -> Config:
    """The recipe on random images of 8 pixels with a tiny network, for the scale smoke."""
    return studies.changed(
        bench_of(k, sources.Synthetic(image_size=8)),
        {
            "encoder": models.ConvNet(widths=(4,)),
            "views.policy": augment.evaluation(8),
            "train.steps": 2,
            "train.evaluate_every": 0.25,  # of the 4 steps of an epoch
            "train.batch_size": 16,
            "train.log_every": 1,
        },
    )


def measured(folder: Path) -> list[Values]:
    """The results of a run, and what k-NN accuracy gained since it was scored in training."""
    [found] = studies.results(folder)
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    scored = next(line["knn"] for line in lines if "knn" in line)
    return [found | {GAIN: found["k-NN"] - scored}]


def cell(factors: Factors, base: Config, changes: dict[str, Any] | None = None) -> Cell:
    """A cell that trains the recipe with changes."""
    return studies.trained(factors, base, changes, measure=measured)


def baselines(base: Config, factors: Factors, named: str = "objective") -> list[Cell]:
    """The raw pixels, the untrained encoder, and training on labels; their name is in one of the factors."""
    supervised = {"method": methods.Supervised()}
    return [*_rows.untrained(base, factors, named), cell({**factors, named: "supervised"}, base, supervised)]


class OnValidation(Training):
    """A run with one of the `OTHER_SEEDS`, a `Task`; its data are images for validation."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        return super().run(folder, seed + OTHER_SEEDS)


def of_rates(cells: Sequence[Cell]) -> list[Cell]:
    """Each of these trained cells with each of `RATES`, tested on images for validation; a factor is the rate."""
    found = []
    for one in cells:
        assert isinstance(one.task, Training)
        assert isinstance(one.task.config.data, Images)
        for rate in RATES:
            source = dataclasses.replace(one.task.config.data, validation=True)
            config = studies.changed(one.task.config, {"data": source, "optimizer.learning_rate": rate})
            task = OnValidation(config=config, measure=one.task.measure)
            found.append(Cell({**one.factors, "learning rate": rate}, task))
    return found
