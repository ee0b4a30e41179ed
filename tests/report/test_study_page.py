"""The page of a study, read with an HTML parser."""

import base64
import dataclasses
import json
import re

import numpy as np
import pytest
from test_page import Page, edit

from mvcl import cli, studies
from mvcl._progress import Progress
from mvcl.report import _curves, write_study
from mvcl.studies import _numbers, _open, _write

TITLES = ["About", "Figure", "Results", "Paired differences", "Claims", "Curves", "Provenance"]


def page_of(folder, track=None):
    out = write_study(folder) if track is None else write_study(folder, track=track)
    assert out == folder / "study.html"
    return Page(out.read_text())


def test_the_page_has_all_parts(tmp_path, tracked, study_folder):
    folder = study_folder(tmp_path / "study")
    page = page_of(folder, tracked)
    assert tracked == [("reading cells", 4, "cells", 4)]
    assert page.titles == TITLES
    assert ["objective", "k", "k-NN accuracy, %", "effective rank"] in page.rows
    assert ["MV-DHEL", "2", "90.5 [89.2, 91.8]paper 91.2", "5.00"] in page.rows
    assert ["<b>NT-Xent</b>", "4", "93.5 [92.2, 94.8] ≈", "8.00"] in page.rows
    assert ["raw input", "88.0", "–"] in page.rows
    difference = ["objective MV-DHEL", "-2.00 [-2.50, -1.50]", "3"]
    assert ["objective <b>NT-Xent</b>, k 2", "k-NN accuracy", *difference] in page.rows
    claim = ["MV-DHEL is above NT-Xent", "Table II", "k-NN accuracy", "does not hold", "-2.0 [-2.5, -1.5]"]
    assert claim in page.rows
    assert "holds if the interval of the paired difference is above 0" in page.text
    assert ["command", "mvcl study two_objectives --scale small"] in page.rows
    assert ["versions", "jax 0.10.2"] in page.rows
    assert ["run time", "4m32s, summed over all runs"] in page.rows
    assert "12 of 12 runs. Cost: 5 minutes on 2 cores." in page.text
    assert len(page.all("code")) == 2
    image = next(i for i in page.all("img"))
    picture = base64.b64decode(image["src"].removeprefix("data:image/svg+xml;base64,"))
    assert picture == (folder / "two_objectives.svg").read_bytes()
    assert page.all("script") == [{}]  # the page's own; that of the figure is inside an image
    assert image["alt"]


def test_a_factor_as_columns(tmp_path, study_folder):
    page = page_of(study_folder(tmp_path / "study", columns="k"))
    assert ["objective", "k = 2", "k = 4"] in page.rows
    assert ["MV-DHEL", "90.5 [89.2, 91.8]paper 91.2", "91.5 [90.2, 92.8]paper 91.2"] in page.rows
    assert ["raw input", "88.0", "88.0"] in page.rows
    assert "effective rank" in page.text


def test_curves_are_means_over_seeds_with_bands(tmp_path, study_folder):
    folder = study_folder(tmp_path / "study")
    page = page_of(folder)
    assert "Loss: 4 of 4 cells; last values from 1.6 to 4.6" in page.text
    assert "k-NN accuracy: 4 of 4 cells; last values from 0.91 to 0.91" in page.text
    assert "Learning rate" not in page.text
    assert any("over the epochs of training" in svg.get("aria-label", "") for svg in page.all("svg"))
    x, mean, low, high = _curves.band([{1.0: 2.0, 2.0: 4.0}, {1.0: 4.0, 2.0: 4.0, 3.0: 1.0}])
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(mean, [3, 4, 1])
    half = 12.706204736432095 * np.std([2, 4], ddof=1) / np.sqrt(2)  # Student's t, one degree of freedom
    np.testing.assert_allclose(high - low, [2 * half, 0, np.nan])
    long = _curves.band([{float(i): 1.0 for i in range(1000)}])
    assert len(long[0]) == 120
    assert (long[0][0], long[0][-1]) == (0, 999)


def test_steps_where_a_run_has_no_epochs(tmp_path, study_folder):
    folder = study_folder(tmp_path / "study")
    for log in folder.glob("cells/cell-2/*/metrics.jsonl"):
        log.write_text('{"step": 10, "loss": 1.0}\n{"step": 20, "loss": 0.5}\n')
    page = page_of(folder)
    assert any("over the steps of training" in svg.get("aria-label", "") for svg in page.all("svg"))


def test_every_level_has_a_checkbox_that_hides_its_cells(tmp_path, study_folder):
    folder = study_folder(tmp_path / "study")
    page = page_of(folder)
    boxes = [i["id"] for i in page.all("input")]
    assert boxes == ["factor0-level0", "factor0-level1", "factor1-level0", "factor1-level1"]
    assert all("checked" in i for i in page.all("input"))
    assert len(page.all("label")) == 4
    style = re.search("<style>(.*?)</style>", (folder / "study.html").read_text(), re.DOTALL)[1]
    hidden = {
        box: sorted(set(re.findall(r"\.cell(\d)", cells)))
        for box, cells in re.findall(r"main:has\(#(\S+?):not\(:checked\)\) :is\((.*?)\) \{", style)
    }
    assert hidden == dict(zip(boxes, (["0", "1"], ["2", "3"], ["0", "2"], ["1", "3"])))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for cell in range(4):  # in each of the three plots with several seeds
        assert sum(id.endswith(f"-cell{cell}") for id in ids) == 3
        assert sum(id.endswith(f"-band{cell}") for id in ids) == 3
        assert any(item.get("class") == f"cell{cell}" for item in page.all("li"))


def test_missing_and_damaged_runs_are_listed(tmp_path, study_folder):
    folder = study_folder(tmp_path / "study")
    (folder / "two_objectives.svg").unlink()
    (folder / "cells/cell-0/0/metrics.jsonl").unlink()
    (folder / "cells/cell-1/1/metrics.jsonl").write_bytes(b"\x00\xff{")

    def failed(content):
        content["cells"][2]["status"]["1"] = "failed"
        content["cells"][2]["reasons"] = ["Diverged: the loss is nan"]
        content["cells"][3]["status"]["0"] = "stale"

    edit(folder, "two_objectives.json", failed)
    page = page_of(folder)
    assert page.titles[0] == "Missing"
    assert "The figure: two_objectives.svg is missing" in page.text
    assert "The curves of seed 0: metrics.jsonl cannot be read" in page.text
    assert "The curves of seed 1: metrics.jsonl cannot be read (no line has a step)" in page.text
    assert "Seed 1: Diverged: the loss is nan; repeat mvcl study two_objectives" in page.text
    assert "11 of 12 runs (1 failed; 1 made by an older config or code (†))" in page.text
    assert "93.5 [92.2, 94.8] † ≈" in page.text


def test_without_runs_there_are_no_curves(tmp_path, study_folder):
    page = page_of(study_folder(tmp_path / "study", runs=False))
    assert page.titles == [title for title in TITLES if title != "Curves"]
    assert page.all("input") == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("claims"), "the study must have 'claims'"),
        (
            lambda c: c["cells"][1].update(seconds=1, folder=3),
            r"the study, cells\[1\], folder must be str, got int",
        ),
        (
            lambda c: c["cells"][0].update(folder="../../etc"),
            "folders inside that of the study, got '../../etc'",
        ),
        (lambda c: c["cells"][0]["status"].update({"/root": "finished"}), "got '/root'"),
        (lambda c: c["cells"][0]["intervals"].pop("rank"), "has no interval of rank"),
        (
            lambda c: c["cells"][0]["intervals"]["rank"].update(mean="5"),
            "rank, mean must be int or float or null",
        ),
        (lambda c: c["measures"][0].update(digits=10**9), "digits must be from 0 to 12, got 1000000000"),
        (lambda c: c.update(columns="n"), "columns must be one of objective, k, got 'n'"),
        (lambda c: c["cells"][0]["factors"].pop("k"), "must have the factors"),
        (lambda c: c.update(cells=[]), "must have factors, measures and cells"),
    ],
)
def test_damaged_files_are_named(tmp_path, capsys, change, message, study_folder):
    folder = study_folder(tmp_path / "study", runs=False)
    edit(folder, "two_objectives.json", change)
    with pytest.raises(
        ValueError, match=rf"two_objectives.json is not a readable file of a study: .*{message}"
    ):
        write_study(folder)
    assert cli.main(["report", str(folder)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_without_a_study(tmp_path, capsys):
    (tmp_path / "cells").mkdir()
    assert cli.main(["report", str(tmp_path)]) == 2
    assert "must have one .json file, that of a study, got none" in capsys.readouterr().err
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text("{")
    with pytest.raises(ValueError, match=r"got a\.json, b\.json"):
        write_study(tmp_path)
    (tmp_path / "b.json").unlink()
    with pytest.raises(ValueError, match=r"a\.json is not a readable"):
        write_study(tmp_path)


@dataclasses.dataclass(frozen=True)
class Count:
    """A task without training."""

    start: float

    def run(self, folder, seed, progress):
        """The value of a seed."""
        return [{"accuracy": self.start + 0.01 * seed, "untrained encoder: accuracy": 0.1}]


def test_the_page_of_what_the_engine_writes(tmp_path, capsys):
    study = studies.Study(
        title="Counting",
        about="Adds.",
        cells=tuple(
            studies.Cell(factors={"start": s}, task=Count(s), printed={"accuracy": 20.0}) for s in (0.2, 0.4)
        ),
        measures=(studies.Measure(name="accuracy", percent=True),),
        reference={"start": 0.2},
        seeds=3,
        cost="none",
    )
    opened = _open.Opened("counting", "smoke", study, ("counting", "--scale", "smoke"))
    studies.run(study, tmp_path, Progress(silent=True))
    _write.write(_numbers.numbers(opened, tmp_path), tmp_path, "counting")
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "study.html")
    page = Page((tmp_path / "study.html").read_text())
    assert ["0.2", "21.0 [18.5, 23.5]paper 20.0"] in page.rows
    assert ["untrained encoder", "10.0"] in page.rows
    assert ["start 0.4", "accuracy", "start 0.2", "+20.00 [+20.00, +20.00]", "3"] in page.rows
    assert "Claims" not in page.titles
    assert json.loads((tmp_path / "counting.json").read_text())["cells"][0]["printed"] == {"accuracy": 20.0}
