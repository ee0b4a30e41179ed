"""Koromilas 2025, CIFAR-10: ResNet-18, 200 epochs, k = 4 of {2, 3, 4}, to 8 in the study of more views; MV-DHEL.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train configs/koromilas/cifar10.py --workdir runs/cifar10

Section V, main table of results (CIFAR-10, linear probe: MV-DHEL 87.4 with 2 views and 89.5 with 4; the best baseline
86.0 and 88.7). Its other cells:

    --views.k 2                                                   the number of views
    objective:mv_infonce --objective.negatives all                MV-InfoNCE as the authors' code computes it
    objective:all_pairs objective.pair:nt_xent                    pwe, pairwise
    objective:one_vs_rest objective.pair:nt_xent                  avg
    objective:mv_cl1                                              the ablation of Eq. 19 (mv_cl2: Eq. 20)
    objective:poly_view --objective.temperature 0.5               PVC
"""

from mvcl import augment, data, evaluation, methods, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="cifar10"),
        views=Views(k=4, policy=augment.simclr(strength=0.5, image_size=32, blur_probability=0.0)),
        encoder=models.ENCODERS["resnet18_cifar"](),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["mv_dhel"](temperature=0.5),
        optimizer=Sgd(learning_rate=1.0, reference_batch=256, weight_decay=1e-6),
        train=Train(epochs=200, batch_size=256),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(sgd_learning_rate=0.1),
    )
