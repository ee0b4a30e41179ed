"""Jeon 2025, CIFAR-10: ResNet-18, MoCo v2 with a queue of 4096, M = 8 views, the divergence-based similarity (DSF).

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train configs/jeon/cifar10.py --workdir runs/dsf

The tables for CIFAR: m = M/2 views go to each encoder, at a fixed number of views B M. Its other cells:

    objective:cross_pairs objective.pair:info_nce --objective.pair.no-in-batch-negatives --objective.pair.temperature .2
                                                                  loss_avg
    objective:mean_pair objective.pair:info_nce --objective.pair.no-in-batch-negatives --objective.pair.temperature .2
                                                                  fea_avg
    --views.k 2                                                   MoCo v2 with the same similarity
"""

from mvcl import augment, data, methods, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="cifar10"),
        views=Views(k=8, policy=augment.moco_v2(image_size=32, blur_probability=0.0), strategy="fixed"),
        encoder=models.ENCODERS["resnet18_cifar"](),
        head=models.HEADS["moco_v2"](),
        objective=methods.OBJECTIVES["dsf"](in_batch_negatives=False),
        method=methods.MocoV2(momentum=0.99, end_momentum=0.99, queue=4096),
        optimizer=Sgd(learning_rate=0.06, reference_batch=None, weight_decay=5e-4),
        train=Train(epochs=200, batch_size=512),
        checkpoint=Checkpoint(every_steps=1000),
    )
