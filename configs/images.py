"""Images of your own, in a folder with or without classes: sizes, network and batch follow the images.

    mvcl train images --data.path photos --workdir runs/photos

Hardware: a GPU for photos; 2 CPU cores for images of 32 pixels.
Cost: depends on the images; `--dry-run` estimates a step.
Paper: none; the views are MoCo v2's.
Ours: no number is measured.
"""

import dataclasses

from mvcl import augment, data, models
from mvcl.training import Config, Train, Views


def get_config() -> Config:
    """MV-InfoNCE on 4 views as large as the images, at most 224 pixels."""
    return Config(
        data=data.Folder(),
        views=Views(k=4, policy=augment.moco_v2(0, mean=(0.5,), std=(0.5,))),
        encoder=models.ByShape(),
    )


def smoke() -> Config:
    """Some steps on random images."""
    images, train = data.Synthetic(image_size=8), Train(steps=2, batch_size=16, log_every=1)
    return dataclasses.replace(get_config(), data=images, train=train)
