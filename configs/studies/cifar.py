"""CIFAR-10 at 16 pixels: objectives of Koromilas 2025, Piran 2024 and Jeon 2025, trained until accuracy is flat.

cifar10.npz is CIFAR-10 as `data:arrays` reads it (README). The papers' own settings are the studies of their tables,
at scale paper.
Source: Koromilas 2025, Table II; Piran 2024; Jeon 2025, Table 1.
"""

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import _rows
import numpy as np

from mvcl import _files, augment, evaluation, losses, methods, models, studies
from mvcl import data as sources
from mvcl.studies import SEEDS, Cell, Claim, Factors, Measure, Study, Values, trained
from mvcl.training import AdamW, Checkpoint, Config, Train, Views

_TRAIN, _TEST, _SIDE, _EPOCHS = 4_000, 2_000, 16, 10
_ABOUT = f"""\
The first {_TRAIN:,} training and {_TEST:,} test images of CIFAR-10, views of {_SIDE} x {_SIDE} pixels by SimCLR's
policy at strength 0.5 without blur, a ConvNet of widths 16, 32 and 64 with BatchNorm, Koromilas 2025's head, AdamW at
3e-3 with cosine decay, batches of 128, {_EPOCHS} epochs. All rows have the same images, epochs, batch and learning
rate, so a row of 4 views takes twice the encoder passes of 2. Temperature 0.5, for MoCo 0.1; M3G: epsilon
0.2. MoCo v2: two queries and two keys, momentum 0.99, a queue of 1,024 instances with a row for each. Accuracy of
frozen features of the encoder: weighted k-NN and a linear classifier, on the labels of the {_TRAIN:,} images.

"Gain" is the k-NN accuracy at the end minus that after two thirds of training: how far from flat the curve is. The
network is small, which is why it is flat; a larger one gains from longer training. One of the 2,000 test images is
0.05 %, and the same images are tested in all rows.

Printed values are the papers' linear accuracy of ResNet-18 on all 50,000 images of 32 pixels after 200 epochs
(Koromilas, k as here) or 250 (Jeon, 8 views): compare the order of rows, not the values."""

_XENT = partial(losses.nt_xent, temperature=0.5)
_KEY = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
# Name -> (k, objective, printed linear accuracy).
_SIMCLR: dict[str, tuple[int, losses.Loss, float | None]] = {
    "nt_xent": (2, _XENT, 86.0),
    "all_pairs(nt_xent)": (4, losses.all_pairs(_XENT), 88.7),
    "one_vs_rest(nt_xent)": (4, losses.one_vs_rest(_XENT), 88.2),
    "poly_view": (4, partial(losses.poly_view, temperature=0.5), 88.0),
    "mv_infonce": (4, partial(losses.mv_infonce, temperature=0.5, negatives="all"), 88.8),
    "mv_dhel": (4, partial(losses.mv_dhel, temperature=0.5), 89.5),
    "m3g": (4, partial(losses.m3g, epsilon=0.2), None),
}
_MOCO: dict[str, tuple[int, losses.Loss, float | None]] = {
    "cross_pairs(info_nce)": (4, losses.cross_pairs(_KEY), 88.58),
    "dsf": (4, partial(losses.dsf, in_batch_negatives=False), 91.21),
}
_GAIN = "k-NN, gain of the last third"
_MEASURES = (
    Measure("linear", percent=True),
    Measure("k-NN", percent=True),
    Measure(_GAIN, percent=True, better=""),
)


def _measured(folder: Path) -> list[Values]:
    """The results, and what k-NN accuracy gained since it was scored in training."""
    [found] = studies.results(folder)
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    scored = next(line["knn"] for line in lines if "knn" in line)
    return [found | {_GAIN: found["k-NN"] - scored}]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cifar10Part:
    """The first images of both splits of CIFAR-10, from a file as `data:arrays` reads it."""

    path: str = ""
    """The .npz file, with all images."""
    train: int = 5_000
    """Training images."""
    test: int = 2_000
    """Test images."""

    def open(self) -> dict[str, sources.Split]:
        """The splits `train` and `test`.

        Raises:
          ValueError: the file cannot be read, or holds other sources.
        """
        splits = sources.Arrays(path=self.path, first=(self.train, self.test)).open()
        arrays = _files.read_npz(Path(self.path))
        for name, each in (("train", 5_000), ("test", 1_000)):
            labels = arrays.get(f"{name}_labels", arrays.get(f"y_{name}", np.zeros(0, np.int64)))
            check_cifar10(name, splits[name].spec.shapes[0], labels.reshape(-1), each)
        return splits


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


def _base(source: sources.Source) -> Config:
    return Config(
        data=source,
        views=Views(
            k=4,
            # Images in [0, 1], as SimCLR's code has them.
            policy=augment.simclr(0.5, image_size=_SIDE, blur_probability=0.0, mean=(0.0,), std=(1.0,)),
        ),
        encoder=models.ConvNet(widths=(16, 32, 64)),
        head=models.koromilas_head(),
        optimizer=AdamW(learning_rate=3e-3, weight_decay=1e-4, warmup_epochs=1),
        train=Train(epochs=_EPOCHS, batch_size=128, evaluate_every=2 * _EPOCHS / 3, log_every=31),
        checkpoint=Checkpoint(every_steps=10_000, keep=1),
        evaluation=evaluation.Classification(labels_per_class=(), baselines=False),
    )


def _cells(base: Config) -> list[Cell]:
    moco = methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=1024, queue_keys="one")
    used: dict[str, methods.Method] = {"moco_v2": moco, "simclr": methods.Simclr()}
    rows = [("simclr", name, *row) for name, row in _SIMCLR.items()]
    rows += [("moco_v2", name, *row) for name, row in _MOCO.items()]
    cells = []
    for method, name, k, objective, linear in rows:
        changes = {"method": used[method], "objective": objective, "views.k": k}
        printed = {} if linear is None else {"linear": linear}
        factors: Factors = {"method": method, "objective": name, "k": k}
        cells.append(trained(factors, base, changes, printed, _measured))
    return cells


_OF_FOUR = ("mv_infonce", "all_pairs(nt_xent)", "one_vs_rest(nt_xent)", "poly_view")


def _claims(untrained: Sequence[Cell]) -> list[Claim]:
    """In the order of their sources: an objective is better than others."""
    better = {"mv_dhel": "MV-DHEL is better than {}", "mv_infonce": "MV-InfoNCE is better than {}"}
    two, more = (
        {"objective": "nt_xent", "k": 2},
        "{objective} of 4 views is better than NT-Xent of 2, at equal epochs",
    )
    every = "every row of {} is better than the {}"
    rows: dict[str, list[_rows.Row]] = {
        "Koromilas 2025, Table II": [
            *(
                row
                for name, others in (("mv_dhel", _OF_FOUR), ("mv_infonce", _OF_FOUR[1:]))
                for row in _rows.against(better[name], {"objective": name}, "objective", others)
            ),
            *_rows.each(more, {}, [two], objective=("mv_dhel", *_OF_FOUR)),
        ],
        "Piran 2024, Table 1, with a teacher": [
            ("M3G is better than the pairwise contrast", {"objective": "m3g"}, [{"objective": _OF_FOUR[1]}])
        ],
        "Jeon 2025, Table 1": [
            (
                "DSF is better than InfoNCE averaged over pairs (loss_avg)",
                {"objective": "dsf"},
                [{"objective": "cross_pairs(info_nce)"}],
            )
        ],
        "ours": [
            (every.format(method, cell.factors["objective"]), {"method": method}, [cell.factors])
            for method in ("simclr", "moco_v2")
            for cell in untrained
        ],
    }
    return [claim for source, of in rows.items() for claim in _rows.above(source, "linear", of)]


def _study(cells: Sequence[Cell], claims: Sequence[Claim], seeds: int, cost: str) -> Study:
    return Study(
        title="CIFAR-10 at 16 pixels",
        about=_ABOUT,
        cells=cells,
        measures=_MEASURES,
        claims=claims,
        reference={"method": "simclr", "objective": "all_pairs(nt_xent)", "k": 4},
        seeds=seeds,
        cost=cost,
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, nine objectives and two baselines. `data` is the file of CIFAR-10, .npz."""
    base = _base(Cifar10Part(path=str(data), train=_TRAIN, test=_TEST))
    untrained = _rows.untrained(base, {"method": "none", "objective": "", "k": 0})
    return _study(
        [*untrained, *_cells(base)],
        _claims(untrained),
        seeds,
        "about 80 minutes on 2 cores with --jobs 2, estimated from single runs",
    )


def smoke(seeds: int = 2) -> Study:
    """Random images, one objective."""
    base = studies.changed(
        _base(sources.Synthetic(image_size=8)),
        {
            "encoder": models.ConvNet(widths=(4,)),
            "views.policy": augment.evaluation(8),
            "train.steps": 2,
            "train.evaluate_every": 0.25,  # of the 4 steps of an epoch
            "train.batch_size": 16,
            "train.log_every": 1,
        },
    )
    return _study(_cells(base)[1:2], (), seeds, "under a minute on 2 cores")
