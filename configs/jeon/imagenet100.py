"""Jeon 2025, the divergence-based similarity (DSF), ImageNet-100: MoCo v3 on M = 8 views, m = M/2 for each encoder.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/how_to/data.md
    mvcl train jeon/imagenet100 --workdir runs/dsf100
    mvcl train jeon/imagenet100:moco --workdir runs/dsf100-moco
    mvcl train jeon/imagenet100:dsf_released --workdir runs/dsf100-released

A variant for each row of Table 1, at a fixed number of views B M. The paper is followed where it speaks, then the
released code: NAME_released has the other settings of that code too, decay of all parameters and
PyTorch's initial weights of the heads. It trains MoCo and DSF; loss_avg and fea_avg, which it does not have, take the
same settings. The views are the released ones in all rows, whose numbers are of that code; `randaugment` has the
paper's list for DSF.
Learning rates: the paper prints them for a batch of 512: 0.03, and 0.06 for DSF, a ratio of 2. DSF has the released
peak, 2.5e-3, and all baselines have 1.25e-3.

Hardware: several GPUs.
Ours: not run at this length.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def _evaluation(
    epochs: int = 30,  # released
    batch_size: int = 256,  # released
) -> evaluation.Classification:
    """The released protocol: k-NN, and a linear layer of learning rate 30 with a cosine over 30 epochs."""
    return evaluation.Classification(  # paper, 5.2
        features="encoder",  # paper, 5.2, of the linear layer; of k-NN, see knn_head
        knn_head=True,  # released, main_mocov3*.py, knn(): the network with its head
        knn_k=200,  # paper, 5.2
        knn_temperature=0.1,  # released, main_mocov3*.py: --knn-t
        labels_per_class=(5, 10),  # ours: not in the paper
        draws=10,  # ours: not in the paper
        linear=evaluation.LinearProbe(  # released, main_linclsv3.py
            learning_rates=(30.0,),  # released
            reference_batch=256,  # released
            batch_size=batch_size,
            epochs=epochs,
            momentum=0.9,  # released
            weight_decay=0.0,  # released
            decay="cosine",  # released: the default of main_linclsv3.py
            augment=True,  # released
            crop_padding=0,  # released
        ),
    )


def _vit(
    width: int = 384,  # paper, 5.1: ViT-S
    depth: int = 12,  # paper, 5.1: ViT-S
    heads: int = 12,  # released, utils/models/vits.py
) -> models.ViT:
    return models.ViT(  # paper, 5.1
        patch=16,  # paper, 5.1
        width=width,
        depth=depth,
        heads=heads,
        frozen_patches=True,  # released, utils/models/vits.py
        positions="sincos",  # released, utils/models/vits.py
        init="xavier_uniform",  # released, utils/models/vits.py
        activation="gelu",  # released, utils/models/vits.py
    )


def _policies(
    k: int = 8,  # paper, Table 1
    image_size: int = 224,  # released, main_mocov3*.py
) -> tuple[augment.Policy, ...]:
    """BYOL's two policies, one for each half of the views."""
    first = augment.byol_global1(  # released, main_mocov3*.py: augmentation1
        image_size=image_size,
        blur_kernel=0,  # released, main_mocov3*.py: Pillow's blur
    )
    second = augment.byol_global2(  # released, main_mocov3*.py: augmentation2
        image_size=image_size,
        blur_kernel=0,  # released, main_mocov3*.py: Pillow's blur
    )
    return (first,) * (k // 2) + (second,) * (k // 2)  # released, main_mocov3*.py


def _randaugment(image_size: int = 224) -> augment.Policy:  # released, main_mocov3_multiview.py
    """The paper's policy, with the crops and the jitter of the released code for ImageNet-100."""
    return augment.dsf(  # paper, 5.1, the list; released, train_moco_cifar_multiview.py, the strengths
        image_size=image_size,
        crop_scale=(0.08, 1.0),  # released, main_mocov3_multiview.py
        saturation=0.2,  # released, main_mocov3_multiview.py
        mean=augment.IMAGENET_MEAN,  # released, main_mocov3_multiview.py
        std=augment.IMAGENET_STD,  # released, main_mocov3_multiview.py
    )


def _moco_v3(head: models.MLPHead) -> methods.MocoV3:
    return methods.MocoV3(  # paper, 5.1
        momentum=0.99,  # paper, 5.6
        end_momentum=1.0,  # released: --moco-m-cos
        evaluate="online",  # released, main_mocov3.py: base_encoder
        predictor=dataclasses.replace(head, layers=2),  # released, utils/models/mocov3.py
    )


def _info_nce() -> losses.Loss:
    """InfoNCE of the baselines on ImageNet-100, against the keys of the batch."""
    return partial(
        losses.info_nce,  # paper, 4.5 and 5.1
        temperature=0.2,  # released, README.md: --moco-t .2, in DSF's command, which does not read it; default 1
        symmetric=False,  # released, utils/models/mocov3.py: both directions are the method's
        in_batch_negatives=True,  # released, utils/models/mocov3.py
    )


def dsf() -> Config:
    """ImageNet-100: ViT-S/16 with 12 heads, fixed positions and frozen patches, MoCo v3.

    Cost: 3,550 PFLOP (docs/how_to/recipes.md).
    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %.
    """
    return Config(
        data=data.Tfds(  # paper, 5.1
            name="imagenet2012",  # paper, 5.1
            train_split="train",  # paper, 5.1
            test_split="validation",  # released
            classes=("imagenet100",),  # released, IN100.txt; paper, 100 classes drawn at random
        ),
        views=Views(
            k=8,  # paper, Table 1
            policies=_policies(),  # released, main_mocov3*.py; paper, 5.1, see randaugment
            strategy="fixed",  # paper, 5.3
            reference_views=2,  # paper, 5.3: B of MoCo
        ),
        encoder=_vit(),
        head=models.moco_v3_head(),  # released, utils/models/mocov3.py
        objective=partial(  # paper, Eqs. 10 and 11
            losses.dsf,
            temperature=1.0,  # paper, 5.5
            queue_concentration="own",  # paper, 4.2
            normalize_concentration=True,  # paper, Eq. 8
            resultant_scale=0.95,  # paper, Eq. 8
            mean_resultant="estimate",  # released, utils/models/dsf.py: A = R; paper, Eq. 9, "exact"
            divergence="forward",  # paper, Eq. 9
            in_batch_negatives=True,  # released: the keys of the global batch
        ),
        method=_moco_v3(models.moco_v3_head()),  # paper, 5.1
        optimizer=AdamW(  # paper, 5.6
            learning_rate=5e-3,  # released, main_mocov3.py: 2.5e-3 at 128; paper 0.06
            end_learning_rate=0.0,  # released, main_mocov3.py: a cosine to zero
            reference_batch=256,  # released, main_mocov3.py
            scaling="linear",  # released, main_mocov3.py
            weight_decay=0.1,  # paper, 5.6
            decays="matrices",  # ours; released, all, as in dsf_released
            warmup_epochs=15,  # released, main.sh: --warmup-epochs 15; default of main_mocov3.py 10
            b1=0.9,  # released: PyTorch's
            b2=0.999,  # released: PyTorch's
            eps=1e-8,  # released: PyTorch's
        ),
        train=Train(
            epochs=100,  # paper, Table 1
            batch_size=512,  # paper, 5.3: 512 x 2 and 128 x 8 views
            precision="auto",  # ours: bfloat16 on a GPU; released, float16 autocast
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def randaugment() -> Config:
    """ImageNet-100 with the paper's list of augmentations, the same for all views: RandAugment, jitter, blur, flip.

    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %.
    """
    config = dsf()
    views = dataclasses.replace(config.views, policy=_randaugment(), policies=())
    return dataclasses.replace(config, views=views)


def _of_cosines(objective: losses.Loss) -> Config:
    """`dsf` with another objective, at half the learning rate: 1.25e-3 for the batch of 128."""
    own = dsf()
    optimizer = dataclasses.replace(own.optimizer, learning_rate=2.5e-3)  # ours: half of DSF's, paper, 5.6
    return dataclasses.replace(own, objective=objective, optimizer=optimizer)


def loss_avg() -> Config:
    """ImageNet-100, InfoNCE averaged over the pairs of a query and a key.

    Paper (Table 1, loss_avg for 100 epochs): linear 84.24 %, k-NN 76.62 %.
    """
    return _of_cosines(losses.cross_pairs(_info_nce()))  # paper, Algorithm 1


def fea_avg() -> Config:
    """ImageNet-100, InfoNCE of the mean query and the mean key.

    Paper (Table 1, fea_avg for 100 epochs): linear 84.06 %, k-NN 76.94 %.
    """
    return _of_cosines(losses.mean_pair(_info_nce(), renormalize=False))  # paper, Algorithm 1


def moco() -> Config:
    """ImageNet-100, MoCo v3 itself: two views of 512 images, for 300 epochs.

    Paper (Table 1, MoCo v3 for 300 epochs): linear 81.52 %, k-NN 74.08 %.
    """
    config = _of_cosines(_info_nce())
    optimizer = dataclasses.replace(
        config.optimizer,
        learning_rate=1.25e-3,  # ours: half of DSF's, as the paper's ratio of 0.03 to 0.06
        reference_batch=512,  # paper, 5.6: the batch of its rates
    )
    return dataclasses.replace(
        config,
        views=dataclasses.replace(
            config.views,
            k=2,  # paper, Table 1
            policies=_policies(2),  # released, main_mocov3.py
        ),
        optimizer=optimizer,
        train=dataclasses.replace(config.train, epochs=300),  # paper, Table 1
    )


def _as_released(config: Config) -> Config:
    """A recipe for ImageNet-100 with all settings of the released code but its float16 with a loss scale."""
    head = dataclasses.replace(models.moco_v3_head(), init="torch")  # released: nn.Linear
    return dataclasses.replace(
        config,
        head=head,
        method=_moco_v3(head),
        optimizer=dataclasses.replace(config.optimizer, decays="all"),  # released: model.parameters()
    )


def dsf_released() -> Config:
    """ImageNet-100 and DSF with the settings of the released code.

    Paper (Table 1, DSF for 100 epochs): linear 85.66 %, k-NN 79.00 %.
    """
    return _as_released(dsf())


def loss_avg_released() -> Config:
    """`loss_avg` with the settings of the released code, which does not have the loss."""
    return _as_released(loss_avg())


def fea_avg_released() -> Config:
    """`fea_avg` with the settings of the released code, which does not have the loss."""
    return _as_released(fea_avg())


def moco_released() -> Config:
    """ImageNet-100 and MoCo v3 with the settings of the released code.

    Paper (Table 1, MoCo v3 for 300 epochs): linear 81.52 %, k-NN 74.08 %.
    """
    return _as_released(moco())


get_config = dsf


def _small(config: Config) -> Config:
    """Four steps of 8 examples, and two epochs of the linear layer."""
    train = dataclasses.replace(config.train, steps=4, batch_size=32, log_every=1)
    return dataclasses.replace(config, train=train, evaluation=_evaluation(epochs=2, batch_size=32))


def smoke() -> Config:
    """Some steps of `dsf` with a small ViT on random images of different sizes, and its evaluation."""
    real = dsf()
    head = dataclasses.replace(models.moco_v3_head(), hidden=16, out=8)
    return _small(
        dataclasses.replace(
            real,
            data=data.Synthetic(sizes="different"),
            views=dataclasses.replace(real.views, policies=_policies(image_size=32)),
            encoder=_vit(width=16, depth=1, heads=2),
            head=head,
            method=_moco_v3(head),
        )
    )
