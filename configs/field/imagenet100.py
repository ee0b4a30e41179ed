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
have the settings of ImageNet-1K, where their papers and code have no others. docs/papers/field.md says what is not
here: depth drop of the ViT, the features of its last two layers, and MMCR's momentum encoder.

Hardware: several GPUs, in bfloat16 there; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial
from typing import Literal

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Lars, Train, Views

_DATA = data.Tfds(  # released
    name="imagenet2012",  # released
    train_split="train",  # released
    test_split="validation",  # released
    classes=("imagenet100",),  # released
)


def _crops(k: int, global_views: int, blur_kernel: int, large: int = 224, small: int = 96) -> Views:  # paper
    """`global_views` crops of 30 % to 100 % of the area, the others of 5 % to 30 %, with the same colours."""
    crop = partial(  # released: colours of LeJEPA's README.md and of visreg/data/multicrop.py
        augment.byol_global1,
        blur_probability=0.5,  # LeJEPA: released, README.md; VISReg: paper, A.1
        blur_kernel=blur_kernel,
        solarise_probability=0.2,  # LeJEPA: released, README.md; VISReg: paper, A.1
    )
    return Views(
        k=k,
        strategy="growing",  # paper: LeJEPA, 6.1, and VISReg, A.1: a batch counts images
        global_views=global_views,
        policy=crop(large, crop_scale=(0.3, 1.0)),  # LeJEPA: released, README.md; VISReg: paper, A.1
        local_policy=crop(small, crop_scale=(0.05, 0.3)),  # LeJEPA: released, README.md; VISReg: paper, A.1
    )


def _head(hidden: int, out: int) -> models.MLPHead:
    """Three linear layers, with batch normalisation and ReLU after the first two."""
    return models.MLPHead(  # paper: LeJEPA and VISReg; released: VICReg and MMCR
        layers=3,  # paper: LeJEPA, Table 4, and VISReg, A.1; released: VICReg and MMCR
        hidden=hidden,
        out=out,
        activation="relu",  # released: LeJEPA, MINIMAL.md, VICReg and MMCR; VISReg has its own
        norm="batch",  # released: LeJEPA, MINIMAL.md, VICReg and MMCR; paper: VISReg, A.1
        output_norm="none",  # released: LeJEPA, MINIMAL.md, VICReg and MMCR; paper: VISReg, A.1
        init="lecun",  # ours; released, PyTorch's uniform
    )


def _resnet(depth: Literal[18, 50], zero_init_residual: bool) -> models.ResNet:
    """torchvision's ResNet, with statistics of the global batch."""
    return models.ResNet(  # paper: LeJEPA, 6.1; released: VICReg and MMCR
        depth=depth,
        stem="imagenet",  # released
        norm="batch",  # released
        batch_groups=1,  # released: VICReg and MMCR, synchronised; LeJEPA: ours
        width=64,  # released
        zero_init_residual=zero_init_residual,
        initial="he_fan_out",  # released, torchvision
        stem_initial="same",  # released, torchvision
    )


def _classification(linear: evaluation.LinearProbe) -> evaluation.Classification:
    """A linear layer, and what no paper has here: k-NN and few labels."""
    return evaluation.Classification(  # ours
        features="encoder",  # released
        knn_k=200,  # ours
        knn_temperature=0.07,  # ours
        labels_per_class=(5, 10),  # ours
        draws=10,  # ours
        linear=linear,
    )


# Neither paper's linear layer, on the class tokens of two layers, can be had here.
_LINEAR = evaluation.LinearProbe(  # ours
    learning_rates=(0.1, 0.01),  # ours
    reference_batch=None,  # ours
    batch_size=256,  # ours
    epochs=100,  # ours
    momentum=0.9,  # ours
    weight_decay=0.0,  # ours
    decay="cosine",  # ours
    augment=True,  # ours
    crop_padding=0,  # ours
)


def lejepa() -> Config:
    """LeJEPA: ResNet-50, 2 global and 6 local views, 400 epochs.

    Cost: 3,770 PFLOP; a step holds 219 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper (Table 7, linear probe, 8 views, weight 0.05): 84.32 %; at 0.001 76.67 %, at 0.5 77.72 %.
    """
    return Config(
        data=_DATA,
        views=_crops(
            k=8,  # paper, 6.1
            global_views=2,  # paper, 6.1
            blur_kernel=7,  # released, MINIMAL.md
        ),
        encoder=_resnet(50, zero_init_residual=False),  # paper, 6.1
        head=_head(2048, 512),  # released, MINIMAL.md and scripts/
        objective=partial(  # paper, Algorithm 2
            losses.lejepa,
            weight=0.05,  # paper, 6.1
            slices=1024,  # paper, 6.1
            knots=17,  # paper, 6.1
            t_max=3.0,  # released, MINIMAL.md; paper 5
        ),
        method=methods.Simclr(),  # paper, Algorithm 2: one network
        optimizer=AdamW(  # paper, 6.1
            b1=0.9,  # released, MINIMAL.md: PyTorch's
            b2=0.999,  # released, MINIMAL.md: PyTorch's
            eps=1e-8,  # released, MINIMAL.md: PyTorch's
            learning_rate=5e-4,  # paper, 6.1: of {5e-3, 5e-4}
            reference_batch=None,  # ours
            end_learning_rate=5e-7,  # released, README.md
            warmup_epochs=1,  # released, MINIMAL.md
            weight_decay=5e-4,  # released, README.md; paper {1e-1, 1e-2, 1e-5}
            decays="matrices",  # ours; released, all parameters
        ),
        train=Train(
            epochs=400,  # paper, Table 7
            batch_size=512,  # released, scripts/; paper at least 128
            precision="auto",  # released, README.md: bfloat16, which auto is on a GPU
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_classification(_LINEAR),  # ours
    )


def visreg() -> Config:
    """VISReg: ViT-B/16, 4 global and 6 local views, 100 epochs, the settings of ImageNet-1K.

    Cost: 6,400 PFLOP; a step holds 683 GB of temporaries in float32, over all devices (docs/how_to/recipes.md). No
    microbatches: the head's BatchNorm is over all views of a batch.
    Paper: none on ImageNet-100; ImageNet-1K, 400 epochs (Table 5, linear probe): 75.7 %.
    """
    return Config(
        data=_DATA,
        views=_crops(
            k=10,  # paper, A.1
            global_views=4,  # paper, A.1; 2 in 4.1
            blur_kernel=9,  # released, visreg/data/multicrop.py
        ),
        encoder=models.ViT(  # paper, A.1
            patch=16,  # paper, A.1
            width=768,  # paper, A.1
            depth=12,  # paper, A.1
            heads=12,  # paper, A.1
            frozen_patches=False,  # ours
            positions="learned",  # ours
            init="trunc_normal",  # ours
            activation="gelu",  # ours
        ),
        head=dataclasses.replace(_head(2048, 256), activation="gelu"),  # paper, A.1
        objective=partial(  # paper, Algorithm 1
            losses.visreg,
            weight=0.9,  # paper, 3.1
            scale=1.0,  # paper, 3.1
            shape=1.0,  # paper, 3.1
            center=1.0,  # paper, 3.1
            slices=4096,  # released, visreg/losses/visreg.py, and paper, 4.1, a GPU; paper, A.1 2048
            eps=1e-4,  # ours; released 1e-6
        ),
        method=methods.Simclr(),  # paper, Algorithm 1: one network
        optimizer=AdamW(  # paper, A.1
            b1=0.9,  # ours: PyTorch's
            b2=0.999,  # ours: PyTorch's
            eps=1e-8,  # ours: PyTorch's
            learning_rate=9e-4,  # paper, A.1
            reference_batch=None,  # ours
            end_learning_rate=9e-7,  # paper, A.1
            warmup_epochs=5,  # paper, A.1
            weight_decay=0.05,  # paper, A.1
            decays="matrices",  # ours
            clip_norm=1.0,  # released, configs/default.yaml
        ),
        train=Train(
            epochs=100,  # released, configs/default.yaml; paper 400
            batch_size=512,  # paper, A.1
            precision="auto",  # ours: bfloat16 on a GPU
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_classification(_LINEAR),  # ours
    )


def vicreg() -> Config:
    """VICReg: ResNet-18, two views, 400 epochs, solo-learn's recipe for ImageNet-100.

    Cost: 1,030 PFLOP; a step holds 19.1 GB of temporaries in float32 (docs/how_to/recipes.md).
    Released (solo-learn's README, linear probe): 79.22 %, and 79.40 % with its reader of images (DALI).
    Paper: none on ImageNet-100.
    """
    policy = augment.byol_global1(  # released, solo-learn: scripts/pretrain/imagenet-100/vicreg.yaml
        crop_scale=(0.2, 1.0),  # released, solo-learn
        blur_probability=0.5,  # released, solo-learn
        blur_kernel=0,  # released, solo-learn: Pillow's blur
        solarise_probability=0.1,  # released, solo-learn
    )
    return Config(
        data=_DATA,
        views=Views(k=2, policy=policy, strategy="growing"),  # released, solo-learn
        encoder=_resnet(18, zero_init_residual=False),  # released, solo-learn
        head=_head(2048, 2048),  # released, solo-learn
        objective=partial(  # paper, Eqs. 1-6
            losses.vicreg,
            invariance=25.0,  # released
            variance=50.0,  # released: 25, which the authors' code and `vicreg` halve, and solo-learn does not
            covariance=1.0,  # paper
            eps=1e-4,  # released
        ),
        method=methods.Simclr(),  # paper: one network
        optimizer=Lars(  # released, solo-learn
            learning_rate=0.3,  # released, solo-learn
            end_learning_rate=0.0,  # released, solo-learn
            reference_batch=256,  # released, solo-learn
            scaling="linear",  # released, solo-learn
            warmup_epochs=10,  # released, solo-learn
            weight_decay=1e-4,  # released, solo-learn
            decays="matrices",  # released, solo-learn: exclude_bias_n_norm
            momentum=0.9,  # released, solo-learn
            trust_coefficient=0.02,  # released, solo-learn
            clip=True,  # released, solo-learn: clip_lr
        ),
        train=Train(
            epochs=400,  # released, solo-learn
            batch_size=256,  # released, solo-learn: 2 GPUs of 128
            precision="auto",  # ours: bfloat16 on a GPU; released, solo-learn, float16
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_classification(  # ours: k-NN beside the released linear layer
            evaluation.LinearProbe(  # released, solo-learn: scripts/linear/imagenet-100/vicreg.yaml
                learning_rates=(0.3,),  # released, solo-learn
                reference_batch=None,  # released, solo-learn: for this batch
                batch_size=256,  # released, solo-learn
                epochs=100,  # released, solo-learn
                momentum=0.9,  # released, solo-learn
                weight_decay=0.0,  # released, solo-learn
                decay="steps",  # released, solo-learn
                milestones=(60, 80),  # released, solo-learn
                augment=True,  # released, solo-learn
                crop_padding=0,  # released, solo-learn
            )
        ),
    )


def mmcr() -> Config:
    """MMCR: ResNet-50, two views, 100 epochs, the settings of ImageNet-1K.

    Cost: 618 PFLOP; a step holds 565 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper: none with these settings.
    """
    # Views alternate between the two policies; the first k are used.
    first = augment.byol_global1(blur_kernel=0)  # released, mmcr/imagenet/data.py: Pillow's blur
    second = augment.byol_global2(blur_kernel=0)  # released, mmcr/imagenet/data.py: Pillow's blur
    return Config(
        data=_DATA,
        views=Views(k=2, policies=(first, second) * 4, strategy="growing"),  # released, mmcr/imagenet/data.py
        encoder=_resnet(50, zero_init_residual=True),  # released, mmcr/imagenet/models.py
        head=_head(8192, 512),  # released, mmcr/imagenet/models.py
        objective=partial(losses.mmcr, compression=0.0),  # released, mmcr/imagenet/loss_mmcr.py
        method=methods.Simclr(),  # released, mmcr/imagenet/models.py: one network
        optimizer=Lars(  # released, mmcr/imagenet/train.py
            learning_rate=0.6,  # released, pretrain_imagenet.py
            reference_batch=256,  # released, mmcr/imagenet/train.py
            scaling="linear",  # released, mmcr/imagenet/train.py
            end_learning_rate=4.8e-3,  # released, mmcr/imagenet/train.py: a thousandth
            warmup_epochs=10,  # released, mmcr/imagenet/train.py
            weight_decay=1e-6,  # released, pretrain_imagenet.py
            decays="matrices",  # released, mmcr/imagenet/train.py: weight_decay_filter
            momentum=0.9,  # released, mmcr/imagenet/train.py
            trust_coefficient=0.001,  # released, mmcr/imagenet/train.py
            clip=False,  # released, mmcr/imagenet/train.py
        ),
        train=Train(
            epochs=100,  # released, pretrain_imagenet.py
            batch_size=2048,  # released, pretrain_imagenet.py
            precision="auto",  # ours: bfloat16 on a GPU; released, mmcr/imagenet/train.py, float16
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_classification(  # ours: k-NN beside the released linear layer
            evaluation.LinearProbe(  # released, linear_classifier_imagenet.py
                learning_rates=(0.3,),  # released, linear_classifier_imagenet.py
                reference_batch=None,  # released, mmcr/imagenet/train_linear_classifier.py
                batch_size=2048,  # released, linear_classifier_imagenet.py
                epochs=100,  # released, linear_classifier_imagenet.py
                weight_decay=1e-6,  # released, linear_classifier_imagenet.py
                momentum=0.9,  # released, mmcr/imagenet/train_linear_classifier.py
                decay="cosine",  # released, mmcr/imagenet/train_linear_classifier.py
                augment=True,  # released, mmcr/imagenet/train_linear_classifier.py
                crop_padding=0,  # released, mmcr/imagenet/train_linear_classifier.py
            )
        ),
    )


get_config = lejepa


_CONVNET = models.ConvNet(widths=(4, 8), norm="batch")  # compiles faster than a ResNet


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
    crops = _crops(8, 2, blur_kernel=7, large=32, small=16)
    return _small(lejepa(), crops, _CONVNET, partial(losses.lejepa, slices=16))


def smoke_visreg() -> Config:
    """Some steps of `visreg` with a small ViT on crops of 32 and 16 pixels, and its evaluation."""
    encoder = models.ViT(patch=8, width=16, depth=1, heads=2)
    crops = _crops(10, 4, blur_kernel=9, large=32, small=16)
    return _small(visreg(), crops, encoder, partial(losses.visreg, slices=16))


def smoke_vicreg() -> Config:
    """Some steps of `vicreg` with a small ConvNet on small images, and its evaluation."""
    real = vicreg()
    policy = dataclasses.replace(real.views.policy, image_size=32)
    return _small(real, dataclasses.replace(real.views, policy=policy), _CONVNET, real.objective)


def smoke_mmcr() -> Config:
    """Some steps of `mmcr` with a small ConvNet on small images, and its evaluation."""
    real = mmcr()
    policies = tuple(dataclasses.replace(policy, image_size=32) for policy in real.views.policies)
    return _small(real, dataclasses.replace(real.views, policies=policies), _CONVNET, real.objective)
