import json
from functools import partial

import pytest

from mvcl import augment, data, evaluation, losses, models, training
from mvcl.training import AdamW, Checkpoint, Config, Mesh, Train, Views, _folder


@pytest.fixture(scope="session")
def tiny():
    """A complete experiment of a few seconds: six steps, two an epoch, scored after the second and the fourth."""
    return Config(
        data=data.Synthetic(image_size=8, channels=1, examples=88),
        views=Views(k=3, policy=augment.Policy(image_size=8, mean=(0.5,), std=(0.5,))),  # crops and flips
        encoder=models.MLP(widths=(8,)),
        head=models.MLPHead(out=8, norm="batch", output_norm="batch"),
        objective=partial(losses.mv_dhel, temperature=0.5),
        optimizer=AdamW(learning_rate=1e-2),
        train=Train(steps=6, batch_size=32, log_every=2, evaluate_every=1.0, peak_tflops=1e-3),
        mesh=Mesh(data=1),
        checkpoint=Checkpoint(every_steps=2),
        evaluation=evaluation.Classification(knn_k=9, draws=1, labels_per_class=(5,), batch_size=32),
    )


@pytest.fixture(scope="session")
def whole(tiny, tmp_path_factory):
    """Folder and table of an undisturbed run."""
    workdir = tmp_path_factory.mktemp("runs") / "whole"
    return workdir, training.train(tiny, workdir)


@pytest.fixture(scope="session")
def write_run():
    """Writes a config and a state, by default the initial one, as a run of no steps."""

    def write(config, folder, state=None):
        run = training.prepare(config)
        folder.mkdir(exist_ok=True)
        _folder.claim(folder, run.config, run.splits)
        checkpoints = training.Checkpoints(folder / "checkpoints", 1)
        checkpoints.save(0, run.program.init() if state is None else state, {})
        checkpoints.close()
        return folder

    return write


@pytest.fixture(scope="session")
def rows():
    """Reads the log of a run."""
    return lambda workdir: [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]
