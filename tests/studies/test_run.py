"""Cells are run once, again when they failed, and again on request when their config or study file changed."""

import dataclasses
import json
import os
import signal
from pathlib import Path

import jax
import pytest

import mvcl
from docs import taken
from mvcl import _progress, cli, losses, studies, training
from mvcl.studies import Cell, Measure, Study, Values, _table


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counted:
    """Returns `value` + seed, and counts its calls in a file; fails, or is stopped, if a file of that name exists."""

    value: float
    counter: str
    networks: int = 1

    def run(self, folder: Path, seed: int) -> list[Values]:
        place = Path(self.counter)
        if place.with_suffix(".stop").exists():
            raise training.Interrupted(15, 1, 2)
        with open(place, "a") as file:
            file.write(f"{self.value:g} {seed}\n")
        if place.with_suffix(".signal").exists():
            os.kill(os.getpid(), int(place.with_suffix(".signal").read_text()))
        if place.with_suffix(f".fail{self.value:g}").exists():
            raise RuntimeError("the disk is on fire")
        print(f"value {self.value:g}")
        score = (self.value + seed) / 100
        return [{"score": score + i, "untrained encoder: score": 0.01} for i in range(self.networks)]


def study(folder: Path, values=(1.0, 2.0), **fields) -> Study:
    cells = [Cell({"value": v}, Counted(value=v, counter=str(folder / "calls"))) for v in values]
    plain = {"measures": (Measure("score", percent=True),), "seeds": 3, "cost": "none", "cells": cells}
    return Study(title="A study", about="About it.", **plain | fields)


def numbers(of: Study, work: Path) -> dict:
    arguments = ("counted", "--scale", "small", "--data", "/a/folder/x.npz")
    return _table.numbers(studies.Opened("counted", "small", of, arguments), work)


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").is_file() else []


def states(of: Study, work: Path) -> set[str]:
    return {studies.look(place).state for place in studies.places(of, work)}


@pytest.fixture
def work(tmp_path):
    return tmp_path / "work"


def test_finished_cells_are_not_run_again(tmp_path, work):
    assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path) == ["1 0", "1 1", "1 2", "2 0", "2 1", "2 2"]  # all seeds of a cell in a row
    assert studies.run(study(tmp_path), work) == 0
    assert len(calls(tmp_path)) == 6
    studies.run(study(tmp_path, seeds=4), work)  # further seeds only
    assert calls(tmp_path)[6:] == ["1 3", "2 3"]
    assert (work / "cells" / "value-1.0" / "0.log").read_text() == "value 1\n"


def test_failed_cells_are_named_and_run_again(tmp_path, work, monkeypatch):
    lines = []
    monkeypatch.setattr(_progress, "line", lines.append)
    (tmp_path / "calls.fail2").touch()
    assert studies.run(study(tmp_path), work) == 3
    assert len(calls(tmp_path)) == 6  # the other cell was run
    assert "value 2.0, seed 0 failed: RuntimeError: the disk is on fire" in lines[0]
    text = studies.page(numbers(study(tmp_path), work), "x.svg")
    assert "3 of 6 runs failed" in text
    assert "Failed: value 2.0: RuntimeError: the disk is on fire" in text
    assert "| 2.0 | not run |" in text
    (tmp_path / "calls.fail2").unlink()
    assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path)[6:] == ["2 0", "2 1", "2 2"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_study_at_once_and_it_goes_on(tmp_path, work, number):
    before = signal.getsignal(number)
    (tmp_path / "calls.signal").write_text(str(int(number)))
    with pytest.raises(KeyboardInterrupt):
        studies.run(study(tmp_path), work)
    assert calls(tmp_path) == ["1 0"]
    assert states(study(tmp_path), work) == {"missing"}
    assert signal.getsignal(number) is before
    (tmp_path / "calls.signal").unlink()
    assert studies.run(study(tmp_path), work) == 0
    assert len(calls(tmp_path)) == 7


def test_a_changed_config_is_stale_until_asked_for(tmp_path, work):
    old = study(tmp_path)
    studies.run(old, work)
    changed = dataclasses.replace(old.cells[0].task, networks=2)
    new = study(tmp_path, cells=(Cell({"value": 1.0}, changed), old.cells[1]))
    assert studies.run(new, work) == 0
    assert len(calls(tmp_path)) == 6
    text, _ = studies.overview(studies.Opened("counted", "small", new, ()), work, studies.Options())
    assert "stale     value 1.0, seed 0: networks was 1 and is 2" in text
    assert "6 runs: 3 stale, 3 finished" in text
    page = studies.page(numbers(new, work), "x.svg")
    assert "| 1.0 | 2.0 [0.0, 4.5] †≈ |" in page
    assert "| 2.0 | 3.0 [0.5, 5.5] ≈ |" in page
    assert studies.run(new, work, again=True) == 0
    assert calls(tmp_path)[6:] == ["1 0", "1 1", "1 2"]
    assert numbers(new, work)["cells"][0]["intervals"]["score"]["seeds"] == 6  # three seeds of two networks


def test_changed_code_of_a_study_file_is_stale_and_a_damaged_record_named(tmp_path, work):
    studies.run(study(tmp_path), work)
    [place, *_] = studies.places(study(tmp_path), work)
    saved = json.loads(place.file("json").read_text())
    saved["task"]["_digest"] = "other"
    place.file("json").write_text(json.dumps(saved))
    look = studies.look(place)
    assert look.state == "stale"
    assert [reason.split(":")[1] for reason in look.reasons] == ["Counted has changed"]
    place.file("json").write_text(json.dumps(saved)[:40])
    with pytest.raises(ValueError, match=r"0\.json is not .* delete it to run this seed again"):
        studies.run(study(tmp_path), work)


def test_another_commit_and_fields_that_do_not_matter_are_not_stale(tmp_path, work):
    config = training.load("digits:smoke")

    def of(config):
        return study(tmp_path, cells=[studies.trained({"f": 1}, config)])

    [place, *_] = studies.places(of(config), work)
    place.link.parent.mkdir(parents=True)
    place.file("json").write_text(json.dumps({"task": place.task, "commit": "another"}))
    free = {"train.seed": 7, "train.log_every": 3, "checkpoint.keep": 9, "mesh.data": 1}
    assert states(of(studies.changed(config, free)), work) == {"finished", "missing"}
    assert states(of(studies.changed(config, {"train.batch_size": 8})), work) == {"stale", "missing"}


def test_studies_share_the_runs_of_the_same_task(tmp_path, work):
    """Finished runs and those that were stopped; a changed task begins anew, its old work is left to the others."""
    first, second = work / "first", work / "second"
    studies.run(study(tmp_path), first)
    more = study(tmp_path, values=(2.0, 3.0), seeds=2)
    found = [studies.look(place).state for place in studies.places(more, second)]
    assert found == ["finished", "finished", "missing", "missing"]
    (tmp_path / "calls.stop").touch()
    with pytest.raises(training.Interrupted):
        studies.run(more, second)
    (tmp_path / "calls.stop").unlink()
    [*_, place, _] = studies.places(more, second)
    (place.folder / "half").touch()
    assert studies.run(study(tmp_path, values=(3.0,), seeds=2), first) == 0  # goes on with it
    assert calls(tmp_path)[6:] == ["3 0", "3 1"]
    assert (first / "cells" / "value-3.0" / "0" / "half").exists()
    assert studies.run(more, second) == 0
    assert len(calls(tmp_path)) == 8
    assert [cell["intervals"]["score"]["mean"] for cell in numbers(more, second)["cells"]] == [2.5, 3.5]

    cells = [Cell(cell.factors, dataclasses.replace(cell.task, networks=2)) for cell in more.cells]
    other = dataclasses.replace(more, cells=cells)
    assert studies.run(other, second) == studies.run(other, second, again=True) == 0
    assert not (second / "cells" / "value-3.0" / "0" / "half").exists()
    assert len(calls(tmp_path)) == 12
    assert states(study(tmp_path), first) == {"finished"}


def test_runs_are_taken_from_published_pages(tmp_path, work, monkeypatch):
    """With all that the page says of them; not those of a changed task, at chance, or without a measure."""
    config = training.load("digits:smoke")
    monkeypatch.setattr(studies.Baseline, "run", lambda *_: [{"score": 0.015}])
    base = Cell({"value": 0.0}, studies.Baseline(config=config, row="raw input"))
    measured = Counted.run
    monkeypatch.setattr(Counted, "run", lambda *of: [{"score": row["score"]} for row in measured(*of)])
    of = study(tmp_path, cells=[base, *study(tmp_path).cells])
    studies.run(of, work)
    before = numbers(of, work)
    pages = {"counted_small": json.loads(json.dumps(before))}

    new = tmp_path / "new" / "work"
    more = dataclasses.replace(of, cells=[*of.cells, *study(tmp_path, values=(3.0,)).cells])
    assert taken.taken(more, new, pages) == 9
    assert taken.taken(more, new, pages) == 0
    after = numbers(more, new)
    assert after["taken"] == {"counted_small": 7}  # the baseline is one run of all seeds
    assert taken.taken(of, tmp_path / "own" / "work", {"work": pages["counted_small"]}) == 9
    assert not numbers(of, tmp_path / "own" / "work").get("taken")
    assert after["cells"][:3] == before["cells"]
    assert after["baselines"] == before["baselines"]
    assert after["seconds"] == pytest.approx(before["seconds"], abs=1)
    assert studies.run(more, new) == 0
    assert calls(tmp_path)[6:] == ["3 0", "3 1", "3 2"]

    pages["counted_small"]["cells"][2]["at_chance"] = True
    assert taken.taken(of, tmp_path / "chance" / "work", pages) == 6
    several = [Cell(c.factors, dataclasses.replace(c.task, networks=2)) for c in of.cells[1:]]
    changed = dataclasses.replace(of, cells=[base, *several])
    assert taken.taken(changed, tmp_path / "changed" / "work", pages) == 3
    further = dataclasses.replace(of, measures=[*of.measures, Measure("rank")])
    assert taken.taken(further, tmp_path / "further" / "work", pages) == 0
    pages["counted_small"]["baselines"] = {"raw input": {"score": 1.5}}  # measured by each run
    alone = dataclasses.replace(of, cells=of.cells[1:])
    assert taken.taken(alone, tmp_path / "alone" / "work", pages) == 0


def test_networks_side_by_side_are_taken_together(tmp_path, work, monkeypatch):
    measured = Counted.run
    monkeypatch.setattr(Counted, "run", lambda *of: [{"score": row["score"]} for row in measured(*of)])
    cells = [Cell(c.factors, dataclasses.replace(c.task, networks=2)) for c in study(tmp_path).cells]
    of, new = study(tmp_path, cells=cells), tmp_path / "new" / "work"
    studies.run(of, work)
    before = numbers(of, work)
    assert taken.taken(of, new, {"counted_small": json.loads(json.dumps(before))}) == 6
    assert numbers(of, new)["cells"] == before["cells"]


def test_what_is_the_same_for_every_seed_is_run_once(tmp_path, work, monkeypatch):
    monkeypatch.setattr(Counted, "seeded", (), raising=False)
    of = study(tmp_path)
    assert studies.run(of, work) == 0
    assert calls(tmp_path) == ["1 0", "2 0"]
    assert states(of, work) == {"finished"}


def test_another_process_is_not_disturbed(tmp_path, work):
    """Cells and seeds that are locked are left to their process, the others are run."""
    cell = studies.places(study(tmp_path), work)[0].folder.parent
    with training.locked(cell), training.locked(cell, ".1.lock"):
        assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path) == ["2 0", "2 1", "2 2", "1 0", "1 2"]  # helps where another process is behind


def test_names_that_differ_in_signs_have_folders_of_their_own(tmp_path):
    names = ("f(a)", "f[a]", "F a", "g, n = 1")
    cells = [Cell({"loss": name}, Counted(value=1, counter="x")) for name in names]
    of = study(tmp_path, cells=cells, seeds=1)
    assert len({place.link.parent.name.casefold() for place in studies.places(of, tmp_path)}) == 4
    assert [p.cell for p in studies.places(of, tmp_path, "loss=g, n = 1, loss = f[a]")] == cells[1::2]


def test_files_of_a_study(tmp_path, work):
    claim = studies.Above("two is more", "here", "score", {"value": 2.0}, ({"value": 1.0},))
    of = study(tmp_path, claims=(claim,), reference={"value": 1.0})
    studies.run(of, work)
    content = numbers(of, work)
    path = _table.write(content, tmp_path / "out", "counted_small")
    names = sorted(file.name for file in path.parent.iterdir())
    assert names == [f"counted_small.{ending}" for ending in ("csv", "json", "md", "svg")]
    assert json.loads(path.with_suffix(".json").read_text()) == content
    rows = path.with_suffix(".csv").read_text().splitlines()
    assert rows[:2] == ["value,seed,state,score", "1.0,0,finished,1.0"]
    text = path.read_text()
    assert "mvcl study counted --scale small --data x.npz" in text  # no folder of this machine
    assert "| value 2.0 | score | value 1.0 | +1.00 [+1.00, +1.00] | 3 |" in text
    # 2, 3 and 4 against 1 of the untrained encoder: 2 ± 2.5
    assert "## Not trained" in text
    assert "\n| value 1.0 | all |\n| value 2.0 | all |\n\n" in text
    end = "value 2.0 - value 1.0: +1.00 ± 0.00, 3 seeds, not trained: value 2.0; value 1.0 |"
    assert f"| two is more | here | score | **cannot tell** | {end}" in text
    assert content["baselines"] == {"untrained encoder": {"score": 1.0}}
    assert content["versions"]["jax"] == jax.__version__
    arguments = ("counted", "--only", "value=a / b", "--scale", "smoke", "--only=value=1")
    smoke = _table.numbers(studies.Opened("counted", "smoke", of, arguments), work)
    assert smoke["command"] == "mvcl study counted --scale smoke"
    assert smoke["title"] == "A study (smoke: random data, no result)"
    assert smoke["claims"] == []
    assert "holds" not in studies.page(smoke, "x.svg")


@dataclasses.dataclass(frozen=True)
class Rows:
    """Measures m and its baselines, which depend on the data set."""

    m: float
    raw: float

    def run(self, folder: Path, seed: int) -> list[Values]:
        return [{"m": self.m + seed / 100, "raw input: m": self.raw, "untrained encoder: m": 0.5}]


@pytest.mark.parametrize(
    ("better", "raw", "separates"),
    [
        ("higher", (0.4, 0.4), [True, False]),
        ("lower", (0.6, 0.6), [False, True]),
        ("", (0.4, 0.4), [None, None]),
        ("higher", (0.95, 0.1), [False, False]),  # two data sets: each has its own baseline
    ],
)
def test_a_value_is_compared_with_the_better_baseline(work, better, raw, separates):
    cells = [Cell({"f": f}, Rows(m, x)) for f, m, x in zip("ab", (0.9, 0.1), raw)]
    of = study(work, cells=cells, measures=[Measure("m", better=better)])
    studies.run(of, work)
    content = numbers(of, work)
    assert [cell["separates"]["m"] for cell in content["cells"]] == separates
    assert [*content["not_trained"]] == []  # m is no share
    shared = {"untrained encoder": {"m": 0.5}, "raw input": {"m": raw[0]}}
    assert content["baselines"] == (shared if len(set(raw)) == 1 else {})


@pytest.mark.parametrize(
    ("losses", "level", "at_chance"),
    [
        ([5.0, 4.98], {}, True),
        ([5.0, 4.9], {}, False),
        ([4.0, 5.0], {}, False),  # a queue that fills up: it learned something
        ([5.0], {}, False),  # one epoch
        ([5.0, 4.98], {"chance": 6.0}, False),  # its negatives get harder as it learns
        ([5.0, 4.9], {"chance": 4.95}, True),
        ([5.0], {"chance": 4.95}, True),
    ],
)
def test_a_loss_that_stays_is_at_chance(tmp_path, losses, level, at_chance):
    (tmp_path / "evaluation.json").write_text('{"rows": {}}')
    both = [(e, x, part) for e, x in enumerate(losses) for part in (0.5, 1.0)]
    lines = [{"epoch": e + part, "loss": x + part - 0.75, **level} for e, x, part in both]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    [values] = studies.results(tmp_path)
    assert values["loss"] == pytest.approx(losses[-1])
    assert ("loss, first epoch" in values) == (len(losses) > 1)
    assert _table._at_chance({0: values}) == at_chance
    cell = {"separates": {"m": True, "n": None}, "at_chance": at_chance}
    of = study(tmp_path, measures=[Measure("m", percent=True), Measure("n")])
    assert _table._not_trained(cell, of) == ["m", "n"] * at_chance
    assert _table._not_trained({"separates": {"m": False, "n": None}}, of) == ["m", "n"]
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"metrics\.jsonl has no loss; delete"):
        studies.results(tmp_path)


def test_intervals_of_shares_stay_inside_0_to_100_and_those_of_differences_do_not(tmp_path):
    of = study(tmp_path, measures=[Measure("m", percent=True), Measure("gain", percent=True, better="")])
    assert _table._inside("m", of, {0: 1.0, 1: 3.0}).low == 0
    assert _table._inside("gain", of, {0: 1.0, 1: 3.0}).low < -10


def saved(folder: Path, text: str) -> Path:
    (folder / "config.json").write_text(text)
    return folder / "config.json"


def test_a_saved_config_finds_the_code_of_its_study(tmp_path):
    """In what several studies share, and in a study file; nothing else is imported."""
    text = training.to_json(training.load("shidani/gaussian:smoke"))
    assert "_networks:GaussianViews" in text
    assert training.to_json(training.load(saved(tmp_path, text))) == text
    (tmp_path / "evil.py").write_text("raise SystemError")
    evil = f"{tmp_path}/evil.py:GaussianViews"
    for name in ("_networks:Nothing", "../evil:GaussianViews", evil, "os:getcwd"):
        with pytest.raises(ValueError, match="is imported only from a config file that you name"):
            training.load(saved(tmp_path, text.replace("_networks:GaussianViews", name)))
    study = studies.without_data(studies.scales(studies.find("pilot"))["small"])
    text = training.to_json(study.cells[0].task.config)
    assert "_bench:Images" in text
    assert training.to_json(training.load(saved(tmp_path, text))) == text


@pytest.fixture
def trained(monkeypatch):
    """The configs that were trained, of which each has an accuracy near 1."""
    found = []

    def train(config, folder):
        found.append(config)
        accuracy = 1.0 - 0.1 * (config.train.seed == 0) - 0.02 * (config.views.k == 2)
        of = {"name": "k-NN", "value": accuracy, "deviation": None, "protocol": "", "better": "higher"}
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(training.to_json(config))
        (folder / "evaluation.json").write_text(json.dumps({"rows": {"trained encoder": [of]}}))
        (folder / "metrics.jsonl").write_text(json.dumps({"step": 1, "epoch": 1.0, "loss": 0.5}))

    monkeypatch.setattr(training, "train", train)
    return found


def test_intervals_of_shares_and_runs_that_are_kept(trained, tmp_path):
    config, both = training.load("digits:vectors"), (losses.mv_dhel, losses.mv_infonce)
    for _ in range(2):
        found = studies.compare(config, both, tmp_path / "a", seeds=2, levels={"views.k": (2, 4)})
    assert len(trained) == 8  # once
    assert found["mean"].tolist() == pytest.approx([0.93, 0.93, 0.95, 0.95])
    assert found["high"].max() == 1
    assert found["minus_first"].dropna().tolist() == [0, 0]
    expected = 2 * [0.88] + 2 * [0.9] + 2 * [0.98] + 2 * [1]
    assert sorted(mvcl.runs(tmp_path / "cells")["k-NN"]) == pytest.approx(expected)
    (tmp_path / "metrics.jsonl").touch()  # of a run that has logged nothing
    assert (mvcl.curves(tmp_path)["loss"] == 0.5).all()
    assert "| mv_infonce | 4 | 95.0 [31.5, 100.0] |" in (tmp_path / "a" / "compare.md").read_text()
    with pytest.raises(ValueError, match="objectives must be functions of different names"):
        studies.compare(config, [losses.mv_dhel] * 2, tmp_path / "b")


def test_objectives_of_a_file_on_the_command_line(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("def loss(z, weight=2.0):\n    return weight * (z**2).mean()\n")
    command = ["compare", "digits:vectors", "--seeds", "1", "--objectives", "mv_dhel", "mine.py:loss"]
    assert cli.main([*command, "--set", "views.k=2,4", "--train.steps", "7"]) == 0
    assert [(config.views.k, config.train.steps) for config in trained] == [(2, 7), (2, 7), (4, 7), (4, 7)]
    assert "mine.py:loss" in capsys.readouterr().out
    assert cli.main([*command[:2], "--objectives", "mine.py:other"]) == 2
    assert "mine.py has no function other" in capsys.readouterr().err
