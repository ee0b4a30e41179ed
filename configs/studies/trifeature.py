"""What fused views keep of images: shape shared by all, texture or colour of one alone, and what only all tell.

Source: ours, after the bimodal Trifeature of CoMM (Dufumier and Castillo-Navarro 2025).
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import _rows
import numpy as np
from _factors_task import with_option
from _trifeature import COUNT, Trifeature

import mvcl
from mvcl import augment, evaluation, losses, methods, models, training
from mvcl.studies import Cell, Measure, Study, Values
from mvcl.training import AdamW, Checkpoint, Config, Train, Views

_ABOUT = """\
Two or three images of an example, 32 x 32 pixels, each a coloured, textured shape at a random place, scale and
rotation: ten shapes, textures and colours. All images of an example share the shape. Image 1 alone has its texture,
image 2 its colour, image 3 its texture. The synergy is a fair bit: whether the texture of image 2 belongs, by a
fixed table, to the colour of image 1, of three images to the sum of the colours of images 1 and 3
(`configs/studies/_trifeature.py`).

Every row has a ConvNet of widths 16, 32 and 64 for each image, the same batches of 128, steps and AdamW at 1e-3.
Rows with "fused" cut the 64 features of an image into 4 tokens, which one attention layer of width 64 and 4 heads
fuses. Images are augmented by crops of 60 to 100 % of the area and flips, which keep all factors; InfoNCE of pairs
has no second augmentation to compare. Temperatures are chosen from 0.05, 0.1, 0.2 and 0.5 by validation with
another seed: the best mean of all accuracies.

The numbers are accuracies of logistic regressions of each factor on the features, of 2,000 test examples, fitted on
5,000: of the fusion, or of the features of all images side by side. Chance is 0.1, of the synergy 0.5. Raw is the
mean of blocks of 4 x 4 pixels."""

_FACTORS = ("shared", "unique1", "unique2", "unique3", "synergy")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tuned:
    """A task at the temperature that is best on other draws, renderings and first weights: a validation.

    Best is the mean of some measures.
    """

    task: Any
    """With a field `objective`, and `networks`, its number of networks."""
    measures: tuple[str, ...]
    """Those of the mean, if there are."""
    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    validation: int = 3
    """Networks at each temperature."""

    @property
    def instances(self) -> int | None:
        """Number of instances that the objective compares."""
        return self.task.instances

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Validate, train and probe; with the measure `temperature`."""
        best = max(self.temperatures, key=lambda t: self._read(folder, seed + 1_000_000, t))
        return [{**found, "temperature": best} for found in self._at(best).run(folder, seed)]

    def _at(self, temperature: float) -> Any:
        objective = with_option(self.task.objective, "temperature", temperature)
        return dataclasses.replace(self.task, objective=objective)

    def _read(self, folder: Path, seed: int, temperature: float) -> float:
        few = dataclasses.replace(self._at(temperature), networks=self.validation)
        found = few.run(folder / f"temperature{temperature}", seed)
        return float(np.mean([one[name] for one in found for name in self.measures if name in one]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Probed:
    """A run, and the accuracy of each factor of the images from its features; a `Task`."""

    config: Config
    objective: losses.Loss | None = losses.comm
    """That of the run; None: raw pixels."""
    fitted: int = 5000
    """Examples that the probes are fitted on; two fifths as many are tested."""
    networks: int = 1

    @property
    def instances(self) -> int | None:
        """Number of instances that the objective compares."""
        return None if self.objective is None else self.config.examples

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """Train, or go on, and probe."""
        source = self.config.data
        assert isinstance(source, Trifeature)
        source = dataclasses.replace(source, seed=seed)
        parts = [source.painted(2, self.fitted), source.painted(3, self.fitted * 2 // 5)]
        features = [_pooled(views) for views, _ in parts]
        if self.objective is not None:
            changed = dataclasses.replace(self.config.train, seed=seed)
            config = dataclasses.replace(self.config, data=source, train=changed, objective=self.objective)
            training.train(config, folder / "run")
            encoder = mvcl.load(folder / "run")
            features = [encoder(dict(zip(encoder.views, views))) for views, _ in parts]
        known: Any = [labels for _, labels in parts]
        found: Values = {}
        for name in known[0]:
            fit, test = ((x, np.asarray(labels[name], np.int32)) for x, labels in zip(features, known))
            count = 2 if name == "synergy" else COUNT
            found[name] = evaluation.linear_probe(fit, test, num_classes=count)[0][0]
        return [found]


def _pooled(views: Sequence[np.ndarray]) -> np.ndarray:
    """(n, d): means of blocks of 4 x 4 pixels, of all images side by side."""
    n, side = views[0].shape[0], views[0].shape[1] // 4
    return np.concatenate(
        [x.reshape(n, side, 4, side, 4, 3).mean((2, 4)).reshape(n, -1) for x in views], axis=1
    )


def _config(k: int, steps: int, examples: int, widths: tuple[int, ...]) -> Config:
    return Config(
        data=Trifeature(views=k, label="shared", examples=examples),
        views=Views(k=k),
        encoder=models.ConvNet(widths=widths),
        head=models.MLPHead(layers=2, hidden=128, out=64, norm="batch"),
        method=methods.Fused(
            fusion=models.Transformer(width=64, depth=1, heads=4, dropout=0.0),
            augmentation=augment.ByKind(policy=augment.Policy(crop_scale=(0.6, 1.0))),
        ),
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4, warmup_epochs=1),
        train=Train(steps=steps, batch_size=min(128, examples), evaluate_every=0, log_every=50),
        checkpoint=Checkpoint(every_steps=10_000, keep=1),
        evaluation=evaluation.Classification(features="encoder", baselines=False, labels_per_class=()),
    )


def _tasks(config: Config, temperatures: tuple[float, ...], fitted: int) -> dict[str, Any]:
    """Label -> the cell."""
    alone = dataclasses.replace(config, method=methods.MultiEncoder())
    idle = dataclasses.replace(
        config,
        optimizer=dataclasses.replace(config.optimizer, learning_rate=1e-12, warmup_epochs=0),
        train=dataclasses.replace(config.train, steps=1),
    )
    pairs = losses.all_pairs(losses.info_nce)
    tuned = partial(Tuned, temperatures=temperatures, validation=1, measures=_FACTORS)
    return {
        "raw": Probed(config=config, objective=None, fitted=fitted),
        "untrained, fused": Probed(config=idle, fitted=fitted),
        "all_pairs(info_nce)": tuned(task=Probed(config=alone, objective=pairs, fitted=fitted)),
        "mv_infonce": tuned(task=Probed(config=alone, objective=losses.mv_infonce, fitted=fitted)),
        "fused, InfoNCE of pairs": tuned(task=Probed(config=config, objective=pairs, fitted=fitted)),
        "comm, fused": tuned(task=Probed(config=config, objective=losses.comm, fitted=fitted)),
        "inf_masking, fused": tuned(task=Probed(config=config, objective=losses.inf_masking, fitted=fitted)),
    }


def _study(configs: dict[str, Config], temperatures: tuple[float, ...], fitted: int, **scale: Any) -> Study:
    cells = (
        Cell({"objective": label, "images": name}, task)
        for name, config in configs.items()
        for label, task in _tasks(config, temperatures, fitted).items()
    )
    return Study(
        title="What fused images keep",
        about=_ABOUT,
        cells=tuple(cells),
        measures=(*(Measure(name, digits=3) for name in _FACTORS), Measure("temperature", digits=2)),
        columns="images",
        **scale,
    )


def small(seeds: int = 20) -> Study:
    """Two and three images, 2,000 steps."""
    claims = []
    others = [
        {"objective": name} for name in ("all_pairs(info_nce)", "mv_infonce", "fused, InfoNCE of pairs")
    ]
    for name in ("comm", "inf_masking"):
        at = {"objective": f"{name}, fused", "images": "k = 2"}
        claims += _rows.above("ours", "unique1", [(f"{name} keeps what one image has alone", at, others)])
    told = {"objective": "inf_masking, fused", "images": "k = 2"}
    claims += _rows.within(
        "ours", "synergy", (0.6, 1.0), [("InfMasking tells the synergy above 0.6", told, [])]
    )
    configs = {f"k = {k}": _config(k, 2000, 10_000, (16, 32, 64)) for k in (2, 3)}
    return _study(
        configs, (0.05, 0.1, 0.2, 0.5), 5000, seeds=seeds, claims=claims, cost="not measured; for a GPU"
    )


def smoke(seeds: int = 1) -> Study:
    """A few steps of small networks."""
    configs = {"k = 2": _config(2, 2, 40, (4, 4, 8))}
    return _study(configs, (0.1,), 100, seeds=seeds, cost="three minutes on 2 cores, most of it compilation")
