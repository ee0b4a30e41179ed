"""Synthetic views of known factors, fused: bits that all views see, that one view sees, and that only three views tell.

    mvcl train beyond --workdir runs/comm                          # CoMM, three views
    mvcl train beyond:inf_masking --workdir runs/inf_masking
    mvcl train beyond:pairs --workdir runs/pairs                   # the same network, InfoNCE of pairs of views
    mvcl train beyond --workdir runs/gaps --data.views 6 --data.present 0.7
    mvcl train beyond --workdir runs/shared --data.label shared    # or synergy; unique is that of view 1

The run trains without labels and probes the label at its end: which factor is the label changes nothing before.

Hardware: 2 CPU cores.
Cost: not measured; 960 steps of small networks.
Paper: none; the data and all sizes are ours.
Ours: not run at full size.
"""

import dataclasses
from functools import partial

from _factors import Factors

from mvcl import augment, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


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
    pairs = losses.all_pairs(partial(losses.info_nce, temperature=0.1))
    return dataclasses.replace(get_config(), objective=pairs)


def _small(real: Config) -> Config:
    source, train = Factors(examples=64, present=0.7), Train(steps=5, batch_size=16, log_every=1)
    return dataclasses.replace(real, data=source, train=train)


def smoke() -> Config:
    """Some steps of CoMM on few examples, some of whose views are missing."""
    return _small(get_config())


def smoke_inf_masking() -> Config:
    """Some steps of InfMasking on few examples, some of whose views are missing."""
    return _small(inf_masking())
