"""Handwritten digits (8x8, offline): a small ConvNet, MV-DHEL, 4 views; about a minute on 2 CPU cores.

    mvcl train configs/digits.py --workdir runs/digits

Expected: 10 labels a class, averaged over 10 draws, at least 0.95 where raw pixels give about 0.91. Not from a
paper: the smallest run that shows the whole path on real data.
"""

from functools import partial

from mvcl import augment, data, losses, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
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
