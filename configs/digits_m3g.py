"""Handwritten digits with the multi-marginal matching gap (M3G) of 4 views; offline, on 2 CPU cores.

    mvcl train configs/digits_m3g.py --workdir runs/digits_m3g

Piran 2024 trains M3G on 64 examples a device. Everything else is configs/digits.py.
"""

from mvcl import augment, data, methods, models
from mvcl.training import AdamW, Checkpoint, Config, Train, Views


def get_config() -> Config:
    """The experiment."""
    return Config(
        data=data.Digits(),
        views=Views(k=4, policy=augment.policy("digits")),
        encoder=models.ConvNet(),
        head=models.HEADS["koromilas"](),
        objective=methods.OBJECTIVES["m3g"](epsilon=0.2),
        optimizer=AdamW(learning_rate=1e-3, weight_decay=1e-4, warmup_epochs=2),
        train=Train(epochs=30, batch_size=64, evaluate_every=10),
        checkpoint=Checkpoint(every_steps=200),
    )
