"""Handwritten digits (8x8, offline): a small ConvNet and 4 views, the smallest run that shows the whole path.

    mvcl train digits --workdir runs/digits          # the same as make train
    mvcl train digits:m3g --workdir runs/digits_m3g

Hardware: 2 CPU cores.
Cost: about a minute.
Paper: none.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """MV-DHEL.

    Ours (README): 10 labels a class, averaged over 10 draws, 96.6 ± 0.8 % where raw pixels give 89.1 ± 1.9 %.
    """
    return Config(
        data=data.Digits(),
        views=Views(k=4, policy=augment.digits(crop_scale=(0.3, 1.0))),
        encoder=models.ConvNet(widths=(64, 128, 256)),
        head=models.koromilas_head(),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=AdamW(learning_rate=3e-3, weight_decay=1e-4, warmup_epochs=2),
        train=Train(epochs=60, batch_size=256, evaluate_every=20),
        checkpoint=Checkpoint(every_steps=100),
    )


def m3g() -> Config:
    """The multi-marginal matching gap (M3G) on 64 examples, the batch that Piran 2024 gives each device."""
    return dataclasses.replace(
        get_config(),
        views=Views(k=4, policy=augment.digits()),
        encoder=models.ConvNet(),
        objective=partial(losses.m3g, epsilon=0.2),
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4, warmup_epochs=2),
        train=Train(epochs=30, batch_size=64, evaluate_every=10),
        checkpoint=Checkpoint(every_steps=200),
    )


def small() -> Config:
    """A smaller network for a first study: 110 steps of 128 examples, and no baselines, which a study trains once.

    Cost: about 6 s of one CPU core, after the compilation.
    """
    return dataclasses.replace(
        get_config(),
        encoder=models.ConvNet(widths=(16, 32, 64)),
        optimizer=AdamW(learning_rate=3e-3, weight_decay=1e-4, warmup_epochs=1),
        train=Train(epochs=10, batch_size=128, evaluate_every=0, log_every=11),
        checkpoint=Checkpoint(every_steps=10_000, keep=1),
        evaluation=evaluation.Classification(baselines=False),
    )


def vectors() -> Config:
    """`small` on random vectors in place of images, a few steps of a tiny network: the studies at scale smoke."""
    real = small()
    return dataclasses.replace(
        real,
        data=data.Synthetic(view_shapes=((6,),) * 4),
        encoder=models.MLP(widths=(8,)),
        head=models.MLPHead(layers=1),
        train=dataclasses.replace(real.train, steps=2, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(baselines=False, draws=2),
    )


def smoke() -> Config:
    """Some steps of a small network on random images."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(image_size=8, channels=1),
        encoder=models.ConvNet(widths=(4, 8)),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, evaluate_every=0.5, log_every=1),
    )
