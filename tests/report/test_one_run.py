"""The page of one run: what it shows of each file, and of files that are missing or damaged."""

import fcntl
import io
import json
import re
from base64 import b64decode

import numpy as np
import pytest
from PIL import Image
from run_pages import edit, page_of, write_decomposition, write_geometry, write_refreshes

from mvcl.report import _read, write_report

SECTIONS = ["Evaluation", "Curves", "Views", "Test embeddings", "Configuration"]


def test_all_sections_are_in_order(whole):
    expected = ["Warnings", "Evaluation", "Curves", "Wall time", "Views", "Weights of the pairs"]
    expected += ["Each view over time", "Pairs of views over time", "Geometry of the views"]
    assert whole[1].titles == [*expected, "What the views tell", *SECTIONS[-2:]]


def test_evaluation_and_config_are_tables(whole):
    page = whole[1]
    assert ["", "k-NN", "linear", "5 labels/class"] in page.rows
    assert ["trained encoder", "0.960", "0.960", "0.960 ± 0.012"] in page.rows
    assert ["raw input", "0.900", "0.900", "0.900 ± 0.012"] in page.rows
    assert ["objective", "m3g epsilon 0.2"] in page.rows


@pytest.mark.parametrize(
    "text",
    [
        "Measured at step 399",
        "k-NNvote of the 200 nearest",
        "the features have collapsed",
        "last loss3.115chance 19.1 k-NN0.960raw input 0.900",
        "views per second9,198median",
        "Loss: last value 3.115; dashed: chance level 19.1",
        '"batch_size": 256',
        "Digits · m3g · 2 views · step 395",
        "1h06m: training 75.0 % (50m00s), evaluating 15.0 % (10m00s), compiling 10.0 % (6m40s)",
        "60 examples of test at step 400",
        "view 1, view 2",
    ],
)
def test_a_whole_run_has_its_numbers_in_the_text(whole, text):
    assert text in whole[1].text


def test_weights_and_accuracy_of_each_view(whole):
    run, page = whole
    assert ["view 2", "0.250", "1.700"] in page.rows
    assert ["view 1", "1.700", "0.500"] in page.rows
    assert "from step 5" in page.text
    assert "from step 9" in page.text
    labels = np.load(run / "embeddings.npz")["labels"]
    # Of two classes in one cluster the smaller one is wrong.
    right = 1 - min(np.mean(labels == 0), np.mean(labels == 1))
    assert f"view 1 1.000 to {right:.3f}, view 2 {right:.3f} to 1.000" in page.text
    shades = [td["style"] for td in page.all("td") if "color-mix" in td.get("style", "")]
    assert [int(re.search(r"(\d+)%", shade)[1]) for shade in shades] == [45, 7, 7, 45, 45, 13, 13, 45]
    for of in ("Cosine similarity", "Loss"):
        assert f"{of} of pairs of views over training steps" in page.plots


def test_geometry_tables_and_plots(whole):
    run, page = whole
    content = json.loads((run / "geometry.json").read_text())
    for output in ("encoder", "head"):
        rows = content["outputs"][output]["rows"]
        columns = list(dict.fromkeys(name for row in rows.values() for name in row))
        assert ["", *columns] in page.rows
        for name, values in rows.items():
            assert [name, *(f"{values[c]:.4g}" if c in values else "–" for c in columns)] in page.rows
        for title in ("Eigenvalues of the covariance", "Cosines of positives", "Alignment of pairs"):
            assert sum(alt.startswith(title) and f"at the {output}" in alt for alt in page.plots) == 1


def test_decomposition_is_a_bar_and_a_table_of_each_row(whole):
    page = whole[1]
    assert ["synergy", "1.500", "1.400", "1.600", "1.000", "2.000", "0.900", "2.100"] in page.rows
    assert ["left + right", "2.000", "1.900", "2.100", *["–"] * 4] in page.rows
    assert any("trained encoder 2.000 bits, raw views 2.000 bits" in alt for alt in page.plots)
    assert "what only several together tell" in page.text


def test_images_equal_the_arrays(whole):
    """Row i, column j of the grid is view j of example i, pixel by pixel."""
    images = [image for image in whole[1].all("img") if image.get("class") == "sharp"]
    data = np.load(whole[0] / "views.npz")
    assert len(images) == 8 * 3  # 8 of 12 examples, the original and 2 views
    for i, j in ((0, 0), (3, 1), (7, 2)):
        source = images[3 * i + j]["src"].removeprefix("data:image/png;base64,")
        found = np.asarray(Image.open(io.BytesIO(b64decode(source))))
        expected = data["images"][i] if j == 0 else data["views"][i, j - 1]
        np.testing.assert_array_equal(found, expected[:, :, 0])


@pytest.mark.parametrize(
    ("name", "remedy", "section"),
    [
        ("config.json", "mvcl train", "Configuration"),
        ("metrics.jsonl", "mvcl train", "Curves"),
        ("evaluation.json", "mvcl evaluate", "Evaluation"),
        ("views.npz", "mvcl train", "Views"),
        ("embeddings.npz", "mvcl embed", "Test embeddings"),
    ],
)
def test_missing_and_damaged_files_are_listed_and_the_rest_is_shown(run, tmp_path, name, remedy, section):
    content = (run / name).read_bytes()
    cut = b"{" if name == "metrics.jsonl" else content[: len(content) // 2]
    for damage in (None, cut, b"\x00\xff[1]", b"", b"[1]"):
        (run / name).unlink(missing_ok=True)
        if damage is not None:
            (run / name).write_bytes(damage)
        page = page_of(run, out=tmp_path / "r.html")
        assert f"{name} {'is missing' if damage is None else 'cannot be read'}" in page.text
        assert remedy in page.text
        assert page.titles == [title for title in ["Missing", *SECTIONS] if title != section]


def test_a_run_in_progress_misses_nothing(run, tmp_path):
    (run / "embeddings.npz").unlink()
    with (run / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "Missing" not in page_of(run, out=tmp_path / "r.html").titles
    assert "Missing" in page_of(run, out=tmp_path / "r.html").titles


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("time.json", {"training": seconds}) for seconds in (float("nan"), -1, "x")),
        ("views.npz", {"views": np.ones((12, 4, 8, 8, 1))}),
        ("views.npz", {"sizes": [8, 8, 8]}),
        ("embeddings.npz", {"features": np.ones(40)}),
        ("embeddings.npz", {"features": np.full((40, 3), np.nan)}),
        ("embeddings.npz", {"features": np.array([{}] * 40)}),
        *(("refresh.jsonl", {name: value}) for name in ("weights", "clusters")
          for value in ([1, 2], 1, [], [["a"]], [[1.5, 2]])),
        ("geometry.json", {"outputs": {}}),
        ("geometry.json", {"step": None}),
        ("decomposition.json", {"rows": {}}),
    ],
)  # fmt: skip
def test_content_that_does_not_fit_is_named(run, tmp_path, name, content):
    if name == "refresh.jsonl":
        write_refreshes(run, [{"step": 0, "weights": [[1.0]]}, {"step": 5, **content}])
    elif name.endswith("npz"):
        np.savez(run / name, **(dict(np.load(run / name)) | content))
    else:
        (write_geometry(write_decomposition(run)) / "time.json").write_text("{}")
        edit(run, name, lambda c: c.update(content))
    page = page_of(run, out=tmp_path / "r.html")
    assert f"{name} cannot be read (" in page.text
    assert "Evaluation" in page.titles


def test_an_empty_folder_has_a_page_and_a_missing_one_none(tmp_path):
    (tmp_path / "empty").mkdir()
    page = page_of(tmp_path / "empty", out=tmp_path / "r.html")
    assert page.titles == ["Missing"]
    assert len(page.all("li")) == 5
    with pytest.raises(ValueError, match="run_dirs must name at least one run folder, got none"):
        write_report([], tmp_path / "r.html")
    with pytest.raises(ValueError, match=r"run_dirs must be folders .*nowhere"):
        write_report([tmp_path / "nowhere"], tmp_path / "r.html")


def test_the_log_of_a_run_that_was_killed_and_resumed(run, tmp_path):
    lines = [{"step": 0, "loss": 9.0, "note": "x", "flag": True}, {"step": 10, "loss": 8.0}]
    lines += [{"step": 10, "knn": 0.5}, {"step": 20, "loss": 7.0}, {"step": 10, "loss": 6.0}]
    lines += [{"loss": 1.0}, {"step": "30", "loss": 1.0}, [1]]
    cut = '\n{"step": 2\n{"step": 40, "loss": NaN}\n{"step": 50, "lo'
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)) + cut)
    log = _read.read_run(run).log
    assert list(log.index) == [0, 10, 20, 40]
    assert list(log.columns) == ["loss", "knn"]
    assert log.loc[10].tolist() == [6, 0.5]
    assert np.isinf(log.loc[40, "loss"])
    assert "Loss: last value 7; not finite at step 40" in page_of(run, out=tmp_path / "r.html").text


def test_text_from_files_is_escaped(make_run, tmp_path):
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>&\"'$\\frac"
    run = make_run('"><script>alert(2)<', classes=tuple(f"{evil}{i}" for i in range(10)))
    edit(run, "config.json", lambda c: c.update({evil: {"_type": evil, evil: evil}}))
    result = {"name": evil, "value": 1, "protocol": evil}
    edit(run, "evaluation.json", lambda c: c["rows"].update({evil: [result]}))
    for runs in ([run], [run, run]):
        page = page_of(*runs, out=tmp_path / "r.html")
        assert len(page.all("script")) == len(runs) - 1
        assert not any("onerror" in attributes for _, attributes in page.elements)
        assert all(image["src"].startswith("data:") for image in page.all("img"))
        assert evil in page.text
