"""Cells are run once, again when they failed, and again on request when their config or code changed."""

import dataclasses
import json
from pathlib import Path

import jax
import pytest

from mvcl import losses, studies, training
from mvcl.studies import Cell, Measure, Study, Values, _code, _engine, _numbers, _write


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
        if place.with_suffix(f".fail{self.value:g}").exists():
            raise RuntimeError("the disk is on fire")
        print(f"value {self.value:g}")
        return [
            {"score": (self.value + seed) / 100 + network, "untrained encoder: score": 0.01}
            for network in range(self.networks)
        ]


def study(folder: Path, values=(1.0, 2.0), **fields) -> Study:
    counter = str(folder / "calls")
    fields = {
        "title": "A study",
        "about": "About it.",
        "measures": (Measure(name="score", percent=True),),
        "seeds": 3,
        "cost": "none",
    } | fields
    cells = tuple(Cell(factors={"value": v}, task=Counted(value=v, counter=counter)) for v in values)
    return Study(cells=cells, **fields)


def opened(of: Study) -> studies.Opened:
    return studies.Opened(
        "counted", "small", of, ("counted", "--scale", "small", "--data", "/a/folder/x.npz")
    )


def calls(folder: Path) -> list[str]:
    return (folder / "calls").read_text().splitlines() if (folder / "calls").is_file() else []


def test_finished_cells_are_not_run_again(tmp_path):
    work = tmp_path / "work"
    assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path) == ["1 0", "1 1", "1 2", "2 0", "2 1", "2 2"]  # all seeds of a cell in a row
    assert studies.run(study(tmp_path), work) == 0
    assert len(calls(tmp_path)) == 6
    studies.run(study(tmp_path, seeds=4), work)  # further seeds only
    assert calls(tmp_path)[6:] == ["1 3", "2 3"]
    assert (work / "cells" / "value-1.0" / "0.log").read_text() == "value 1\n"


def test_failed_cells_are_named_and_run_again(tmp_path):
    work, lines = tmp_path / "work", []
    (tmp_path / "calls.fail2").touch()

    class Recorded(Progress):
        def line(self, text: str) -> None:
            lines.append(text)

    assert studies.run(study(tmp_path), work, Recorded(silent=True)) == 3
    assert len(calls(tmp_path)) == 6  # the other cell was run
    assert "value 2.0, seed 0 failed: RuntimeError: the disk is on fire" in lines[0]
    text = _write.page(_numbers.numbers(opened(study(tmp_path)), work), "x.svg")
    assert "3 of 6 runs failed" in text
    assert "Failed: value 2.0: RuntimeError: the disk is on fire" in text
    assert "| 2.0 | not run |" in text
    (tmp_path / "calls.fail2").unlink()
    assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path)[6:] == ["2 0", "2 1", "2 2"]


def test_a_stopped_study_goes_on(tmp_path):
    work = tmp_path / "work"
    (tmp_path / "calls.stop").touch()
    with pytest.raises(training.Interrupted):
        studies.run(study(tmp_path), work)
    assert {look.state for look in map(_engine.look, _engine.places(study(tmp_path), work))} == {"missing"}
    (tmp_path / "calls.stop").unlink()
    assert studies.run(study(tmp_path), work) == 0
    assert len(calls(tmp_path)) == 6


def test_a_changed_config_is_stale_until_asked_for(tmp_path):
    work = tmp_path / "work"
    studies.run(study(tmp_path), work)
    old = study(tmp_path)
    cell = dataclasses.replace(old.cells[0], task=dataclasses.replace(old.cells[0].task, networks=2))
    new = dataclasses.replace(old, cells=(cell, old.cells[1]))
    assert studies.run(new, work) == 0
    assert len(calls(tmp_path)) == 6
    text = studies.overview(opened(new), work)
    assert "stale     value 1.0, seed 0: networks was 1 and is 2" in text
    assert "6 runs: 3 stale, 3 finished" in text
    page = _write.page(_numbers.numbers(opened(new), work), "x.svg")
    assert "| 1.0 | 2.0 [-0.5, 4.5] †≈ |" in page
    assert "| 2.0 | 3.0 [0.5, 5.5] ≈ |" in page
    assert studies.run(new, work, again=True) == 0
    assert calls(tmp_path)[6:] == ["1 0", "1 1", "1 2"]
    found = _numbers.numbers(opened(new), work)
    assert found["cells"][0]["intervals"]["score"]["seeds"] == 6  # three seeds of two networks


def test_changed_code_is_stale(tmp_path, monkeypatch):
    work = tmp_path / "work"
    studies.run(study(tmp_path), work)
    real = _code.digest
    monkeypatch.setattr(_code, "digest", lambda file: "new" if file.name == "_loop.py" else real(file))
    looks = [_engine.look(place) for place in _engine.places(study(tmp_path), work)]
    assert {look.state for look in looks} == {"stale"}
    assert looks[0].reasons == ("mvcl/training/_loop.py has changed",)


def test_a_folder_begun_with_other_code_is_begun_anew(tmp_path, monkeypatch):
    """A run that was stopped does not go on with other code, and goes on with the same, also one that was stale."""
    work, real = tmp_path / "work", _code.digest
    [place, *_] = _engine.places(study(tmp_path), work)

    def stopped(*, again: bool) -> None:
        (tmp_path / "calls.stop").touch()
        with pytest.raises(training.Interrupted):
            studies.run(study(tmp_path), work, again=again)
        (tmp_path / "calls.stop").unlink()
        (place.folder / "half").touch()

    stopped(again=False)
    with monkeypatch.context() as patched:
        patched.setattr(_code, "digest", lambda file: "other" if file.name == "_loop.py" else real(file))
        studies.run(study(tmp_path), work)
    assert not (place.folder / "half").exists()
    stopped(again=True)  # stale: the code is as it was before
    studies.run(study(tmp_path), work, again=True)
    assert (place.folder / "half").exists()


def test_changed_code_of_a_study_file_is_stale(tmp_path, monkeypatch):
    work = tmp_path / "work"
    studies.run(study(tmp_path), work)
    monkeypatch.setattr(training._saved, "digest", lambda named: "other")
    look = _engine.look(_engine.places(study(tmp_path), work)[0])
    assert look.state == "stale"
    assert [reason.split(":")[1] for reason in look.reasons] == ["Counted has changed"]


def test_values_that_are_not_finite(tmp_path):
    of = study(tmp_path, values=(float("inf"), 1.0), reference={"value": 1.0})
    studies.run(of, tmp_path / "work")
    content = _numbers.numbers(opened(of), tmp_path / "work")
    assert "| inf | not finite ≈ |" in _write.write(content, tmp_path / "out", "x").read_text()


def test_a_damaged_record_is_named(tmp_path):
    work = tmp_path / "work"
    studies.run(study(tmp_path), work)
    file = work / "cells" / "value-1.0" / "0.json"
    file.write_text(file.read_text()[:40])
    with pytest.raises(ValueError, match=r"0\.json"):
        studies.run(study(tmp_path), work)


def test_another_process_is_not_disturbed(tmp_path):
    """Cells and seeds that are locked are left to their process, the others are run."""
    work = tmp_path / "work"
    cells = work / "cells"
    with training.locked(cells / "value-1.0"), training.locked(cells / "value-1.0", ".1.lock"):
        assert studies.run(study(tmp_path), work) == 0
    assert calls(tmp_path) == ["2 0", "2 1", "2 2", "1 0", "1 2"]  # helps where another process is behind


def test_names_that_differ_in_signs_have_folders_of_their_own(tmp_path):
    cells = tuple(
        Cell(factors={"loss": name}, task=Counted(value=1, counter="x")) for name in ("f(a)", "f[a]", "F a")
    )
    of = dataclasses.replace(study(tmp_path), cells=cells, seeds=1)
    folders = [place.folder.parent.name for place in _engine.places(of, tmp_path)]
    assert len({folder.casefold() for folder in folders}) == 3


def test_files_of_a_study(tmp_path):
    of = study(
        tmp_path,
        claims=(
            studies.Above(
                text="two is more",
                source="here",
                measure="score",
                cells={"value": 2.0},
                than=({"value": 1.0},),
            ),
        ),
        reference={"value": 1.0},
    )
    studies.run(of, tmp_path / "work")
    content = _numbers.numbers(opened(of), tmp_path / "work")
    path = _write.write(content, tmp_path / "out", "counted_small")
    assert sorted(file.name for file in path.parent.iterdir()) == [
        f"counted_small.{ending}" for ending in ("csv", "json", "md", "svg")
    ]
    assert json.loads((path.parent / "counted_small.json").read_text()) == content
    assert (path.parent / "counted_small.csv").read_text().splitlines()[:2] == [
        "value,seed,state,score",
        "1.0,0,finished,1.0",
    ]
    text = path.read_text()
    assert "mvcl study counted --scale small --data x.npz" in text  # no folder of this machine
    assert "| value 2.0 | score | value 1.0 | +1.00 [+1.00, +1.00] | 3 |" in text
    assert "| two is more | here | score | **holds** |" in text
    assert content["baselines"] == {"untrained encoder": {"score": 1.0}}
    assert content["versions"]["jax"] == jax.__version__


def test_a_page_without_runs(tmp_path):
    content = _numbers.numbers(opened(study(tmp_path)), tmp_path)
    text = _write.write(content, tmp_path / "out", "x").read_text()
    assert "**Not run.** Cost: none." in text
    assert "![" not in text
    assert "| 1.0 | not run |" in text


def test_runs_of_one_config_compile_once(tmp_path):
    """The second seed compiles nothing: the seed is an argument of all programs."""
    config = studies.changed(
        training.load("digits:smoke"), {"mesh": training.Mesh(data=1), "objective": losses.mv_dhel}
    )
    task, compiled = studies.Training(config=config), []

    def listen(event: str, seconds: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        first = task.run(tmp_path / "0", 0)
        assert compiled
        compiled.clear()
        second = task.run(tmp_path / "1", 1)
        assert not compiled
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    assert first[0]["loss"] != second[0]["loss"]
    assert {"linear", "k-NN", "untrained encoder: linear", "raw input: k-NN", "loss"} <= first[0].keys()
