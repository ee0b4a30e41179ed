"""Koromilas 2025, ImageNet-1K: ResNet-50, 100 epochs, batch 512, LARS, k in {2, 3, 4}; MV-DHEL.

    mvcl data prepare imagenet2012     # once; needs the `tensorflow` extra and the archives, see docs/data.md
    mvcl train configs/koromilas/imagenet1k.py --workdir runs/imagenet1k

Section V, main table of results (ImageNet-1K, linear probe: MV-DHEL 61.2 with 2 views and 62.6 with 4). The other
objectives and numbers of views are chosen as in configs/koromilas/cifar10.py, with --objective.temperature 0.1.
"""

from mvcl import augment, data, evaluation, methods, models
from mvcl.training import Checkpoint, Config, Lars, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Tfds(name="imagenet2012", test_split="validation"),
        views=Views(k=4, policy=augment.simclr(strength=1.0)),
        encoder=models.ENCODERS["resnet50"](),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["mv_dhel"](temperature=0.1),
        optimizer=Lars(learning_rate=0.3, reference_batch=256, weight_decay=1e-6, warmup_epochs=10),
        train=Train(epochs=100, batch_size=512, threads=16),
        checkpoint=Checkpoint(every_steps=1000),
        evaluation=evaluation.Classification(sgd_learning_rate=1.6),
    )
