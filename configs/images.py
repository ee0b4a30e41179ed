"""Images of your own, in a folder with or without classes: sizes, network and batch follow the images.

    mvcl train images --data.path photos --workdir runs/photos
    mvcl train images --data.path photos --data.labels classes.csv --workdir runs/photos
    mvcl train images data:hugging_face --data.path my_dataset --workdir runs/mine

Hardware: a GPU for photos; 2 CPU cores for images of 32 pixels.
Cost: depends on the images; `--dry-run` estimates a step.
Paper: none; the views are MoCo v2's.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, losses, models
from mvcl.training import AdamW, Config, Train, Views


def get_config() -> Config:
    """MV-DHEL on 4 views as large as the images, at most 224 pixels.

    Ours: no number is measured; small images are not blurred and have a ConvNet, larger ones a ResNet-18.
    """
    return Config(
        data=data.Folder(),
        views=Views(k=4, policy=augment.moco_v2(0, mean=(0.5,), std=(0.5,))),
        encoder=models.ByShape(),
        head=models.koromilas_head(),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4, warmup_epochs=5),
        train=Train(epochs=100, batch_size=256, evaluate_every=10),
    )


def smoke() -> Config:
    """Some steps on random images."""
    real = get_config()
    train = dataclasses.replace(real.train, steps=2, batch_size=16, evaluate_every=0, log_every=1)
    return dataclasses.replace(real, data=data.Synthetic(image_size=8), train=train)
