"""The page of several runs: one table of results, its intervals, marks and order."""

import numpy as np
import pytest
from run_pages import edit, measured, page_of
from scipy import stats

from mvcl.report import _compare, _read


def test_seeds_are_one_row_with_an_interval_the_best_first(two_by_three):
    page = two_by_three[1]
    assert page.rows[0][:4] == ["run", "objective.epsilon", "seeds", "k-NN"]
    assert [row[0] for row in page.rows[1:3]] == ["high", "low"]
    low, high = stats.t.interval(0.95, 2, loc=0.92, scale=stats.sem([0.90, 0.91, 0.95]))
    assert page.row("high")[:4] == ["high", "0.2", "3", f"0.920 ★ best [{low:.3f}, {high:.3f}]"]
    assert page.row("low")[3].startswith("0.820 [")
    assert "[ ] 95 % interval of the mean over seeds (Student's t)" in page.text


def test_single_runs_are_folded_and_baselines_and_equal_draws_are_shared(two_by_three):
    page = two_by_three[1]
    assert page.row("low")[5] == "0.960 ★ best ± 0.012"
    assert "± standard deviation of the draws" in page.text
    assert page.row("low/seed1")[:4] == ["low/seed1", "1", "399", "0.820"]
    assert "The single runs" in page.text
    assert ["Baselines"] in page.rows
    assert page.row("raw input")[:2] == ["raw input", "0.900"]
    assert page.row("untrained encoder")[1].startswith("0.510 [")


def test_paired_differences_to_the_first_run(two_by_three):
    gaps = np.array([0.90, 0.91, 0.95]) - [0.80, 0.82, 0.84]
    low, high = stats.t.interval(0.95, 2, loc=gaps.mean(), scale=stats.sem(gaps))
    found = next(row for row in two_by_three[1].rows if row[:2] == ["high", "3"])
    assert found[2:4] == [f"{gaps.mean():+.3f} [{low:+.3f}, {high:+.3f}]", "+0.000"]


def test_another_step_and_another_protocol_are_marked_and_not_the_best(make_run, tmp_path):
    changes = {"a": {}, "b": {}, "early": {"step": 100}, "other": {"protocol": "another way"}}
    runs = []
    for i, (name, of) in enumerate(changes.items()):
        runs.append(measured(make_run(name, k=2 + i), 0, 0.8 + i / 20, **of))
    page = page_of(*runs, out=tmp_path / "r.html")
    assert [row[0] for row in page.rows[1:5]] == ["other", "early", "b", "a"]
    shown = [["399", "0.950 ‡"], ["100 †", "0.900"], ["399", "0.850 ★ best"], ["399", "0.800"]]
    assert [row[2:4] for row in page.rows[1:5]] == shown
    notes = "† of another step than the others: not comparable; ‡ by another protocol: not comparable."
    assert notes in page.text
    assert "k-NN (other, trained encoder)another way" in page.text


@pytest.mark.parametrize(("better", "first", "order"), [("lower", "b", "asc"), ("higher", "a", "desc")])
def test_the_result_says_which_is_better(make_run, tmp_path, better, first, order):
    values = (("a", 2, 0.8), ("b", 3, 0.7))
    runs = [measured(make_run(name, k=k), 0, v, better=better) for name, k, v in values]
    page = page_of(*runs, out=tmp_path / "r.html")
    assert page.rows[1][0] == first
    assert page.rows[1][2].endswith("★ best")
    assert "best" not in page.rows[2][2]
    assert next(th for th in page.all("th") if "aria-sort" in th)["aria-sort"] == f"{order}ending"


def test_runs_with_equal_names_and_seeds_get_different_names_and_rows(make_run, tmp_path):
    runs = [measured(make_run(f"{name}/run"), 3, 0.8) for name in ("x", "y")]
    found = _compare.groups([_read.read_run(run) for run in runs], ["a", "b"])
    assert found == [("a", [0], [3]), ("b", [1], [3])]
    page = page_of(*runs, out=tmp_path / "r.html")
    assert "The configurations are equal." in page.text
    assert "x/run, y/run" in page.text
    assert str(tmp_path) not in page.text


def test_fields_that_change_no_result_do_not_part_seeds(make_run):
    runs = [measured(make_run(f"seed{s}"), s, 0.8) for s in range(3)]
    for run, every in zip(runs, (1, 8, 1)):
        edit(run, "config.json", lambda c, every=every: c["train"].update(log_every=every))
    edit(runs[2], "config.json", lambda c: c["data"].update(path="elsewhere"))  # may be other data
    read = [_read.read_run(run) for run in runs]
    found = _compare.groups(read, ["a", "b", "c"])
    assert [seeds for _, _, seeds in found] == [[0, 1], [2]]
    assert _compare.changed(read, found) == {"data.path": ["–", "elsewhere"]}


def test_fields_that_differ_are_listed(make_run, tmp_path):
    runs = [make_run("a"), make_run("b", epsilon=0.5), make_run("c", k=8)]
    edit(runs[0], "config.json", lambda c: c["objective"].update(_digest="0123"))
    page = page_of(*runs, out=tmp_path / "r.html")
    assert ["views.k", "4", "4", "8"] in page.rows
    assert ["objective.epsilon", "0.2", "0.5", "0.2"] in page.rows
    assert ["mvcl.losses.m3g", "0123", "–", "–"] in page.rows
    assert page.rows[0][:4] == ["run", "views.k", "objective.epsilon", "mvcl.losses.m3g"]
    loss = next(alt for alt in page.plots if alt.startswith("Loss"))
    assert "last value a 3.115, b 3.115, c 3.115" in loss


def test_every_table_has_a_name_and_scopes(two_by_three):
    page = two_by_three[1]
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(th["scope"] in ("col", "row", "rowgroup") for th in page.all("th"))
    regions = [e for e in page.all("div") if e.get("role") == "region"]
    assert len(regions) == len(page.all("table"))
    assert all(e["tabindex"] == "0" and e["aria-label"] for e in regions)
    headings = [int(tag[1]) for tag, _ in page.elements if tag in ("h1", "h2", "h3")]
    assert headings[0] == 1
    assert max(np.diff(headings)) <= 1
    links = [a["href"][1:] for a in page.all("a")]
    assert links[0] == "content"
    assert set(links) <= {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    assert len(links) == 1 + len(page.titles)
