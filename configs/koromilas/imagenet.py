"""Koromilas 2025, ImageNet-100 and ImageNet-1K: ResNet-50, MV-DHEL on k = 4 views of {2, 3, 4}.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/how_to/data.md
    mvcl train koromilas/imagenet --workdir runs/imagenet100
    mvcl train koromilas/imagenet:imagenet1k --workdir runs/imagenet1k
    mvcl train koromilas/imagenet:imagenet100_released --workdir runs/imagenet100-released   # as the authors' code
    mvcl train koromilas/imagenet:imagenet1k_released --workdir runs/imagenet1k-released

Tables II, III, V and VI, whose cells are studies. One at a time on ImageNet-100, at
temperature 0.5:

    --views.k 2                                                   the number of views
    objective:mv_infonce --objective.negatives all                MV-InfoNCE as the authors' code computes it
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    objective:one_vs_rest objective.pair:nt_xent                  avg
    objective:poly_view --objective.temperature 0.5               PVC
    objective:mv_cl1                                              MV-CL1, Eq. 19 (Table VI)
    objective:mv_cl2 --objective.energy sum                       MV-CL2, Eq. 20, as the authors' code computes it
    --train.batch-size 64                                         Table V: 64, 128 and 256 examples

On ImageNet-1K the temperature is 0.1: for mv_infonce, mv_cl1 and mv_cl2 with --objective.temperature 0.1, for pwe and
avg with --objective.pair.temperature 0.1; poly_view has it by default.

The paper contradicts itself on ImageNet-1K's optimiser. This follows appendix E, LARS, whose numbers are those of the
code it builds on (github.com/AndrewAtanov/simclr-pytorch: batch 512, learning rate 0.6). Section V and the authors'
code have SGD, which the code trains at batch 256 for 200 epochs: `imagenet1k_released`.

Appendix F says that MV-InfoNCE and MV-CL1 have the same negatives. In the paper's formulas they do, in the authors'
code they do not; without --objective.negatives all, mv_infonce is the formula, and Table VI's comparison is controlled.

The authors' code trains ImageNet-100 for 101,562 steps of 256, which are 200 epochs of 130,000 images; the bundled list
(Tian et al. 2020) has 126,689, so theirs is another subset of 100 classes. --data.classes takes the file of another.

Precision is float32, as released; --train.precision bfloat16 halves the bytes of activations.

Hardware: several GPUs; see the variants.
Ours: not run.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, methods, models
from mvcl.training import Checkpoint, Config, Lars, Sgd, Train, Views


def _policy(image_size: int = 224) -> augment.Policy:  # released, models/ssl.py
    return augment.simclr(  # paper, E: the list, and SimCLR's probabilities
        strength=1.0,  # released, models/ssl.py
        image_size=image_size,
        crop_scale=(0.08, 1.0),  # released, models/ssl.py
        blur_probability=0.5,  # paper, E; the kernel of 23: released, models/ssl.py
        blur_sigma=(0.2, 2.0),  # released, models/ssl.py
        mean=(0.0,),  # released, models/ssl.py: not normalised
        std=(1.0,),  # released, models/ssl.py
    )


def _evaluation(
    learning_rate: float, batch_size: int, epochs: int, weight_decay: float
) -> evaluation.Classification:
    """k-NN and the linear layer, of SGD with linear decay."""
    return evaluation.Classification(  # paper, Tables II and III
        features="encoder",  # released, models/ssl.py, of the probe; of the k-NN ours
        knn_head=True,  # ours: V-A2 does not say of which output the k-NN is
        knn_k=200,  # paper, V-A2
        knn_temperature=0.07,  # ours: that of the paper's reference [40]
        labels_per_class=(5, 10),  # ours: not in the paper
        draws=10,  # ours: not in the paper
        linear=evaluation.LinearProbe(  # paper, E
            learning_rates=(learning_rate,),
            reference_batch=None,  # paper, E
            batch_size=batch_size,
            epochs=epochs,
            momentum=0.9,  # released, configs/imagenet-100_eval.yaml
            weight_decay=weight_decay,
            decay="linear",  # released, configs/imagenet-100_eval.yaml
            augment=True,  # released, configs/imagenet-100_eval.yaml
            crop_padding=0,  # released, configs/imagenet-100_eval.yaml
        ),
    )


def _sgd(learning_rate: float, reference_batch: int | None) -> Sgd:
    """SGD with the warm-up and decay that both ImageNets have."""
    return Sgd(  # paper, E
        learning_rate=learning_rate,
        end_learning_rate=0.0,  # paper, E: cosine annealing
        reference_batch=reference_batch,
        scaling="linear",  # paper, E
        momentum=0.9,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml
        weight_decay=1e-6,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml
        decays="matrices",  # ours; released, train.py, all but names with "bn": norms of shortcuts too
        warmup_share=0.1,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml
    )


def imagenet100() -> Config:
    """ImageNet-100, 200 epochs, batch 256, SGD.

    Cost: 2,450 PFLOP; a step holds 141 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper (Table II, linear probe): MV-DHEL 73.3 % with 2 views and 77.2 % with 4; the best baseline 72.2 % and 74.4 %.
    """
    return Config(
        data=data.Tfds(  # ours
            name="imagenet2012",  # paper, V-A
            train_split="train",  # paper, V-A
            test_split="validation",  # paper, V-A
            classes=("imagenet100",),  # ours: the list of Tian et al. 2020
        ),
        views=Views(
            k=4,  # paper, Table II
            strategy="growing",  # paper, V-A; released, --batch_size counts images
            policy=_policy(),
        ),
        encoder=models.ResNet(  # paper, E
            depth=50,  # paper, E
            stem="imagenet",  # released, models/encoder.py
            norm="batch",  # released, models/resnet.py; eps 1e-5, decay of running statistics 0.9
            batch_groups=1,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml: sync_bn, one pass
            width=64,  # released, models/resnet.py
            zero_init_residual=False,  # released, models/resnet.py
            initial="he_fan_out",  # released, models/resnet.py
            stem_initial="same",  # released, models/resnet.py
        ),
        head=models.koromilas_head(),  # released, models/encoder.py; to 128: paper, V-C2
        method=methods.Simclr(),  # paper, V
        objective=partial(  # paper, Eq. 12
            losses.mv_dhel,
            temperature=0.5,  # paper, E
            energy_weight=1.0,  # paper, Eq. 12
        ),
        optimizer=_sgd(  # paper, E
            learning_rate=1.4,  # paper, E
            reference_batch=256,  # paper, E
        ),
        train=Train(
            epochs=200,  # paper, E
            batch_size=256,  # paper, E
            precision="float32",  # released, train.py: no autocast
            threads=16,
        ),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=_evaluation(
            learning_rate=0.5,  # paper, E
            batch_size=512,  # released, configs/imagenet-100_eval.yaml
            epochs=200,  # paper, E; V-A1 100
            weight_decay=1e-4,  # released, configs/imagenet-100_eval.yaml
        ),
    )


def imagenet1k() -> Config:
    """ImageNet-1K, 100 epochs, batch 512, LARS.

    Cost: 12,400 PFLOP; a step holds 282 GB of temporaries in float32, over all devices (docs/how_to/recipes.md).
    Paper (Table II, linear probe): MV-DHEL 61.2 % with 2 views and 62.6 % with 4; the best baseline 60.0 % and 62.4 %.
    """
    return dataclasses.replace(
        imagenet100(),
        data=data.Tfds(  # ours
            name="imagenet2012",  # paper, V-A
            train_split="train",  # paper, V-A
            test_split="validation",  # paper, V-A
            classes=(),  # paper, V-A: all
        ),
        objective=partial(  # paper, Eq. 12
            losses.mv_dhel,
            temperature=0.1,  # paper, E
            energy_weight=1.0,  # paper, Eq. 12
        ),
        optimizer=Lars(  # paper, E; V-A and released SGD
            learning_rate=0.3,  # paper, E
            end_learning_rate=0.0,  # paper, E: cosine annealing
            reference_batch=256,  # paper, E
            scaling="linear",  # paper, E
            momentum=0.9,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
            weight_decay=1e-6,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
            decays="matrices",  # paper, E: LARS decays no biases and norms
            warmup_share=0.1,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
            trust_coefficient=0.001,  # released, AndrewAtanov/simclr-pytorch
            clip=False,  # released, AndrewAtanov/simclr-pytorch
        ),
        train=Train(
            epochs=100,  # paper, E; released 200
            batch_size=512,  # paper, E; released 256
            precision="float32",  # released, train.py: no autocast
            threads=16,
        ),
        evaluation=_evaluation(
            learning_rate=1.6,  # paper, E
            batch_size=4096,  # released, configs/imagenet1k_eval.yaml
            epochs=100,  # paper, E; released 90
            weight_decay=0.0,  # released, configs/imagenet1k_eval.yaml
        ),
    )


def _released(real: Config, optimizer: Sgd, train: Train) -> Config:
    return dataclasses.replace(
        real,
        head=dataclasses.replace(
            models.koromilas_head(),  # released, models/encoder.py
            init="torch",  # released, models/encoder.py
        ),
        optimizer=optimizer,
        train=train,
    )


def imagenet100_released() -> Config:
    """ImageNet-100 as the authors' code trains it: PyTorch's initial head, a rate of 1.4 for any batch, 101,562 steps.

    Not here: their classes, weight decay of the shortcuts' norms, 1e-6, test images of which 7/8 of both sides are
    resized, and the smaller last batch of the probe. Cost and paper: as ImageNet-100.
    """
    real = imagenet100()
    return _released(
        real,
        optimizer=_sgd(
            learning_rate=1.4,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml
            reference_batch=None,  # released, train.py
        ),
        train=dataclasses.replace(
            real.train,
            steps=101_562,  # released, configs/imagenet-100_train_epochs200_bs256_05.yaml
        ),
    )


def imagenet1k_released() -> Config:
    """ImageNet-1K as the authors' code trains it: SGD at 0.3, batch 256, 1,000,912 steps, which are 200 epochs.

    What is not here is that of ImageNet-100. Cost: twice that of ImageNet-1K. Paper: as ImageNet-1K.
    """
    real = imagenet1k()
    return dataclasses.replace(
        _released(
            real,
            optimizer=_sgd(
                learning_rate=0.3,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
                reference_batch=None,  # released, train.py
            ),
            train=dataclasses.replace(
                real.train,
                steps=1_000_912,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
                batch_size=256,  # released, configs/imagenet1k_train_epochs100_bs256_01.yaml
            ),
        ),
        evaluation=_evaluation(
            learning_rate=1.6,  # released, configs/imagenet1k_eval.yaml
            batch_size=4096,  # released, configs/imagenet1k_eval.yaml
            epochs=90,  # released, configs/imagenet1k_eval.yaml
            weight_decay=0.0,  # released, configs/imagenet1k_eval.yaml
        ),
    )


get_config = imagenet100


def smoke() -> Config:
    """Some steps of a narrow ResNet-50 on random images of different sizes; the probe is small, with augmentation."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(sizes="different"),
        views=Views(k=4, policy=_policy(image_size=32)),
        encoder=models.ResNet(depth=50, width=4),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.5, 0.1),
                reference_batch=256,
                batch_size=32,
                epochs=2,
                weight_decay=1e-4,
                decay="linear",
            )
        ),
    )
