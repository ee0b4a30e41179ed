from functools import partial

import pytest

from mvcl import augment, data, evaluation, losses, models
from mvcl.training import AdamW, Checkpoint, Config, Mesh, Train, Views


@pytest.fixture(scope="session")
def tiny():
    """A complete experiment of a few seconds: six steps, scored after the second and the fourth."""
    return Config(
        data=data.Digits(),
        views=Views(k=3, policy=augment.digits()),
        encoder=models.ConvNet(widths=(4, 8)),
        head=models.MLPHead(out=8, norm="batch", output_norm="batch"),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=AdamW(learning_rate=1e-2),
        train=Train(steps=6, batch_size=32, log_every=2, evaluate_every=2 / 44, peak_tflops=1e-3),
        mesh=Mesh(data=1),
        checkpoint=Checkpoint(every_steps=2),
        evaluation=evaluation.Classification(draws=1, labels_per_class=(5,)),
    )
