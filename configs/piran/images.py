"""Piran 2024, images: ViT-B/16, student and teacher, the multi-marginal matching gap (M3G).

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/how_to/data.md
    mvcl train piran/images --workdir runs/m3g
    mvcl train piran/images:domainnet --workdir runs/domainnet --data.path DOMAINNET

Sections 4.1 and 4.2, Tables 1 and 2. A loss compares the examples of a GPU of the paper, 64 on ImageNet-1K and 16 on
DomainNet: `train.group`, on any number of devices that divides the 32 groups. The other cells of both tables, with the
same groups:

    objective:all_pairs objective.pair:info_nce                   pairwise InfoNCE (byol: pairwise BYOL)
    objective:one_vs_rest objective.pair:info_nce                 one against the average of the rest (byol: BYOL)

The paper has 5 runs a cell on ImageNet-1K, --train.seed 0 to 4, and 4 on DomainNet, --train.seed 0 --data.draw-seed 0
to --train.seed 3 --data.draw-seed 3, since train.seed alone leaves the draws of classes and images the same. `mvcl
study piran_table1` runs all cells on ImageNet-1K, `piran_table2` those on DomainNet
with all six --data.held-out.

Hardware: several GPUs, in bfloat16 there; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial
from typing import Any

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views

_LINEAR = evaluation.LinearProbe(  # paper, B
    learning_rates=(0.01, 0.001),  # paper, B
    reference_batch=None,  # ours
    batch_size=256,  # ours
    epochs=100,  # paper, B
    momentum=0.9,  # ours
    weight_decay=0.0,  # paper, B
    decay="cosine",  # ours
    augment=True,  # paper, B
    crop_padding=0,  # ours
)
_VIT = models.ViT(  # paper, A
    patch=16,  # paper, A
    width=768,  # paper, A
    depth=12,  # paper, A
    heads=12,  # paper, A
    frozen_patches=False,  # ours
    positions="learned",  # ours: as timm's ViT
    init="trunc_normal",  # paper, Table A1; of the patches LeCun's: ours
    activation="gelu",  # ours: as timm's ViT
)
_CLASSIFICATION = evaluation.Classification(  # paper, B: the linear layer; k-NN and few labels: ours
    features="encoder",  # paper, B
    knn_k=200,  # ours
    knn_temperature=0.07,  # ours
    labels_per_class=(5, 10),  # ours
    draws=10,  # ours
    linear=_LINEAR,
)


def _m3g(epsilon: float) -> losses.Loss:
    return partial(  # paper, Eq. 14
        losses.m3g,
        epsilon=epsilon,
        cost="circular_variance",  # paper, Eq. 12
        cost_scale=1.0,  # ours
        epsilon_init=1.0,  # paper, Algorithm 1: one epsilon
        epsilon_decay=1.0,  # paper, Algorithm 1: one epsilon
        threshold=1e-3,  # paper, Algorithm 1
        max_iterations=100,  # ours
    )


def imagenet1k() -> Config:
    """ImageNet-1K: k = 4 views, 2048 examples in 32 groups of 64, 300 epochs.

    --views.k 2 to 4 takes the first k of (BYOL's first, BYOL's second, SimCLR's, BYOL's first).

    Cost: 204,000 PFLOP; 64 examples on a device hold 70 GB of temporaries in float32 (docs/how_to/recipes.md). With
    fewer than 32 devices of that size, --train.microbatch 64 or --train.batch-size.
    Paper (Table 1, linear probe, k = 4): M3G 75.75 ± 0.11 %; the best baseline, pairwise InfoNCE, 75.26 ± 0.16 %.
    """
    first = augment.byol_global1()  # paper, A, Pseudocode 1; the blur's kernel of 23: ours, as SimCLR's
    second = augment.byol_global2()  # paper, A, Pseudocode 1; the blur's kernel of 23: ours, as SimCLR's
    third = augment.simclr()  # paper, A, Pseudocode 1
    return Config(
        data=data.Tfds(  # paper, 4.1; Tfds: ours
            name="imagenet2012",  # paper, 4.1
            train_split="train",  # paper, 4.1
            test_split="validation",  # paper, 4.1
            classes=(),  # paper, 4.1: all
        ),
        views=Views(
            k=4,  # paper, 4.1
            policies=(first, second, third, first),  # paper, A, Pseudocode 1
            strategy="growing",  # paper, 4.1: 64 examples on a GPU for every k
        ),
        encoder=_VIT,
        head=models.piran_head(),  # paper, A, Table A1; no norm at its end: ours
        objective=_m3g(epsilon=0.2),  # paper, 4.1
        method=methods.StudentTeacher(  # paper, 2.1
            momentum=0.99,  # paper, Table A1
            end_momentum=1.0,  # ours: as BYOL
            predictor=models.piran_head(),  # paper, A, Table A1; no norm at its end: ours
            evaluate="online",  # ours
            pairs="teacher",  # paper, 4: the student on all views but the one of the teacher
        ),
        optimizer=AdamW(  # paper, Table A1
            learning_rate=6.5e-4,  # paper, Table A1
            end_learning_rate=5e-5,  # paper, Table A1
            reference_batch=2048,  # ours: the paper has no base batch
            scaling="sqrt",  # paper, Table A1: "optimizer scaling rule: Adam"
            b1=0.9,  # paper, Table A1
            b2=0.95,  # paper, Table A1
            eps=1e-8,  # ours: PyTorch's
            warmup_epochs=10,  # paper, Table A1
            weight_decay=0.04,  # paper, Table A1
            decays="matrices",  # ours
            end_weight_decay=0.4,  # paper, Table A1
        ),
        train=Train(
            epochs=300,  # paper, 4.1
            batch_size=2048,  # paper, 4.1
            group=64,  # paper, 4.1: the examples of a GPU
            precision="auto",  # ours: bfloat16 on a GPU
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_CLASSIFICATION,
    )


def domainnet() -> Config:
    """DomainNet: a view from each of k = 5 domains, 512 examples in 32 groups of 16 classes; one domain is held out.

    A group is a draw of 16 classes and one image of each seen domain. The classifiers of the five seen domains,
    together and each by itself, are tested on the held-out one: --data.held-out clipart, infograph, painting,
    quickdraw, real or sketch. docs/how_to/data.md says how to get the images. The paper's epoch is not defined; here it
    reads as many images as the training lists of the seen domains have, 141 steps without sketch.

    Cost: 14,400 PFLOP; 16 examples on a device hold 22 GB of temporaries in float32 (docs/how_to/recipes.md).
    Paper (Table 2, 5 domains to sketch): M3G 26.5 ± 0.4 %; the best baseline, InfoNCE of the average, 24.9 ± 0.1 %.
    """
    return dataclasses.replace(
        imagenet1k(),
        data=data.DomainNet(  # paper, 4.2
            domains=data.DOMAINS,  # paper, 4.2
            held_out="sketch",  # ours: the paper has all six
            classes=(),  # paper, 4.2: all
            classes_per_draw=16,  # paper, 4.2
        ),
        views=Views(
            k=5,  # paper, 4.2
            policy=augment.simclr(),  # paper, A, Pseudocode 1
            strategy="growing",  # paper, 4.2: 16 examples on a GPU
        ),
        objective=_m3g(epsilon=0.05),  # paper, 4.2
        train=Train(
            epochs=300,  # paper, 4.2
            batch_size=512,  # paper, 4.2
            group=16,  # paper, 4.2: the examples of a GPU
            precision="auto",  # ours: bfloat16 on a GPU
            threads=16,
            evaluate_every=0,
        ),
        evaluation=evaluation.Domains(  # paper, B
            features="encoder",  # paper, B
            choose="seen",  # ours: the paper does not say on which images the learning rate is chosen
            linear=_LINEAR,
        ),
    )


get_config = imagenet1k


def _small(real: Config, **changes: Any) -> Config:
    head = dataclasses.replace(models.piran_head(), hidden=16, out=8)
    encoder = models.ViT(patch=16, width=16, depth=1, heads=2)
    method = methods.StudentTeacher(momentum=0.99, predictor=head)
    return dataclasses.replace(real, encoder=encoder, head=head, method=method, **changes)


_SMALL_LINEAR = dataclasses.replace(_LINEAR, batch_size=32, epochs=2)


def smoke() -> Config:
    """Some steps of `imagenet1k` with a small ViT on random images of different sizes: 8 groups of 4, both probes."""
    policies = (augment.byol_global1(32), augment.byol_global2(32), augment.simclr(image_size=32))
    real = imagenet1k()
    return _small(
        real,
        data=data.Synthetic(sizes="different"),
        views=Views(k=4, policies=(*policies, policies[0])),
        train=dataclasses.replace(real.train, steps=4, batch_size=32, group=4, log_every=1),
        evaluation=evaluation.Classification(linear=_SMALL_LINEAR),
    )


def smoke_domainnet() -> Config:
    """Two steps of `domainnet` at its 512 = 32 x 16 with a small ViT on random images of 20 classes in 6 domains."""
    real = domainnet()
    drawn = data.Synthetic(domains=data.DOMAINS, classes=20, classes_per_draw=16, examples=512)
    return _small(
        real,
        data=dataclasses.replace(drawn, sizes="different"),
        views=Views(k=5, policy=augment.simclr(image_size=32)),
        train=dataclasses.replace(real.train, steps=2, log_every=1),
        evaluation=evaluation.Domains(linear=_SMALL_LINEAR),
    )
