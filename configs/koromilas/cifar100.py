"""Koromilas 2025, CIFAR-100: ResNet-18, 200 epochs, k = 4 of {2, 3, 4}, to 8 in the study of more views; MV-DHEL.

    mvcl data prepare cifar100          # once; needs the `tensorflow` extra
    mvcl train configs/koromilas/cifar100.py --workdir runs/cifar100

Section V, main table of results (CIFAR-100, linear probe: MV-DHEL 59.4 with 2 views and 62.7 with 4; the best baseline
58.1 and 61.1). Its other cells:

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
        data=data.Tfds(name="cifar100"),
        views=Views(k=4, policy=augment.simclr(strength=0.5, image_size=32, blur_probability=0.0)),
        encoder=models.ENCODERS["resnet18_cifar"](),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["mv_dhel"](temperature=0.5),
        optimizer=Sgd(learning_rate=1.0, reference_batch=256, weight_decay=1e-6),
        train=Train(epochs=200, batch_size=256),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(sgd_learning_rate=0.1),
    )
