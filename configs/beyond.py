"""Synthetic views of known factors, fused: bits that all views see, that one view sees, and that only three views tell.

    mvcl train beyond --workdir runs/comm                          # CoMM, three views
    mvcl train beyond:inf_masking --workdir runs/inf_masking
    mvcl train beyond:pairs --workdir runs/pairs                   # the same network, InfoNCE of pairs of views
    mvcl train beyond --workdir runs/gaps --data.views 6 --data.present 0.7
    mvcl train beyond --workdir runs/shared --data.label shared    # or synergy; unique is that of view 1

The run trains without labels and probes the label at its end: which factor is the label changes nothing before.

Hardware: 2 CPU cores.
Cost: about a minute.
Paper: none; the data and all sizes are ours.
Ours: not run at full size.
"""

import dataclasses
from functools import partial
from typing import Literal

import jax
import numpy as np

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


@dataclasses.dataclass(frozen=True, kw_only=True)
class Factors:
    """Tables of k views of known bits, see `configs/studies/_factors.py`; the label is one of the factors."""

    views: int = 3
    """k."""
    label: Literal["shared", "unique", "synergy"] = "unique"
    """The bits that all views see, those of the first view alone, or one that only the first three views tell."""
    examples: int = 8192
    """Training examples; the split `test` has a quarter."""
    present: float = 1.0
    """Probability that a training example has a view; it has one at least."""
    seed: int = 0
    """Seed of the bits and of the random networks that make views of them."""

    def open(self) -> dict[str, data.Split]:
        """The splits `train` and `test`."""
        return {name: self._split(number, name == "train") for number, name in enumerate(("train", "test"))}

    def _split(self, number: int, training: bool) -> data.Split:
        from _factors import FactorViews, render

        made, n = FactorViews(views=self.views), self.examples if training else self.examples // 4
        world, draws = jax.random.split(jax.random.key(self.seed))
        first, second = jax.random.split(jax.random.fold_in(draws, number))
        bits, quality = made.bits(first, n), [np.asarray(x, np.float32) for x in made.quality]
        views = jax.device_get(
            render(made.world(world), made.of_views(bits), *map(jax.numpy.asarray, quality), second)
        )
        seen = {"shared": bits.shared, "unique": bits.unique[:, 0]}
        if made.neighbours:
            seen["synergy"] = bits.synergy[:, 0]
        if self.label not in seen:
            raise ValueError(
                f"data.label must be one of {', '.join(seen)} for {self.views} views, got {self.label}"
            )
        chosen = np.asarray(seen[self.label]) > 0
        label = (chosen @ (1 << np.arange(chosen.shape[1]))).astype(np.int32)
        present = None
        if training and self.present < 1:
            rng = np.random.default_rng(self.seed)
            present = rng.random((n, self.views)) < self.present
            present[np.arange(n), rng.integers(self.views, size=n)] = True
        return data.in_memory(
            tuple(views),
            label,
            tuple(map(str, range(1 << chosen.shape[1]))),
            view_names=tuple(f"view{l + 1}" for l in range(self.views)),
            given=True,
            present=present,
        )


def get_config() -> Config:
    """CoMM: each view alone and all views fused."""
    return Config(
        data=Factors(),
        views=Views(k=3),
        encoder=models.MLP(widths=(128, 64)),
        head=models.MLPHead(layers=3, hidden=128, out=64, norm="batch"),
        objective=partial(losses.comm, temperature=0.1),
        method=methods.Fused(
            fusion=models.Transformer(width=64, depth=1, heads=4, dropout=0.0),
            tokens=4,
            augmentation=augment.ByKind(masked=0.1, noise=0.1),
        ),
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4, warmup_epochs=2),
        train=Train(epochs=30, batch_size=256, evaluate_every=0),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(features="encoder"),
    )


def inf_masking() -> Config:
    """InfMasking: CoMM, and four fusions of masked tokens of each augmentation."""
    return dataclasses.replace(get_config(), objective=partial(losses.inf_masking, temperature=0.1))


def pairs() -> Config:
    """InfoNCE of the pairs of views, each fused alone: what the network does without the objectives of fusion."""
    return dataclasses.replace(
        get_config(), objective=losses.all_pairs(partial(losses.info_nce, temperature=0.1))
    )


def _small(real: Config) -> Config:
    return dataclasses.replace(
        real, data=Factors(examples=64, present=0.7), train=Train(steps=5, batch_size=16, log_every=1)
    )


def smoke() -> Config:
    """Some steps of CoMM on few examples, some of whose views are missing."""
    return _small(get_config())


def smoke_inf_masking() -> Config:
    """Some steps of InfMasking on few examples, some of whose views are missing."""
    return _small(inf_masking())
