"""Piran 2024, images: ViT-B/16, student and teacher, the multi-marginal matching gap (M3G).

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/piran/images.py --workdir runs/m3g --train.batch-size 4096
    mvcl train configs/piran/images.py:domainnet --workdir runs/domainnet --data.path DOMAINNET --train.batch-size 128

Sections 4.1 and 4.2. M3G is taken over the examples of a device, 64 on ImageNet-1K and 16 on DomainNet: set
--train.batch-size to so many times the devices. The other cells of both tables:

    objective:all_pairs objective.pair:info_nce                   pairwise InfoNCE (byol: pairwise BYOL)
    objective:one_vs_rest objective.pair:info_nce                 one against the average of the rest

Hardware: several GPUs; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def _adamw(warmup_epochs: float) -> AdamW:
    return AdamW(
        learning_rate=6.5e-4,
        end_learning_rate=5e-5,
        b1=0.9,
        b2=0.95,
        warmup_epochs=warmup_epochs,
        weight_decay=0.04,
        end_weight_decay=0.4,
    )


def imagenet1k() -> Config:
    """ImageNet-1K: k = 4 views, 64 examples a device, 300 epochs.

    --views.k 2 to 4 takes the first k of (BYOL's first, BYOL's second, SimCLR's, BYOL's first).

    Cost: 218,000 PFLOP; a device's step holds 75 GB of temporaries in float32 (docs/recipes.md).
    Paper (Table 1, linear probe, k = 4): M3G 75.75 ± 0.11 %; the best baseline, pairwise InfoNCE, 75.26 ± 0.16 %.
    """
    policies = (augment.byol_global1(), augment.byol_global2(), augment.simclr(), augment.byol_global1())
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        views=Views(k=4, policies=policies),
        encoder=models.ViT(patch=16, width=768, depth=12, heads=12),
        head=models.piran_head(),
        objective=partial(losses.m3g, epsilon=0.2),
        method=methods.StudentTeacher(momentum=0.99, predictor=models.piran_head()),
        optimizer=_adamw(warmup_epochs=10),
        train=Train(epochs=300, batch_size=2048, group=64, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
    )


def domainnet() -> Config:
    """DomainNet: a view from each of k = 5 domains, 16 classes a device; one domain is held out.

    A batch is n classes times one image of each seen domain. The features are tested on 5 domains to the held-out one
    and on each domain to each other. docs/data.md says how to get the images; --data.held-out quickdraw and so on.

    Cost: 1,130 PFLOP; a device's step holds 23 GB of temporaries in float32 (docs/recipes.md).
    Paper (Table 2, 5 domains to sketch): M3G 26.5 ± 0.4 %; the best baseline, InfoNCE of the average, 24.9 ± 0.1 %.
    """
    return dataclasses.replace(
        imagenet1k(),
        data=data.DomainNet(held_out="sketch"),
        views=Views(k=5, policy=augment.simclr()),
        objective=partial(losses.m3g, epsilon=0.05),
        optimizer=_adamw(warmup_epochs=0),
        # A pass over the 345 classes is a few steps; the paper's length is set by steps.
        train=Train(epochs=300, batch_size=512, group=16, threads=16, evaluate_every=0),
        evaluation=evaluation.Domains(),
    )


get_config = imagenet1k


def _small(real: Config, source: data.Synthetic, views: Views) -> Config:
    head = dataclasses.replace(models.piran_head(), hidden=16, out=8)
    return dataclasses.replace(
        real,
        data=source,
        views=views,
        encoder=models.ViT(patch=16, width=16, depth=1, heads=2),
        head=head,
        method=methods.StudentTeacher(momentum=0.99, predictor=head),
        train=dataclasses.replace(real.train, steps=4, batch_size=8, log_every=1),
    )


def smoke() -> Config:
    """Some steps of `imagenet1k` with a small ViT on random images of different sizes."""
    policies = (augment.byol_global1(32), augment.byol_global2(32), augment.simclr(image_size=32))
    return _small(
        imagenet1k(), data.Synthetic(sizes="different"), Views(k=4, policies=(*policies, policies[0]))
    )


def smoke_domainnet() -> Config:
    """Some steps of `domainnet` with a small ViT on random images of 8 classes in 6 domains."""
    source = data.Synthetic(domains=data.DOMAINS, classes=8, sizes="different")
    return _small(domainnet(), source, Views(k=5, policy=augment.simclr(image_size=32)))
