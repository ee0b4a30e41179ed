"""Koromilas 2025, ImageNet-100: ResNet-50, 200 epochs, k in {2, 3, 4}; MV-DHEL.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/koromilas/imagenet100.py --workdir runs/imagenet100

Section V, main table of results (ImageNet-100, linear probe: MV-DHEL 73.3 with 2 views and 77.2 with 4). The other
objectives and numbers of views are chosen as in configs/koromilas/cifar10.py.
"""

from mvcl import augment, data, evaluation, methods, models
from mvcl.training import Checkpoint, Config, Sgd, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation", classes=("imagenet100",)),
        views=Views(k=4, policy=augment.simclr(strength=1.0)),
        encoder=models.ENCODERS["resnet50"](),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["mv_dhel"](temperature=0.5),
        optimizer=Sgd(learning_rate=1.4, reference_batch=256, weight_decay=1e-6),
        train=Train(epochs=200, batch_size=256, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(sgd_learning_rate=0.5),
    )
