"""The page of several runs: one table of results, its intervals, marks and order."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from test_page import Page, edit

from mvcl.report import _read, _several, _table, write_report


def page_of(*runs, out):
    return Page(write_report(runs, out).read_text())


def measured(run, seed, knn, *, step=399, **changes):
    """The run with this seed, k-NN accuracy and step; `changes` are entries of that result."""
    edit(run, "config.json", lambda c: c["train"].update(seed=seed))

    def change(content):
        content["step"] = step
        content["rows"]["trained encoder"][0].update(value=knn, **changes)
        content["rows"]["untrained encoder"][0].update(value=0.5 + seed / 100)

    edit(run, "evaluation.json", change)
    return run


@pytest.fixture
def two_by_three(make_run):
    """Two configurations with three seeds each."""
    values = {"low": (0.80, 0.82, 0.84), "high": (0.90, 0.91, 0.95)}
    return [
        measured(make_run(f"{name}/seed{seed}", epsilon=0.1 if name == "low" else 0.2), seed, knn)
        for name, of in values.items()
        for seed, knn in enumerate(of)
    ]


def row_of(page, name):
    return next(row for row in page.rows if row[0] == name)


def test_seeds_are_one_row_with_an_interval(two_by_three, tmp_path):
    page = page_of(*two_by_three, out=tmp_path / "r.html")
    assert page.rows[0][:4] == ["run", "objective.epsilon", "seeds", "k-NN"]
    assert [row[0] for row in page.rows[1:3]] == ["high", "low"]  # the best first
    low, high = stats.t.interval(0.95, 2, loc=0.92, scale=stats.sem([0.90, 0.91, 0.95]))
    assert row_of(page, "high")[:4] == ["high", "0.2", "3", f"0.920 ★ best [{low:.3f}, {high:.3f}]"]
    assert row_of(page, "low")[3].startswith("0.820 [")
    assert "[ ] 95 % interval of the mean over seeds (Student's t)" in page.text
    # The few-label results are equal over seeds, so that they keep the deviation over draws.
    assert row_of(page, "low")[5] == "0.960 ★ best ± 0.012"
    assert "± standard deviation of the draws" in page.text


def test_the_single_runs_are_folded(two_by_three, tmp_path):
    page = page_of(*two_by_three, out=tmp_path / "r.html")
    assert row_of(page, "low/seed1")[:5] == ["low/seed1", "1", "399", "", "0.820"]
    assert any(tag == "details" for tag, _ in page.elements)


def test_baselines_are_shared_or_named(make_run, two_by_three, tmp_path):
    page = page_of(*two_by_three, out=tmp_path / "r.html")
    assert ["Baselines"] in page.rows
    assert row_of(page, "raw input")[:2] == ["raw input", "0.900"]
    assert row_of(page, "untrained encoder")[1].startswith("0.510 [")
    other = measured(make_run("other", k=2), 7, 0.7)
    page = page_of(*two_by_three, other, out=tmp_path / "r.html")
    assert row_of(page, "untrained encoder of other")[1] == "0.570"
    assert row_of(page, "untrained encoder of low, high")[1].startswith("0.510 [")
    assert sum(row[0] == "raw input" for row in page.rows) == 1


def test_paired_differences_to_the_first_run(two_by_three, tmp_path):
    page = page_of(*two_by_three, out=tmp_path / "r.html")
    assert "Paired differences" in page.titles
    gaps = np.array([0.90, 0.91, 0.95]) - [0.80, 0.82, 0.84]
    low, high = stats.t.interval(0.95, 2, loc=gaps.mean(), scale=stats.sem(gaps))
    found = [row for row in page.rows if row[:2] == ["high", "3"]]
    assert found[0][2] == f"{gaps.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
    page = page_of(*two_by_three[:4], out=tmp_path / "r.html")  # one seed in common
    assert "Paired differences" not in page.titles


def test_what_is_not_comparable_is_marked_and_not_the_best(make_run, tmp_path):
    runs = [
        measured(make_run("a", k=2), 0, 0.80),
        measured(make_run("b", k=3), 0, 0.85),
        measured(make_run("early", k=4), 0, 0.90, step=100),
        measured(make_run("other", k=5), 0, 0.95, protocol="another way"),
    ]
    page = page_of(*runs, out=tmp_path / "r.html")
    assert [row[0] for row in page.rows[1:5]] == ["other", "early", "b", "a"]
    assert [row[2:4] for row in page.rows[1:5]] == [
        ["399", "0.950 ‡"],
        ["100 †", "0.900"],
        ["399", "0.850 ★ best"],
        ["399", "0.800"],
    ]
    assert "† of another step than the others: not comparable" in page.text
    assert "‡ by another protocol: not comparable" in page.text
    assert "k-NN (other, trained encoder)another way" in page.text


def test_no_step_of_most_runs_no_best(make_run, tmp_path):
    runs = [measured(make_run(name, k=k), 0, 0.8, step=100 * k) for name, k in (("a", 2), ("b", 3))]
    page = page_of(*runs, out=tmp_path / "r.html")
    assert "best" not in "".join(page.rows[1] + page.rows[2])
    assert {row[2] for row in page.rows[1:3]} == {"200 †", "300 †"}


def test_lower_is_better_where_the_result_says_so(make_run, tmp_path):
    runs = [
        measured(make_run(name, k=k), 0, v, better="lower") for name, k, v in (("a", 2, 0.8), ("b", 3, 0.7))
    ]
    page = page_of(*runs, out=tmp_path / "r.html")
    assert [row[0] for row in page.rows[1:3]] == ["b", "a"]
    assert page.rows[1][2] == "0.700 ★ best"
    assert next(th for th in page.all("th") if "aria-sort" in th)["aria-sort"] == "ascending"


def test_runs_without_an_evaluation_are_in_the_table(make_run, tmp_path):
    runs = [measured(make_run("a", k=2), 0, 0.8), make_run("b", k=3)]
    (runs[1] / "evaluation.json").unlink()
    page = page_of(*runs, out=tmp_path / "r.html")
    assert row_of(page, "b")[:4] == ["b", "3", "–", "–"]
    for run in runs[:1]:
        (run / "evaluation.json").unlink()
    assert "Results" not in page_of(*runs, out=tmp_path / "r.html").titles


def test_the_same_seed_twice_is_no_second_seed(make_run, tmp_path):
    runs = [measured(make_run(name), 3, 0.8) for name in ("a", "b")]
    found = _several.groups([_read.read_run(run) for run in runs], ["a", "b"])
    assert [(group.name, group.seeds) for group in found] == [("a", [3]), ("b", [3])]


def test_fields_that_change_no_result_do_not_part_seeds(make_run, tmp_path):
    runs = [measured(make_run(f"seed{s}"), s, 0.8) for s in range(3)]
    for run, devices in zip(runs, (1, 8, 1)):
        edit(run, "config.json", lambda c, devices=devices: c.update(mesh={"data": devices}))
    edit(runs[2], "config.json", lambda c: c["data"].update(path="elsewhere"))  # may be other data
    read = [_read.read_run(run) for run in runs]
    found = _several.groups(read, ["a", "b", "c"])
    assert [group.seeds for group in found] == [[0, 1], [2]]
    assert list(_several.changed(found)) == ["data.path"]


def test_seeds_at_other_steps_are_left_out_of_the_mean(make_run, tmp_path):
    runs = [measured(make_run(f"seed{s}"), s, 0.8 + s / 10, step=399 if s < 2 else 200) for s in range(3)]
    page = page_of(*runs, out=tmp_path / "r.html")
    row = page.rows[1]
    assert row[1] == "2 of 3"
    assert row[2].startswith("0.850 [")
    assert row[2].endswith("2 of 3 seeds")


def test_geometry_is_one_table_for_each_output(make_run, write_geometry, tmp_path):
    a, b = make_run("a"), make_run("b", k=3)
    write_geometry(a)
    with (b / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 300, "encoder_alignment": 0.25, "head_uniformity": -3.5}) + "\n")
    page = page_of(a, b, out=tmp_path / "r.html")
    assert "Geometry of the views" in page.titles
    found = json.loads((a / "geometry.json").read_text())["outputs"]["encoder"]["rows"]["mean"]
    encoder = next(row for row in page.rows if row[2:3] == ["mvcl geometry"])
    assert encoder[:2] == ["a", "400"]
    assert encoder[3] == f"{found['rank']:.4g}"
    logged = [row for row in page.rows if row[2:3] == ["log"]]
    assert [row[:2] for row in logged] == [["b", "300"]] * 2
    assert "0.25" in logged[0]
    assert "-3.5" in logged[1]


def test_refreshes_are_side_by_side(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", k=3)]
    for i, run in enumerate(runs):
        weights = [[[0, 0.1 + i, 0.2], [0.1, 0, s], [0.2, s, 0]] for s in (0.3, 0.4)]
        lines = [{"step": 100 * s, "weights": w} for s, w in enumerate(weights)]
        (run / "refresh.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    page = page_of(*runs, out=tmp_path / "r.html")
    assert "Pairs of views" in page.titles
    labels = [
        svg["aria-label"] for svg in page.all("svg") if "of pairs of views" in svg.get("aria-label", "")
    ]
    assert labels == [f"Weight of pairs of views of {name} over training steps" for name in "ab"]
    found = _several._limits([np.array(w) for w in weights])
    assert found == (0.2, 1.1)


def test_every_table_has_a_name_and_scopes(two_by_three, tmp_path):
    page = page_of(*two_by_three, out=tmp_path / "r.html")
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(th["scope"] in ("col", "row", "rowgroup") for th in page.all("th"))
    regions = [e for e in page.all("div") if e.get("role") == "region"]
    assert len(regions) == len(page.all("table"))
    assert all(e["tabindex"] == "0" and e["aria-label"] for e in regions)
    headings = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert headings[0] == 1
    assert max(np.diff(headings)) <= 1
    links = [a["href"][1:] for a in page.all("a")]
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert links[0] == "content"
    assert set(links) <= ids
    assert len(links) == 1 + len(page.titles)


def test_numbers_of_a_cell():
    row = _table.of_values([0.5])
    assert (row.text, row.beside) == ("0.500", "")
    assert _table.of_values([]) == _table.NONE
    half = 12.706204736 * np.std([1, 2], ddof=1) / math.sqrt(2)
    assert _table.of_values([1.0, 2.0]).beside == f"[{1.5 - half:.3f}, {1.5 + half:.3f}]"
