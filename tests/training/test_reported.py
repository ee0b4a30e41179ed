"""What runs report while they work; `tests/test_progress.py` tests how it is printed."""

import dataclasses
import io

import pytest

from mvcl import training
from mvcl._progress import Progress, _Work
from mvcl.training import _seeds


class Recorded(Progress):
    """Records what is done, and the loops as (what, total, unit, items)."""

    def __init__(self):
        super().__init__(io.StringIO())
        self.done, self.loops = [], []

    def _inside(self, work):
        if isinstance(work, _Work) and not work._unit:
            self.done.append(work.name())
        return super()._inside(work)

    def __call__(self, items, what, total=None, unit="batches"):
        count = 0
        for item in super().__call__(items, what, total, unit):
            yield item
            count += 1
        self.loops.append((what, total, unit, count))


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    """The folder of a run that is scored once, and its record."""
    folder, record = tmp_path_factory.mktemp("run") / "run", Recorded()
    often = dataclasses.replace(tiny, train=dataclasses.replace(tiny.train, evaluate_every=4 / 44))
    training.train(often, folder, progress=record)
    return folder, record


def test_everything_in_a_run_is_reported(run):
    _, record = run
    assert [name for name in record.done if not name.startswith(("saving", "writing"))] == [
        "opening the data",
        "building the model",
        "reading the newest checkpoint",
        "initialising the parameters",
        "reading the first batch",
        "compiling the training step",
        "compiling the chance level",
        "reading images for the report",
        "compiling the views",
        *(
            f"{row}: {part}"
            for row in ("trained encoder", "untrained encoder", "raw input")
            for part in (
                *(["initialising the parameters"] if row == "untrained encoder" else []),
                "k-NN",
                "linear",
                "5 labels/class",
                "10 labels/class",
            )
        ),
    ]
    assert {name for name in record.done if name.startswith(("saving", "writing"))} == {
        "saving step 2",
        "saving step 4",
        "saving step 6",
        "writing checkpoints",
        "writing the last checkpoint",
    }


def test_the_totals_of_a_run_are_right(run):
    _, record = run
    assert all(total == count for _, total, _, count in record.loops)
    encoded = [loop for loop in record.loops if "encoding" in loop[0]]
    assert encoded == [
        (f"{row}: encoding {split}", batches, "batches of 512", batches)
        for row in ("encoder", "trained encoder", "untrained encoder", "raw input")
        for split, batches in (("train", 3), ("test", 1))
    ]


def test_an_opened_run_reports_its_checkpoint_and_embeddings(run, tmp_path):
    record = Recorded()
    opened, state = training.open_run(run[0], progress=record)
    training.embed(opened, state, "test", tmp_path / "z.npz")
    training.embed(opened, state, "test", tmp_path / "z.npz", views=2)
    assert record.done == [
        "opening the data",
        "building the model",
        "reading the checkpoint of step 6",
        "measuring the features",
        "measuring the features",
    ]
    assert record.loops[-2:] == [
        ("encoder: encoding test", 1, "batches of 512", 1),
        ("encoding 2 views of test", 1, "batches of 512", 1),
    ]


def test_an_estimate_is_reported(tiny):
    record = Recorded()
    training.estimate(tiny, record)
    assert record.done == [
        "opening the data",
        "building the model",
        "compiling the training step",
        "compiling the encoder for each size of view",
    ]


def test_the_runs_of_seeds_are_reported_within_one_loop(tiny, tmp_path, monkeypatch):
    record, within = Recorded(), []

    def train(config, folder, *, reference, progress, page):
        within.append(progress._nested[-1].name())
        return {"trained encoder": []}

    monkeypatch.setattr(_seeds, "progress", lambda: record)
    monkeypatch.setattr(_seeds, "train", train)
    training.train_seeds(tiny, tmp_path, 2)
    assert within == ["seed 1 of 2", "seed 2 of 2 (0 s left in all)"]
    assert record.loops == [("seed", 2, "seeds", 2)]
