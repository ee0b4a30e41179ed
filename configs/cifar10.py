"""CIFAR-10: ResNet-18, MV-DHEL, 4 views, SimCLR's policy at strength 0.5; hours on a GPU.

    mvcl data prepare cifar10          # once; needs the `tensorflow` extra
    mvcl train configs/cifar10.py --workdir runs/cifar10

or, from a file of arrays:

    mvcl train configs/cifar10.py --workdir runs/cifar10 data:arrays --data.path cifar10.npz

Koromilas 2025, Section V: ResNet-18 with the CIFAR stem, 200 epochs, batch 256, SGD at 1.0 · batch / 256 with weight
decay 1e-6 and a cosine, temperature 0.5, colour strength 0.5.
"""

from mvcl import augment, data, methods, models
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
    )
