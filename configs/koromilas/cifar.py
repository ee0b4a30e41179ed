"""Koromilas 2025, CIFAR-10 and CIFAR-100: ResNet-18, 200 epochs, MV-DHEL on k = 4 views.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra; cifar100 likewise
    mvcl train koromilas/cifar --workdir runs/cifar10
    mvcl train koromilas/cifar:cifar100 --workdir runs/cifar100
    mvcl train koromilas/cifar:cifar10_released --workdir runs/cifar10-released     # as the authors' code trains it
    mvcl train koromilas/cifar:cifar100_released --workdir runs/cifar100-released

All cells of Tables II, III and V and of Fig. 3 and 4 are studies (`mvcl study --list`). Tables II and III
have k in {2, 3, 4}; the ablations of Section V-C, k = 2 to 8, have batch 128. One cell at a time:

    --views.k 2                                                   the number of views
    objective:mv_infonce --objective.negatives all                MV-InfoNCE as the authors' code computes it
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    objective:one_vs_rest objective.pair:nt_xent                  avg
    objective:poly_view --objective.temperature 0.5               PVC
    objective:mv_cl1                                              MV-CL1, Eq. 19
    objective:mv_cl2 --objective.energy sum                       MV-CL2, Eq. 20, as the authors' code computes it
    --train.batch-size 128 --views.k 8                            Fig. 3
    --train.batch-size 64                                         Fig. 4 (top) and Table V: batches of 64, 128 and 256
    --views.strategy fixed --views.reference-views 1 --views.k 8 --optimizer.reference-batch None
                                                                  Fig. 4 (bottom): 256 views, 32 examples of 8
    --objective.energy-weight 0.25                                k = 4 views with the energy of Eq. 15

    mvcl embed runs/cifar10-8 --output head --views 8 --out views-8.npz   # Fig. 3b-d: rank, uniformity, alignment

The runs of Fig. 3b-d are those of Fig. 3a, here --workdir runs/cifar10-8 at k = 8.

The fixed budget rounds n down: 128, 85, 64, 51, 42, 36, 32 examples for k = 2 to 8. Its batch of 256 views is the same
for every k, and so is the learning rate, 1.0, of appendix E's batch / 256. 256 views are the paper's example; Section
V-C has batch 128 for all ablations, so Fig. 4 (bottom) may have 128 views: add --train.batch-size 128
--optimizer.learning-rate 0.5; the authors' code has 1.0 for any batch.

Table II's accuracies suggest the CIFAR stem for CIFAR-100 (not verified). The authors' code has it for CIFAR-10 only,
and so have the variants as released.

Precision is float32, as released; --train.precision bfloat16 halves the bytes of activations.

Hardware: one GPU; a step holds 8.1 GB of temporaries in float32 (docs/how_to/recipes.md).
Cost: 118 PFLOP for each of the two, 5.5 for CIFAR-100 as released (docs/how_to/recipes.md); not timed here.
Ours: not run at this length; `mvcl study pilot --scale small` trains a small network on part of CIFAR-10.
"""

import dataclasses
from functools import partial
from typing import Literal

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def _encoder(stem: Literal["imagenet", "cifar"], stem_initial: Literal["same", "torch"]) -> models.ResNet:
    """ResNet-18."""
    return models.ResNet(  # paper, E
        depth=18,  # paper, E
        stem=stem,
        norm="batch",  # released, models/resnet.py; eps 1e-5, decay of running statistics 0.9
        batch_groups=1,  # released, configs/cifar_train_epochs200_bs256_05.yaml: sync_bn, all views in one pass
        width=64,  # released, models/resnet.py
        zero_init_residual=False,  # released, models/resnet.py
        initial="he_fan_out",  # released, models/resnet.py
        stem_initial=stem_initial,
    )


def _evaluation() -> evaluation.Classification:
    """k-NN and the linear layer, of SGD with linear decay."""
    return evaluation.Classification(  # paper, Tables II and III
        features="encoder",  # released, models/ssl.py, of the probe; of the k-NN ours
        knn_head=True,  # ours: V-A2 does not say of which output the k-NN is
        knn_k=200,  # paper, V-A2
        knn_temperature=0.07,  # ours: that of the paper's reference [40]
        labels_per_class=(5, 10),  # ours: not in the paper
        draws=10,  # ours: not in the paper
        linear=evaluation.LinearProbe(  # paper, E
            learning_rates=(0.1,),  # paper, E
            reference_batch=None,  # paper, E
            batch_size=1024,  # released, configs/cifar_eval.yaml
            epochs=200,  # paper, E; V-A1 100
            momentum=0.9,  # released, configs/cifar_eval.yaml
            weight_decay=1e-4,  # released, configs/cifar_eval.yaml
            decay="linear",  # released, configs/cifar_eval.yaml
            augment=True,  # released, configs/cifar_eval.yaml
            crop_padding=4,  # released, configs/cifar_eval.yaml
        ),
    )


def cifar10() -> Config:
    """CIFAR-10.

    Paper (Table II, linear probe): MV-DHEL 87.4 % with 2 views and 89.5 % with 4; the best baseline 86.0 % and 88.7 %.
    """
    return Config(
        data=data.Tfds(  # ours
            name="cifar10",  # paper, V-A
            train_split="train",  # paper, V-A
            test_split="test",  # paper, V-A
            classes=(),  # paper, V-A: all
        ),
        views=Views(
            k=4,  # paper, Table II
            strategy="growing",  # paper, V-A; released, --batch_size counts images
            policy=augment.simclr(  # paper, E: the list, and SimCLR's probabilities
                strength=0.5,  # released, models/ssl.py
                image_size=32,  # released, models/ssl.py
                crop_scale=(0.08, 1.0),  # released, models/ssl.py
                blur_probability=0.0,  # paper, E
                mean=(0.0,),  # released, models/ssl.py: not normalised
                std=(1.0,),  # released, models/ssl.py
            ),
        ),
        encoder=_encoder(
            stem="cifar",  # released, models/encoder.py, for CIFAR-10; ours for CIFAR-100
            stem_initial="same",  # ours; released, PyTorch's, of the stem of CIFAR-10
        ),
        head=models.koromilas_head(),  # released, models/encoder.py; to 128: paper, V-C2
        method=methods.Simclr(),  # paper, V
        objective=partial(  # paper, Eq. 12
            losses.mv_dhel,
            temperature=0.5,  # paper, E
            energy_weight=1.0,  # paper, Eq. 12
        ),
        optimizer=Sgd(  # paper, E
            learning_rate=1.0,  # paper, E
            scaling="linear",  # paper, E
            end_learning_rate=0.0,  # paper, E: cosine annealing
            reference_batch=256,  # paper, E; released, not scaled
            momentum=0.9,  # released, configs/cifar_train_epochs200_bs256_05.yaml
            weight_decay=1e-6,  # released, configs/cifar_train_epochs200_bs256_05.yaml
            decays="matrices",  # ours; released, train.py, all but names with "bn": norms of shortcuts too
            warmup_share=0.01,  # released, configs/cifar_train_epochs200_bs256_05.yaml
        ),
        train=Train(
            epochs=200,  # paper, E
            batch_size=256,  # paper, E
            precision="float32",  # released, train.py: no autocast
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(),
    )


def cifar100() -> Config:
    """CIFAR-100, with the settings of CIFAR-10.

    Paper (Table II, linear probe): MV-DHEL 59.4 % with 2 views and 62.7 % with 4; the best baseline 58.1 % and 61.1 %.
    """
    return dataclasses.replace(
        cifar10(),
        data=data.Tfds(  # ours
            name="cifar100",  # paper, V-A
            train_split="train",  # paper, V-A
            test_split="test",  # paper, V-A
            classes=(),  # paper, V-A: all
        ),
    )


def _released(
    real: Config, stem: Literal["imagenet", "cifar"], stem_initial: Literal["same", "torch"]
) -> Config:
    return dataclasses.replace(
        real,
        encoder=_encoder(stem, stem_initial),
        head=dataclasses.replace(
            models.koromilas_head(),  # released, models/encoder.py
            init="torch",  # released, models/encoder.py
        ),
        optimizer=dataclasses.replace(
            real.optimizer,
            reference_batch=None,  # released, train.py: 1.0 for any batch
        ),
        train=dataclasses.replace(
            real.train,
            steps=39_062,  # released, configs/cifar_train_epochs200_bs256_05.yaml
        ),
    )


def cifar10_released() -> Config:
    """CIFAR-10 as the authors' code trains it: PyTorch's initial weights, a rate of 1.0 for any batch, 39,062 steps.

    Not here: weight decay of the shortcuts' norms, 1e-6, and the smaller last batch of the probe. Paper: as CIFAR-10.
    """
    return _released(
        cifar10(),
        stem="cifar",  # released, models/encoder.py
        stem_initial="torch",  # released, models/resnet.py
    )


def cifar100_released() -> Config:
    """CIFAR-100 as the authors' code trains it: as CIFAR-10, with ImageNet's stem. Paper: as CIFAR-100."""
    return _released(
        cifar100(),
        stem="imagenet",  # released, models/encoder.py
        stem_initial="same",  # released, models/resnet.py
    )


get_config = cifar10


def smoke() -> Config:
    """Some steps of a narrow ResNet-18 on random images; its linear probe sweeps two learning rates."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(),
        encoder=models.ResNet(depth=18, stem="cifar", width=4),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.1, 0.5),
                reference_batch=256,
                batch_size=32,
                epochs=2,
                weight_decay=1e-4,
                decay="linear",
                crop_padding=4,
            )
        ),
    )
