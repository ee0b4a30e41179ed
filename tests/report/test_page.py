"""Content of the page, read with an HTML parser; test_browser.py tests its layout."""

import io
import json
import re
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from mvcl.report import _figures, _page, _read, write_report
from mvcl.training import _goodput

SECTIONS = ["Evaluation", "Curves", "Views", "Test embeddings", "Configuration"]
VOID = {"meta", "link", "img", "br", "input"}


class Page(HTMLParser):
    """Elements (tag, attributes), text by enclosing tag, and whether every tag is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.words, self.rows, self.titles = [], [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.words.append(data)
            if self.open[-1:] == ["h2"]:
                self.titles.append(data)
            if {"td", "th"} & set(self.open):
                self.rows[-1][-1] += data

    @property
    def text(self):
        return re.sub(r"\s+", " ", "".join(self.words))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(*runs, out):
    assert write_report(runs, out) == out
    return Page(out.read_text(encoding="utf-8"))


def edit(run, name, change):
    content = json.loads((run / name).read_text())
    change(content)
    (run / name).write_text(json.dumps(content))


def beat(run, sessions=1, **seconds):
    content = {"step": 60, "goodput": {"sessions": sessions, "furthest": 60, "seconds": seconds}}
    (run / "heartbeat.json").write_text(json.dumps(content))


def test_wall_time_is_a_bar(run, make_run, tmp_path):
    assert list(_page.PARTS) == list(_goodput.PARTS)
    assert "Wall time" not in page_of(run, out=tmp_path / "report.html").titles
    beat(run, sessions=2, training=3000.0, compiling=600.0, repeated=400.0, data=0.0)
    page = page_of(run, out=tmp_path / "report.html")
    assert "Wall time" in page.titles
    assert "1h06m in 2 sessions, of which 75 % training" in page.text
    assert "training 75.0 % (50m00s)" in page.text
    assert "training again what was not saved 10.0 % (6m40s)" in page.text
    assert "waiting for data" not in page.text
    widths = [e["style"].split(";")[0] for e in page.all("span") if "width" in e.get("style", "")]
    assert widths == ["width: 75.00%", "width: 15.00%", "width: 10.00%"]
    page = page_of(run, make_run("second"), out=tmp_path / "report.html")
    assert f"{run.name}: 1h06m in 2 sessions" in page.text
    (run / "heartbeat.json").write_text('{"step"')
    assert "The wall time: heartbeat.json cannot be read" in page_of(run, out=tmp_path / "report.html").text


def test_one_run_has_all_sections(run, tmp_path):
    page = page_of(run, out=tmp_path / "new" / "report.html")
    assert ["trained encoder", "0.960", "0.960", "0.960 ± 0.012", "0.960 ± 0.012"] in page.rows
    assert ["raw input", "0.900", "0.900", "0.900 ± 0.012", "0.900 ± 0.012"] in page.rows
    assert ["", "k-NN", "linear", "5 labels/class", "10 labels/class"] in page.rows
    assert ["objective", "m3g epsilon 0.2"] in page.rows
    assert "Digits · ConvNet · m3g · 4 views" in page.text
    assert "vote of the 200 nearest of 1437 training rows" in page.text
    assert "dashed: chance level 19.1" in page.text
    assert '"batch_size": 256' in page.text  # the whole configuration
    plots = [svg["aria-label"] for svg in page.all("svg") if svg.get("role") == "img"]
    for title in ("Loss", "k-NN accuracy", "Effective rank", "Learning rate", "Throughput", "t-SNE plot"):
        assert sum(label.startswith(title) for label in plots) == 1
    images = page.all("img")
    assert len(images) == 8 * 5  # 8 of 12 examples, the original and 4 views
    assert all(image["alt"] for image in images)
    assert page.titles == SECTIONS
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["report.html"]


def test_images_equal_the_arrays(run, tmp_path):
    """Row i, column j of the grid is view j of example i, pixel by pixel."""
    images = page_of(run, out=tmp_path / "r.html").all("img")
    data = np.load(run / "views.npz")
    for i in (0, 3, 7):
        for j in range(5):
            source = images[5 * i + j]["src"].removeprefix("data:image/png;base64,")
            found = np.asarray(Image.open(io.BytesIO(b64decode(source))))
            np.testing.assert_array_equal(
                found, (data["images"][i] if j == 0 else data["views"][i, j - 1])[:, :, 0]
            )


def test_colour_images_and_large_ones(run, tmp_path, rng):
    images = rng.integers(0, 255, size=(2, 300, 200, 3)).astype(np.uint8)
    views = rng.integers(0, 255, size=(2, 3, 32, 32, 3)).astype(np.uint8)
    np.savez(
        run / "views.npz",
        images=images,
        views=views,
        sizes=np.array([32, 32, 16]),
        view_names=["global 1", "global 2", "local 1"],
        labels=np.zeros(2, int),
        class_names=np.array(["a"]),
    )
    found = page_of(run, out=tmp_path / "r.html").all("img")
    pictures = [Image.open(io.BytesIO(b64decode(i["src"].split(",")[1]))) for i in found]
    assert [p.size for p in pictures] == 2 * ([(85, 128)] + 2 * [(32, 32)] + [(16, 16)])
    assert [i["width"] for i in found] == 2 * ["72", "72", "72", "36"]
    assert found[3]["alt"].startswith("local 1 of example 1")
    np.testing.assert_array_equal(np.asarray(pictures[1]), views[0, 0])
    np.testing.assert_array_equal(np.asarray(pictures[3]), views[0, 2, :16, :16])


def test_curves_equal_the_log():
    """The path of the line in the SVG, mapped back by its end points, is the series."""
    steps, values = np.arange(5.0), np.array([4.0, 1.0, 3.0, 0.0, 2.0])
    svg = _figures.curves([(steps, values)], [], "loss", "alt")
    paths = [p for p in re.findall(r'<path d="([^"]*)"[^>]*var\(--s0\)', svg) if p.count("L") == 4]
    xy = np.array(re.findall(r"[ML] (\S+) (\S+)", paths[0]), float)
    np.testing.assert_allclose(np.interp(xy[:, 0], xy[[0, -1], 0], [0, 4]), steps, atol=1e-4)
    low, high = xy[3, 1], xy[0, 1]
    np.testing.assert_allclose((xy[:, 1] - low) / (high - low) * 4, values, atol=1e-4)


def test_ids_do_not_look_like_colours(monkeypatch):
    monkeypatch.setattr(_figures.zlib, "crc32", lambda data: 0xE01B2C3D)  # after an "f": #fe01b2c3d
    values = np.arange(5.0)
    svg = _figures.curves([(values, values)], [], "loss", "alt")
    ids = re.findall(r' id="([^"]*)"', svg)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:url\(|href=")#([^")]*)', svg)) <= set(ids)
    assert "#fe01" not in svg


def test_compares_several_runs(make_run, tmp_path):
    a, b, c = make_run("a"), make_run("b", epsilon=0.5), make_run("c", k=8)
    edit(c, "evaluation.json", lambda e: e["rows"]["raw input"][0].update(protocol="another way"))
    page = page_of(a, b, c, out=tmp_path / "r.html")
    assert ["views.k", "4", "4", "8"] in page.rows
    assert ["objective.epsilon", "0.2", "0.5", "0.2"] in page.rows
    assert page.rows[0][:3] == ["run", "views.k", "objective.epsilon"]
    assert [row[:3] for row in page.rows[1:4]] == [["a", "4", "0.2"], ["b", "4", "0.5"], ["c", "8", "0.2"]]
    assert "k-NN (c, raw input)another way" in page.text
    loss = next(svg for svg in page.all("svg") if svg.get("aria-label", "").startswith("Loss"))
    assert "last value a 2.989, b 2.989, c 2.989" in loss["aria-label"]
    text = (tmp_path / "r.html").read_text()
    picture = text[text.index('aria-label="Loss') :]
    picture = picture[: picture.index("</svg>")]
    for color in ("var(--s0)", "var(--s1)", "var(--s2)"):
        assert (
            len(re.findall(rf'<path d="[^"]*"[^>]*stroke: {re.escape(color)}', picture)) >= 2
        )  # line and chance


def test_shows_user_functions(make_run, tmp_path):
    """They are shown with their file; runs with different versions of a function differ."""
    runs = [make_run("a"), make_run("b")]
    for run, digest in zip(runs, ("0123", "4567")):
        mine = {"_function": "own.py:my_loss", "_digest": digest, "margin": 1}
        edit(run, "config.json", lambda c, mine=mine: c.update(objective=mine))
    page = page_of(runs[0], out=tmp_path / "r.html")
    assert ["objective", "own.py:my_loss margin 1"] in page.rows
    page = page_of(*runs, out=tmp_path / "r.html")
    assert ["objective._digest", "0123", "4567"] in page.rows
    assert len([row for row in page.rows if row[0].startswith("objective")]) == 1


def test_runs_with_equal_names_get_different_names(make_run, tmp_path):
    page = page_of(make_run("x/run"), make_run("y/run"), out=tmp_path / "r.html")
    assert "The configurations are equal" in page.text
    for folder in ("x/run", "y/run"):
        assert f"{folder}, " in page.text or f", {folder}" in page.text
        assert str(tmp_path) not in page.text


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
def test_lists_missing_or_damaged_files(run, tmp_path, name, remedy, section):
    content = (run / name).read_bytes()
    truncated = b"{" if name == "metrics.jsonl" else content[: len(content) // 2]
    for damage in (None, truncated, b"\x00\xff[1]", b""):
        (run / name).unlink(missing_ok=True)
        if damage is not None:
            (run / name).write_bytes(damage)
        page = page_of(run, out=tmp_path / "r.html")
        assert f"{name} {'is missing' if damage is None else 'cannot be read'}" in page.text
        assert remedy in page.text
        assert page.titles == [t for t in ["Missing", *SECTIONS] if t != section]


def test_page_of_an_empty_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    page = page_of(tmp_path / "empty", out=tmp_path / "r.html")
    for name in ("config.json", "metrics.jsonl", "evaluation.json", "views.npz", "embeddings.npz"):
        assert f"{name} is missing" in page.text


def test_pickled_arrays_are_not_loaded(run, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    np.savez(run / "embeddings.npz", features=np.array([Trap()], dtype=object), labels=[0], class_names=["a"])
    assert "embeddings.npz cannot be read" in page_of(run, out=tmp_path / "r.html").text
    assert not (tmp_path / "sprung").exists()


def test_the_log_of_a_run_that_was_killed_and_resumed(tmp_path):
    lines = [
        {"step": 0, "loss": 9.0, "note": "x", "flag": True},
        {"step": 10, "loss": 8.0},
        {"step": 10, "knn": 0.5},
        {"step": 20, "loss": 7.0},
        "truncated",
        {"step": 10, "loss": 6.0},
        {"loss": 1.0},
        {"step": "30", "loss": 1.0},
        [1],
    ]
    text = "\n".join('{"step": 2' if line == "truncated" else json.dumps(line) for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '\n{"step": 40, "loss": NaN}\n{"step": 50, "lo')
    scalars = _read.read_run(tmp_path).scalars
    assert list(scalars) == [0, 10, 20, 40]
    assert scalars[0] == {"step": 0, "loss": 9}
    assert scalars[10] == {"step": 10, "loss": 6, "knn": 0.5}
    assert np.isnan(scalars[40]["loss"])
    text = page_of(tmp_path, out=tmp_path / "r.html").text
    assert "last value 7; not finite at step 40" in text


def test_escapes_text_from_files(make_run, tmp_path):
    evil = "</td><script>alert(1)</script><img src=x onerror=alert(1)>&\"'$\\frac"
    run = make_run('"><script>alert(2)<', classes=tuple(f"{evil}{i}" for i in range(10)))
    for name, change in (
        ("config.json", lambda c: c.update({evil: {"_type": evil, evil: evil}})),
        (
            "evaluation.json",
            lambda e: e["rows"].update({evil: [{"name": evil, "value": 1, "protocol": evil}]}),
        ),
    ):
        edit(run, name, change)
    for allowed, page in (
        (0, page_of(run, out=tmp_path / "r.html")),
        (1, page_of(run, run, out=tmp_path / "r.html")),
    ):
        assert len(page.all("script")) == allowed
        assert not any("onerror" in attributes for _, attributes in page.elements)
        assert all(image["src"].startswith("data:") for image in page.all("img"))
        assert evil in page.text


def test_loads_no_other_files(make_run, tmp_path):
    for page in (
        page_of(make_run("a"), out=tmp_path / "r.html"),
        page_of(make_run("b"), make_run("c"), out=tmp_path / "s.html"),
    ):
        for tag, attributes in page.elements:
            assert tag not in ("iframe", "object", "embed", "form")
            assert tag != "script" or attributes == {}
            for key in ("src", "href", "xlink:href", "srcset", "action", "poster"):
                assert attributes.get(key, "#").startswith(("#", "data:"))
            assert "url(" not in (attributes.get("style") or "").replace("url(#", "")
        policy = next(
            m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"
        )
        assert policy.startswith("default-src 'none'")
    style = re.search("<style>(.*?)</style>", (tmp_path / "r.html").read_text(), re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_references_resolve(run, tmp_path):
    page = page_of(run, out=tmp_path / "r.html")
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    text = (tmp_path / "r.html").read_text()
    used = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', text))
    assert {a or b for a, b in used} <= set(ids)
    assert "#fe01" not in text  # every colour became a variable of the style sheet
    defined = set(re.findall(r"(--\w+):", text))
    assert set(re.findall(r"var\((--\w+)\)", text)) <= defined


def test_the_same_folder_gives_the_same_page(run, tmp_path):
    page_of(run, out=tmp_path / "a.html")
    page_of(run, out=tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_tsne_separates_separated_classes(rng):
    centres = rng.normal(size=(4, 20)) * 5
    labels = np.repeat(np.arange(4), 30)
    points, rows = _figures.project((centres[labels] + rng.normal(size=(120, 20))).astype(np.float32))
    assert points.shape == (120, 2)
    np.testing.assert_array_equal(rows, np.arange(120))
    middle = np.array([points[labels == c].mean(0) for c in range(4)])
    nearest = np.argmin(np.linalg.norm(points[:, None] - middle[None], axis=-1), axis=1)
    np.testing.assert_array_equal(nearest, labels)


def test_tsne_uses_a_fixed_sample_of_a_large_split(rng, monkeypatch):
    monkeypatch.setattr(_figures, "POINTS", 50)
    features = rng.normal(size=(300, 3)).astype(np.float32)
    points, rows = _figures.project(features)
    again, same = _figures.project(features)
    assert len(points) == len(set(rows.tolist())) == 50
    assert rows.max() > 200
    np.testing.assert_array_equal(rows, same)
    np.testing.assert_array_equal(points, again)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((3, 4), np.float32), "at least 5 embeddings, got 3"),
        (
            np.ones((30, 4), np.float32) * np.arange(1, 31, dtype=np.float32)[:, None],
            "the encoder has collapsed",
        ),
        (np.full((30, 4), np.nan, np.float32), "120 of the features are not finite"),
    ],
)
def test_explains_a_missing_embedding_plot(run, tmp_path, features, message):
    np.savez(
        run / "embeddings.npz", features=features, labels=np.zeros(len(features), int), class_names=["a"]
    )
    assert message in page_of(run, out=tmp_path / "r.html").text


def test_many_classes_and_one_dimension(run, tmp_path, rng):
    features = rng.normal(size=(200, 1)).astype(np.float32)
    np.savez(
        run / "embeddings.npz", features=features, labels=np.arange(200) % 100, class_names=np.array([], str)
    )
    assert "100 classes share 70 pairs of colour and shape" in page_of(run, out=tmp_path / "r.html").text


def test_a_failed_write_keeps_the_old_page(run, tmp_path, monkeypatch):
    out = tmp_path / "r.html"
    out.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_report([run], out)
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["first", "r.html"]


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match="run_dirs must name at least one run folder, got none"):
        write_report([], tmp_path / "r.html")
    with pytest.raises(ValueError, match=r"run_dirs must be folders .*nowhere"):
        write_report([tmp_path / "nowhere"], tmp_path / "r.html")


def test_the_folders_that_are_read_are_reported(tmp_path, tracked):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    write_report([tmp_path / "a", tmp_path / "b"], tmp_path / "r.html", tracked)
    assert tracked == [("reading runs", 2, "runs", 2)]
