"""Koromilas 2025, CIFAR-10 and CIFAR-100: ResNet-18, 200 epochs, MV-DHEL on k = 4 views.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra; cifar100 likewise
    mvcl train configs/koromilas/cifar.py --workdir runs/cifar10
    mvcl train configs/koromilas/cifar.py:cifar100 --workdir runs/cifar100

The main table of Section V (Table II) has k in {2, 3, 4}, the study of more views goes to 8. The other cells:

    --views.k 2                                                   the number of views
    objective:mv_infonce --objective.negatives all                MV-InfoNCE as the authors' code computes it
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    objective:one_vs_rest objective.pair:nt_xent                  avg
    objective:mv_cl1                                              the ablation of Eq. 19 (mv_cl2: Eq. 20)
    objective:poly_view --objective.temperature 0.5               PVC

Hardware: one GPU; a step holds 8.1 GB of temporaries in float32 (docs/recipes.md).
Cost: 118 PFLOP for each of the two; not timed here.
Ours: not run at this length. docs/reproduction.md has all objectives on part of CIFAR-10, 5 epochs of a small network.
"""

import dataclasses
from functools import partial

from mvcl import augment, data, evaluation, losses, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def cifar10() -> Config:
    """CIFAR-10.

    Paper (Table II, linear probe): MV-DHEL 87.4 % with 2 views and 89.5 % with 4; the best baseline 86.0 % and 88.7 %.
    """
    return Config(
        data=data.Tfds(name="cifar10"),
        views=Views(k=4, policy=augment.simclr(strength=0.5, image_size=32, blur_probability=0.0)),
        encoder=models.ResNet(depth=18, stem="cifar"),
        head=models.koromilas_head(),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=Sgd(learning_rate=1.0, reference_batch=256, weight_decay=1e-6),
        train=Train(epochs=200, batch_size=256),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(
            linear=evaluation.LinearProbe(
                learning_rates=(0.1,), batch_size=1024, epochs=200, weight_decay=1e-4, decay="linear"
            )
        ),
    )


def cifar100() -> Config:
    """CIFAR-100, with the settings of CIFAR-10.

    Paper (Table II, linear probe): MV-DHEL 59.4 % with 2 views and 62.7 % with 4; the best baseline 58.1 % and 61.1 %.
    """
    return dataclasses.replace(cifar10(), data=data.Tfds(name="cifar100"))


get_config = cifar10


def smoke() -> Config:
    """Some steps of a narrow ResNet-18 on random images."""
    real = get_config()
    return dataclasses.replace(
        real,
        data=data.Synthetic(),
        encoder=models.ResNet(depth=18, stem="cifar", width=4),
        train=dataclasses.replace(real.train, steps=4, batch_size=16, log_every=1),
        evaluation=evaluation.Classification(linear=evaluation.LinearProbe(batch_size=16, epochs=2)),
    )
