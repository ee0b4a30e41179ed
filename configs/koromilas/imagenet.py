"""Koromilas 2025, ImageNet-100 and ImageNet-1K: ResNet-50, MV-DHEL on k = 4 views of {2, 3, 4}.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/koromilas/imagenet.py --workdir runs/imagenet100
    mvcl train configs/koromilas/imagenet.py:imagenet1k --workdir runs/imagenet1k

The main table of Section V (Table II). The other objectives and numbers of views are chosen as in
configs/koromilas/cifar.py; on ImageNet-1K with temperature 0.1 (--objective.temperature, --objective.pair.temperature).

Hardware: several GPUs; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, models
from mvcl.training import Checkpoint, Config, Lars, Sgd, Train, Views


def imagenet100() -> Config:
    """ImageNet-100, 200 epochs, batch 256, SGD.

    Cost: 2,450 PFLOP; a step holds 141 GB of temporaries in float32, over all devices (docs/recipes.md).
    Paper (Table II, linear probe): MV-DHEL 73.3 % with 2 views and 77.2 % with 4; the best baseline 72.2 % and 74.4 %.
    """
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",)),
        views=Views(k=4, policy=augment.simclr(strength=1.0)),
        encoder=models.ResNet(depth=50),
        head=models.koromilas_head(),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=Sgd(learning_rate=1.4, reference_batch=256, weight_decay=1e-6),
        train=Train(epochs=200, batch_size=256, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.5,), batch_size=512, epochs=200, weight_decay=1e-4, decay="linear"
            )
        ),
    )


def imagenet1k() -> Config:
    """ImageNet-1K, 100 epochs, batch 512, LARS.

    Cost: 12,400 PFLOP; a step holds 282 GB of temporaries in float32, over all devices (docs/recipes.md).
    Paper (Table II, linear probe): MV-DHEL 61.2 % with 2 views and 62.6 % with 4; the best baseline 60.0 % and 62.4 %.
    """
    return dataclasses.replace(
        imagenet100(),
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        objective=partial(losses.mv_dhel, temperature=0.1),
        optimizer=Lars(learning_rate=0.3, reference_batch=256, weight_decay=1e-6, warmup_epochs=10),
        train=Train(epochs=100, batch_size=512, threads=16),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(1.6,), batch_size=4096, epochs=100, weight_decay=0.0, decay="linear"
            )
        ),
    )


get_config = imagenet100


def smoke() -> Config:
    """Some steps of a narrow ResNet-50 on random images of different sizes."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(sizes="different"),
        views=Views(k=4, policy=augment.simclr(strength=1.0, image_size=32)),
        encoder=models.ResNet(depth=50, width=4),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(linear=evaluation.LinearProbe(batch_size=16, epochs=2)),
    )
