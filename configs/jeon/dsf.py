"""Jeon 2025, the divergence-based similarity (DSF): MoCo on M = 8 views, m = M/2 for each encoder.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train configs/jeon/dsf.py --workdir runs/dsf
    mvcl data prepare imagenet2012     # once; needs the archives too, see docs/data.md
    mvcl train configs/jeon/dsf.py:imagenet100 --workdir runs/dsf100

Table 1, at a fixed number of views B M. Its other cells, on CIFAR-10 with --objective.pair.no-in-batch-negatives too:

    objective:cross_pairs objective.pair:info_nce --objective.pair.temperature 0.2    loss_avg
    objective:mean_pair objective.pair:info_nce --objective.pair.temperature 0.2      fea_avg
    --views.k 2                                                                       MoCo with the same similarity

Hardware: one GPU for CIFAR-10, several for ImageNet-100.
Ours: not run at this length; docs/reproduction.md has the three rows for MoCo v2 on part of CIFAR-10, 5 epochs.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Sgd, Train, Views


def cifar10() -> Config:
    """CIFAR-10: ResNet-18, MoCo v2 with a queue of 4096, its keys the only negatives.

    Cost: 158 PFLOP; a step holds 4.1 GB of temporaries in float32 (docs/recipes.md).
    Paper (Table 1, DSF for 250 epochs): linear 91.21 %, k-NN 90.04 %; loss_avg 88.58 % and 88.28 %.
    """
    return Config(
        data=data.Tfds(name="cifar10"),
        views=Views(k=8, policy=augment.moco_v2(image_size=32, blur_probability=0.0), strategy="fixed"),
        encoder=models.ResNet(depth=18, stem="cifar"),
        head=models.moco_v2_head(),
        objective=partial(losses.dsf, in_batch_negatives=False),
        method=methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=4096),
        optimizer=Sgd(learning_rate=0.06, reference_batch=None, weight_decay=5e-4),
        train=Train(epochs=200, batch_size=512),
        checkpoint=Checkpoint(every_steps=1000),
    )


def imagenet100() -> Config:
    """ImageNet-100: ViT-S/16 with frozen patches, MoCo v3.

    Cost: 11,400 PFLOP; a step holds 149 GB of temporaries in float32, over all devices (docs/recipes.md).
    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %; loss_avg 84.24 % and 76.62 %.
    """
    return dataclasses.replace(
        cifar10(),
        data=data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",)),
        views=Views(k=8, policies=(augment.byol_global1(), augment.byol_global2()) * 4, strategy="fixed"),
        encoder=models.ViT(patch=16, width=384, depth=12, heads=6, frozen_patches=True),
        head=models.moco_v3_head(),
        objective=losses.dsf,
        method=methods.MocoV3(momentum=0.99),
        optimizer=AdamW(learning_rate=1.5e-4, reference_batch=256, weight_decay=0.1, warmup_epochs=40),
        train=Train(epochs=300, batch_size=512, threads=16),
    )


get_config = cifar10


def smoke() -> Config:
    """Some steps of `cifar10` with a narrow ResNet-18 and a short queue on random images."""
    real = cifar10()
    return dataclasses.replace(
        real,
        data=data.Synthetic(),
        encoder=models.ResNet(depth=18, stem="cifar", width=4),
        method=methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=32),
        train=dataclasses.replace(real.train, steps=4, batch_size=32, log_every=1),
    )


def smoke_imagenet100() -> Config:
    """Some steps of `imagenet100` with a small ViT on random images of different sizes."""
    real = imagenet100()
    policies = (augment.byol_global1(image_size=32), augment.byol_global2(image_size=32)) * 4
    head = dataclasses.replace(models.moco_v3_head(), hidden=16, out=8)
    return dataclasses.replace(
        real,
        data=data.Synthetic(sizes="different"),
        views=Views(k=8, policies=policies, strategy="fixed"),
        encoder=models.ViT(patch=16, width=16, depth=1, heads=2, frozen_patches=True),
        head=head,
        method=methods.MocoV3(momentum=0.99, predictor=dataclasses.replace(head, layers=2)),
        train=dataclasses.replace(real.train, steps=4, batch_size=32, log_every=1),
    )
