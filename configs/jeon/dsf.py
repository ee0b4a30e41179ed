"""Jeon 2025, the divergence-based similarity (DSF): MoCo on M = 8 views, m = M/2 for each encoder.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train jeon/dsf --workdir runs/dsf
    mvcl train jeon/dsf:cifar10_moco --workdir runs/dsf-moco
    mvcl data prepare imagenet2012     # once; needs the archives too, see docs/how_to/data.md
    mvcl train jeon/dsf:imagenet100 --workdir runs/dsf100
    mvcl train jeon/dsf:imagenet100_moco --workdir runs/dsf100-moco

A variant for each row of Table 1, at a fixed number of views B M. All cells of the paper's tables and figures are
studies (`mvcl study --list`); as options of one run:

    --views.k 4 --train.batch-size 512          Figure 4: M = 4 with the same batch of 256; n = 2 batch / M
    --objective.temperature 0.9                 Table 3
    --train.epochs 800                          Figure 3
    --objective.queue-concentration batch_mean  one concentration for all queued keys, as the released code
    --evaluation.features head                  k-NN on the head's output, as the released code

The paper is followed where it speaks, then the released code; docs/papers/jeon.md has the origin of every value.
Learning rates: the paper prints them for ImageNet-100 alone, with a batch of 512: 0.03, and 0.06 for DSF, a ratio of 2.
There DSF has the released peak, 2.5e-3, and all baselines have 1.25e-3. CIFAR-10 has the released peaks: 0.06 for DSF
(batch 256) and 0.12 for MoCo (batch 1024), which at an equal batch is half of DSF's; loss_avg and fea_avg have 0.03
(batch 256).

Hardware: one GPU for CIFAR-10, several for ImageNet-100.
Ours: not run at this length; `mvcl study cifar --scale small` has MoCo v2 on part of CIFAR-10, a small network.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Sgd, Train, Views


def _evaluation(epochs: int = 30, batch_size: int = 256) -> evaluation.Classification:
    """The released protocol: k-NN, and a linear layer of learning rate 30 with a cosine over 30 epochs.

    The released command for CIFAR-10 names steps too, at epochs 5, 10, 15 and 20, which its code reads only with
    `--cos False`; here they are `--evaluation.linear.decay steps --evaluation.linear.milestones 5 10 15 20`.
    """
    probe = evaluation.LinearProbe(
        learning_rates=(30.0,), reference_batch=256, epochs=epochs, batch_size=batch_size
    )
    return evaluation.Classification(knn_k=200, knn_temperature=0.1, linear=probe)


def _resnet(width: int = 64) -> models.ResNet:
    return models.ResNet(depth=18, stem="cifar", width=width, batch_groups=8)


def _moco_v2(queue: int = 4096) -> methods.MocoV2:
    return methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=queue, queue_keys="one", shuffle_keys=True)


def cifar10() -> Config:
    """CIFAR-10: ResNet-18, MoCo v2 with a queue of 4096, its keys the only negatives.

    Cost: 198 PFLOP (docs/how_to/recipes.md).
    Paper (Table 1, DSF for 250 epochs): linear 91.21 %, k-NN 90.04 %.
    """
    return Config(
        data=data.Tfds(name="cifar10"),
        views=Views(k=8, policy=augment.dsf(image_size=32), strategy="fixed"),
        encoder=_resnet(),
        head=models.moco_v2_head(),
        objective=partial(losses.dsf, in_batch_negatives=False),
        method=_moco_v2(),
        optimizer=Sgd(learning_rate=0.06, reference_batch=256, weight_decay=5e-4),
        train=Train(epochs=250, batch_size=1024, precision="float32"),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def _cifar10_of_cosines(objective: losses.Loss) -> Config:
    """`cifar10` with another objective, at the learning rate of the released baseline for its batch."""
    dsf = cifar10()
    optimizer = dataclasses.replace(dsf.optimizer, learning_rate=0.03)
    return dataclasses.replace(dsf, objective=objective, optimizer=optimizer)


def cifar10_loss_avg() -> Config:
    """CIFAR-10, InfoNCE averaged over the pairs of a query and a key.

    Paper (Table 1, loss_avg for 250 epochs): linear 88.58 %, k-NN 88.28 %.
    """
    pair = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
    return _cifar10_of_cosines(losses.cross_pairs(pair))


def cifar10_fea_avg() -> Config:
    """CIFAR-10, InfoNCE of the mean query and the mean key.

    Paper (Table 1, fea_avg for 250 epochs): linear 88.02 %, k-NN 87.47 %.
    """
    pair = partial(losses.info_nce, temperature=0.1, in_batch_negatives=False)
    return _cifar10_of_cosines(losses.mean_pair(pair, renormalize=False))


def cifar10_moco() -> Config:
    """CIFAR-10, MoCo v2 itself: two views of four times as many images, for 800 epochs.

    Paper (Table 1, MoCo for 800 epochs): linear 88.10 %, k-NN 88.44 %.
    """
    config = _cifar10_of_cosines(partial(losses.info_nce, temperature=0.1, in_batch_negatives=False))
    views = dataclasses.replace(config.views, k=2)
    return dataclasses.replace(config, views=views, train=dataclasses.replace(config.train, epochs=800))


def _vit(width: int = 384, depth: int = 12, heads: int = 12) -> models.ViT:
    return models.ViT(
        patch=16,
        width=width,
        depth=depth,
        heads=heads,
        frozen_patches=True,
        positions="sincos",
        init="xavier_uniform",
    )


def _imagenet_policy(image_size: int = 224) -> augment.Policy:
    """The paper's policy, with the crops and the jitter of the released code for ImageNet-100."""
    return augment.dsf(
        image_size=image_size,
        crop_scale=(0.08, 1.0),
        saturation=0.2,
        mean=augment.IMAGENET_MEAN,
        std=augment.IMAGENET_STD,
    )


def imagenet100() -> Config:
    """ImageNet-100: ViT-S/16 with 12 heads, fixed positions and frozen patches, MoCo v3.

    Cost: 3,790 PFLOP (docs/how_to/recipes.md).
    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %.
    """
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",)),
        views=Views(k=8, policy=_imagenet_policy(), strategy="fixed"),
        encoder=_vit(),
        head=models.moco_v3_head(),
        objective=losses.dsf,
        method=methods.MocoV3(momentum=0.99, end_momentum=1.0),
        optimizer=AdamW(learning_rate=5e-3, reference_batch=256, weight_decay=0.1, warmup_epochs=15),
        train=Train(epochs=100, batch_size=512, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def imagenet100_released() -> Config:
    """ImageNet-100 with the views of the released code: BYOL's two policies, one for each half, without RandAugment.

    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %.
    """
    config = imagenet100()
    halves = (augment.byol_global1(blur_kernel=0),) * 4 + (augment.byol_global2(blur_kernel=0),) * 4
    return dataclasses.replace(config, views=dataclasses.replace(config.views, policies=halves))


def _imagenet100_of_cosines(objective: losses.Loss) -> Config:
    """`imagenet100` with another objective, at half the learning rate: 1.25e-3 for the batch of 128."""
    dsf = imagenet100()
    optimizer = dataclasses.replace(dsf.optimizer, learning_rate=2.5e-3)
    return dataclasses.replace(dsf, objective=objective, optimizer=optimizer)


def imagenet100_loss_avg() -> Config:
    """ImageNet-100, InfoNCE averaged over the pairs of a query and a key.

    Paper (Table 1, loss_avg for 100 epochs): linear 84.24 %, k-NN 76.62 %.
    """
    return _imagenet100_of_cosines(losses.cross_pairs(partial(losses.info_nce, temperature=0.2)))


def imagenet100_fea_avg() -> Config:
    """ImageNet-100, InfoNCE of the mean query and the mean key.

    Paper (Table 1, fea_avg for 100 epochs): linear 84.06 %, k-NN 76.94 %.
    """
    pair = partial(losses.info_nce, temperature=0.2)
    return _imagenet100_of_cosines(losses.mean_pair(pair, renormalize=False))


def imagenet100_moco() -> Config:
    """ImageNet-100, MoCo v3 itself: two views of 512 images, for 300 epochs.

    Paper (Table 1, MoCo v3 for 300 epochs): linear 81.52 %, k-NN 74.08 %.
    """
    config = _imagenet100_of_cosines(partial(losses.info_nce, temperature=0.2))
    return dataclasses.replace(
        config,
        views=dataclasses.replace(config.views, k=2),
        optimizer=dataclasses.replace(config.optimizer, learning_rate=1.25e-3, reference_batch=512),
        train=dataclasses.replace(config.train, epochs=300),
    )


get_config = cifar10


def _small(config: Config) -> Config:
    """Four steps of 8 examples, and two epochs of the linear layer."""
    train = dataclasses.replace(config.train, steps=4, batch_size=32, log_every=1)
    return dataclasses.replace(config, train=train, evaluation=_evaluation(epochs=2, batch_size=32))


def smoke() -> Config:
    """Some steps of `cifar10` with a narrow ResNet-18 and a short queue on random images, and its evaluation."""
    small = dataclasses.replace(
        cifar10(), data=data.Synthetic(), encoder=_resnet(width=4), method=_moco_v2(queue=32)
    )
    return _small(small)


def smoke_imagenet100() -> Config:
    """Some steps of `imagenet100` with a small ViT on random images of different sizes, and its evaluation."""
    real = imagenet100()
    head = dataclasses.replace(models.moco_v3_head(), hidden=16, out=8)
    return _small(
        dataclasses.replace(
            real,
            data=data.Synthetic(sizes="different"),
            views=dataclasses.replace(real.views, policy=_imagenet_policy(image_size=32)),
            encoder=_vit(width=16, depth=1, heads=2),
            head=head,
            method=methods.MocoV3(
                momentum=0.99, end_momentum=1.0, predictor=dataclasses.replace(head, layers=2)
            ),
        )
    )
