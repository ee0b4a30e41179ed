"""ImageNet-100 without negatives: LeJEPA and VISReg on many crops, VICReg and MMCR on two views.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/how_to/data.md
    mvcl train field/imagenet100 --workdir runs/lejepa
    mvcl train field/imagenet100:visreg --workdir runs/visreg
    mvcl train field/imagenet100:vicreg --workdir runs/vicreg
    mvcl train field/imagenet100:mmcr --workdir runs/mmcr

LeJEPA's other settings, as options:

    --objective.weight 0.01               Table 7, which has 0.001 to 0.5
    --objective.knots 9 --objective.t-max 5.0   the 17 points of [-5, 5] of Section 6.1; 3 is the released code's
    --head.layers 2                       Table 4: a projector of two layers, of 2 x 2048
    --views.k 10                          Table 1b: 2 global and 8 local views

For MMCR, `--views.k 4` has four views, and `--objective.compression` is the released `--lmbda`.

LeJEPA and VICReg follow what was published for ImageNet-100, LeJEPA's paper and solo-learn's recipe; VISReg and MMCR
have the settings of ImageNet-1K, where their papers and code have no others, and ImageNet-100 is ours. The linear layer
is the released one for VICReg and MMCR. docs/papers/field.md has the origin of every value, and what is not here: depth
drop of the ViT, the features of its last two layers, and MMCR's momentum encoder.

Hardware: several GPUs, in bfloat16 there; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, models
from mvcl.training import AdamW, Checkpoint, Config, Lars, Train, Views

_DATA = data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",))


def _crops(k: int, global_views: int, blur_kernel: int, sizes: tuple[int, int] = (224, 96)) -> Views:
    """`global_views` crops of 30 % to 100 % of the area, the others of 5 % to 30 %, with the same colours."""
    large, small = (
        augment.byol_global1(
            size, crop_scale=scale, blur_probability=0.5, blur_kernel=blur_kernel, solarise_probability=0.2
        )
        for size, scale in zip(sizes, ((0.3, 1.0), (0.05, 0.3)))
    )
    return Views(k=k, policy=large, global_views=global_views, local_policy=small)


def _head(hidden: int, out: int) -> models.MLPHead:
    """Three linear layers, with batch normalisation and ReLU after the first two."""
    return models.MLPHead(layers=3, hidden=hidden, out=out, norm="batch")


# Neither paper's linear layer, on the class tokens of two layers, can be had here.
_LINEAR = evaluation.LinearProbe(learning_rates=(0.1, 0.01), batch_size=256, epochs=100)


def lejepa() -> Config:
    """LeJEPA: ResNet-50, 2 global and 6 local views, 400 epochs.

    Cost: 3,770 PFLOP; a step holds 219 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper (Table 7, linear probe, 8 views, weight 0.05): 84.32 %; at 0.001 76.67 %, at 0.5 77.72 %.
    """
    return Config(
        data=_DATA,
        views=_crops(8, 2, blur_kernel=7),
        encoder=models.ResNet(depth=50),
        head=_head(2048, 512),
        objective=partial(losses.lejepa, weight=0.05, slices=1024),
        optimizer=AdamW(learning_rate=5e-4, end_learning_rate=5e-7, warmup_epochs=1, weight_decay=5e-4),
        train=Train(epochs=400, batch_size=512, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(linear=_LINEAR),
    )


def visreg() -> Config:
    """VISReg: ViT-B/16, 4 global and 6 local views, 100 epochs, the settings of ImageNet-1K.

    Cost: 6,820 PFLOP; a step holds 733 GB of temporaries in float32, over all devices (docs/how_to/recipes.md), less
    with --train.microbatch.
    Paper: none on ImageNet-100; ImageNet-1K, 400 epochs (Table 5, linear probe): 75.7 %.
    """
    return Config(
        data=_DATA,
        views=_crops(10, 4, blur_kernel=9),
        encoder=models.ViT(patch=16, width=768, depth=12, heads=12),
        head=dataclasses.replace(_head(2048, 256), activation="gelu"),
        objective=partial(losses.visreg, weight=0.9, slices=4096),
        optimizer=AdamW(
            learning_rate=9e-4, end_learning_rate=9e-7, warmup_epochs=5, weight_decay=0.05, clip_norm=1.0
        ),
        train=Train(epochs=100, batch_size=512, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(linear=_LINEAR),
    )


def vicreg() -> Config:
    """VICReg: ResNet-18, two views, 400 epochs, solo-learn's recipe for ImageNet-100.

    Cost: 1,030 PFLOP; a step holds 19.1 GB of temporaries in float32 (docs/how_to/recipes.md).
    Released (solo-learn's README, linear probe): 79.22 %, and 79.40 % with its reader of images (DALI).
    Paper: none on ImageNet-100.
    """
    policy = augment.byol_global1(
        crop_scale=(0.2, 1.0), blur_probability=0.5, blur_kernel=0, solarise_probability=0.1
    )
    return Config(
        data=_DATA,
        views=Views(k=2, policy=policy),
        encoder=models.ResNet(depth=18),
        head=_head(2048, 2048),
        objective=partial(
            losses.vicreg, variance=50.0
        ),  # 25, which the authors' code halves and this one does not
        optimizer=Lars(
            learning_rate=0.3,
            reference_batch=256,
            warmup_epochs=10,
            weight_decay=1e-4,
            trust_coefficient=0.02,
            clip=True,
        ),
        train=Train(epochs=400, batch_size=256, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.3,), batch_size=256, epochs=100, decay="steps", milestones=(60, 80)
            )
        ),
    )


def mmcr() -> Config:
    """MMCR: ResNet-50, two views, 100 epochs, the settings of ImageNet-1K.

    Cost: 618 PFLOP; a step holds 565 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper: none with these settings.
    """
    # Views alternate between the two policies; the first k are used.
    policies = (augment.byol_global1(blur_kernel=0), augment.byol_global2(blur_kernel=0)) * 4
    return Config(
        data=_DATA,
        views=Views(k=2, policies=policies),
        encoder=models.ResNet(depth=50, zero_init_residual=True),
        head=_head(8192, 512),
        objective=partial(losses.mmcr, compression=0.0),
        optimizer=Lars(
            learning_rate=0.6,
            reference_batch=256,
            end_learning_rate=4.8e-3,
            warmup_epochs=10,
            weight_decay=1e-6,
            trust_coefficient=0.001,
        ),
        train=Train(epochs=100, batch_size=2048, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.3,), batch_size=2048, epochs=100, weight_decay=1e-6
            )
        ),
    )


get_config = lejepa


_CONVNET = models.ConvNet(widths=(4, 8))  # compiles faster than a ResNet


def _small(real: Config, views: Views, encoder: models.EncoderConfig, objective: losses.Loss) -> Config:
    """Five steps on random images, and two epochs of the linear layer."""
    linear = evaluation.LinearProbe(learning_rates=(0.1,), batch_size=32, epochs=2)
    return dataclasses.replace(
        real,
        data=data.Synthetic(sizes="different"),
        views=views,
        encoder=encoder,
        head=_head(16, 8),
        objective=objective,
        train=dataclasses.replace(real.train, steps=5, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(linear=linear),
    )


def smoke() -> Config:
    """Some steps of `lejepa` with a small ConvNet on crops of 32 and 16 pixels, and its evaluation."""
    real = lejepa()
    return _small(
        real,
        _crops(8, 2, blur_kernel=7, sizes=(32, 16)),
        _CONVNET,
        partial(losses.lejepa, slices=16),
    )


def smoke_visreg() -> Config:
    """Some steps of `visreg` with a small ViT on crops of 32 and 16 pixels, and its evaluation."""
    real = visreg()
    encoder = models.ViT(patch=8, width=16, depth=1, heads=2)
    return _small(
        real, _crops(10, 4, blur_kernel=9, sizes=(32, 16)), encoder, partial(losses.visreg, slices=16)
    )


def smoke_vicreg() -> Config:
    """Some steps of `vicreg` with a small ConvNet on small images, and its evaluation."""
    real = vicreg()
    policy = dataclasses.replace(real.views.policy, image_size=32)
    return _small(
        real,
        dataclasses.replace(real.views, policy=policy),
        _CONVNET,
        real.objective,
    )


def smoke_mmcr() -> Config:
    """Some steps of `mmcr` with a small ConvNet on small images, and its evaluation."""
    real = mmcr()
    policies = tuple(dataclasses.replace(policy, image_size=32) for policy in real.views.policies)
    return _small(
        real,
        dataclasses.replace(real.views, policies=policies),
        _CONVNET,
        real.objective,
    )
