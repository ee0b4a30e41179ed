"""The geometry of a run on its page, and as a picture of its own."""

import json
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from test_page import edit, page_of

from mvcl.report import _figures
from mvcl.report import write_geometry as draw


def test_the_page_shows_the_tables_and_pictures(run, tmp_path, write_geometry):
    assert "Geometry of the views" not in page_of(run, out=tmp_path / "r.html").titles
    write_geometry(run)
    page = page_of(run, out=tmp_path / "r.html")
    assert "Geometry of the views" in page.titles
    content = json.loads((run / "geometry.json").read_text())
    for output in ("encoder", "head"):
        rows = content["outputs"][output]["rows"]
        assert list(rows) == ["<front>", "view 2", "view 3", "mean", "all views"]
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        assert ["", *columns] in page.rows
        for name, values in rows.items():
            assert [name, *(f"{values[c]:.4g}" if c in values else "–" for c in columns)] in page.rows
        labels = [svg.get("aria-label", "") for svg in page.all("svg")]
        for title in ("Eigenvalues of the covariance", "Cosines of positives", "Alignment of pairs"):
            assert sum(x.startswith(title) and f"at the {output}" in x for x in labels) == 1
    assert "60 examples of test at step 400" in page.text


def test_curves_of_the_geometry_in_the_log(run, tmp_path):
    with (run / "metrics.jsonl").open("a") as file:
        for step in (100, 200):
            row = {"step": step, "encoder_uniformity": -2.0 - step / 100, "head_alignment": 0.25}
            file.write(json.dumps(row) + "\n")
    page = page_of(run, out=tmp_path / "r.html")
    assert "Uniformity of each view, encoder: last value -4" in page.text
    assert "Alignment of the views, head: last value 0.25" in page.text
    assert "Cosine of positives, head" not in page.text


def test_the_spectrum_and_the_heat_map_equal_the_numbers():
    alignment = np.array([[np.nan, 0.5], [0.5, np.nan]])
    of = _figures.Embedded(
        ["a", "b"], {"a": np.array([1.0, 0.1, 0.01])}, alignment, np.array([1, 3]), np.array([4, 0])
    )
    svg = _figures.spectrum(of, "alt")
    path = next(p for p in re.findall(r'<path d="([^"]*)"[^>]*var\(--s0\)', svg) if p.count("L") == 2)
    xy = np.array(re.findall(r"[ML] (\S+) (\S+)", path), float)
    np.testing.assert_allclose(np.diff(xy[:, 1]), (xy[2, 1] - xy[0, 1]) / 2, rtol=1e-4)  # a decade each
    assert _figures.alignment(of, "alt").count(">0.500<") == 2


def test_the_picture_is_a_file_of_its_own(tmp_path, write_geometry):
    write_geometry(tmp_path)
    out = draw(tmp_path / "geometry.json", tmp_path / "geometry.svg")
    text = out.read_text()
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = " ".join(root.itertext())
    for word in ("encoder", "head", "<front>", "positives", "eigenvalue"):
        assert word in words
    assert set(re.findall(r"var\((--\w+)\)", text)) <= set(re.findall(r"(--\w+):", text))
    assert "prefers-color-scheme: dark" in text
    assert draw(tmp_path / "geometry.json", tmp_path / "b.svg").read_text() == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(outputs={}), "it has no outputs"),
        (lambda c: c["outputs"]["head"]["views"].pop(), r"alignment of head must be \(2, 2\)"),
        (lambda c: c["outputs"]["head"].update(positives=[]), "must be lists of numbers"),
        (lambda c: c["outputs"]["head"]["rows"]["mean"].update(rank=float("nan")), "must be finite"),
        (lambda c: c.pop("step"), "step"),
    ],
)
def test_damaged_files_are_named(run, tmp_path, change, message, write_geometry):
    write_geometry(run)
    edit(run, "geometry.json", change)
    with pytest.raises(ValueError, match=rf"geometry.json is not a readable geometry of a run: .*{message}"):
        draw(run / "geometry.json", tmp_path / "g.svg")
    page = page_of(run, out=tmp_path / "r.html")
    assert "The geometry of the embeddings: geometry.json cannot be read" in page.text
    assert f"run: mvcl geometry {run}" in page.text
    assert "Geometry of the views" not in page.titles


def test_one_view_and_many_views(run, tmp_path, write_geometry):
    for k in (1, 12):
        write_geometry(run, k=k)
        page = page_of(run, out=tmp_path / "r.html")
        labels = [svg.get("aria-label", "") for svg in page.all("svg")]
        assert sum(x.startswith("Alignment of pairs") for x in labels) == (2 if k > 1 else 0)
