"""Run folders as the training loop writes them, with invented numbers, and pages read with an HTML parser."""

import json
import re
from html.parser import HTMLParser
from unittest import mock

import numpy as np
from markupsafe import Markup
from sklearn.datasets import load_digits

from mvcl import evaluation, training
from mvcl.report import _figures, write_report

VOID = {"meta", "link", "img", "br", "input", "source"}
PROTOCOLS = {"k-NN": "vote of the 200 nearest", "linear": "logistic regression", "5 labels/class": "10 draws"}


class Page(HTMLParser):
    """Elements (tag, attributes), rows of the tables, and whether every tag is closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.source = text
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

    def row(self, name):
        return next(row for row in self.rows if row[0] == name)

    @property
    def plots(self):
        """The texts in place of the plots."""
        return [plot["aria-label"] for plot in self.all("svg")]


def drawn(*runs, out):
    assert write_report(runs, out) == out
    return Page(out.read_text(encoding="utf-8"))


def page_of(*runs, out):
    """The page of the runs, with empty plots, which cost no time."""

    def project(features):
        return features[:, :2], np.arange(len(features))

    def plot(*arguments, **_):
        return Markup('<svg aria-label="{}"></svg>').format(arguments[-1])

    def curves(lines, label, alt, *_, **__):
        return plot(alt)

    plain = [(title, lambda *_: None, alt, note) for title, _, alt, note in _figures._GEOMETRY]
    changed = {"curves": curves, "scatter": plot, "project": project, "_GEOMETRY": plain}
    with mock.patch.multiple(_figures, _plot=plot, **changed):
        return drawn(*runs, out=out)


def edit(run, name, change):
    content = json.loads((run / name).read_text())
    change(content)
    (run / name).write_text(json.dumps(content))


def measured(run, seed, knn, *, step=399, **changes):
    """The run with this seed, k-NN accuracy and step; `changes` are entries of that result."""
    edit(run, "config.json", lambda c: c["train"].update(seed=seed))

    def change(content):
        content["step"] = step
        content["rows"]["trained encoder"][0].update(value=knn, **changes)
        content["rows"]["untrained encoder"][0].update(value=0.5 + seed / 100)

    edit(run, "evaluation.json", change)
    return run


def write_run(path, *, epsilon=0.2, k=4, classes=()):
    """A complete run folder; `classes` renames the digits."""
    path.mkdir(parents=True)
    config = {
        "_type": "mvcl.training.Config",
        "data": {"_type": "mvcl.data.Digits"},
        "views": {"_type": "mvcl.training.Views", "k": k},
        "encoder": {"_type": "mvcl.models.ConvNet", "widths": [32, 64, 128]},
        "objective": {"_function": "mvcl.losses.m3g", "epsilon": epsilon},
        "train": {"_type": "mvcl.training.Train", "seed": 0, "batch_size": 256},
    }
    (path / "config.json").write_text(json.dumps(config))
    with (path / "metrics.jsonl").open("w") as file:
        for step in range(0, 400, 5):
            record = {"step": step, "epoch": step / 5, "loss": 3 + 16 * np.exp(-step / 80), "chance": 19.1}
            record |= {"learning_rate": 2e-3 * np.cos(step / 260), "views_per_second": 9000 + step}
            record |= {"knn": 0.97 - 0.3 * np.exp(-step / 60)} if step % 50 == 0 else {}
            file.write(json.dumps(record) + "\n")
    rows = {}
    for row, value in {"trained encoder": 0.96, "untrained encoder": 0.85, "raw input": 0.9}.items():
        rows[row] = [{"name": name, "value": value, "protocol": text} for name, text in PROTOCOLS.items()]
        rows[row][-1]["deviation"] = 0.012
    (path / "evaluation.json").write_text(json.dumps({"step": 399, "rows": rows}))
    x, y = load_digits(return_X_y=True)
    names = np.array(classes or [f"digit {i}" for i in range(10)])
    images = (x[:12] * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
    views = np.stack([np.roll(images, shift, axis=2) for shift in range(k)], axis=1)
    view_names = [f"view {view + 1}" for view in range(k)]
    np.savez(path / "views.npz", images=images, views=views, sizes=np.full(k, 8), view_names=view_names,
             labels=y[:12], class_names=names)  # fmt: skip
    features = x[:40].astype(np.float32)
    np.savez(path / "embeddings.npz", features=features, labels=y[:40], class_names=names)
    return path


def write_geometry(path, k=3):
    """The file that `mvcl geometry` writes, of random embeddings."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(1, 60, 8))
    names = ("<front>", *(f"view {view + 1}" for view in range(1, k)))
    outputs = {}
    for output, noise in (("encoder", 0.5), ("head", 0.2)):
        views = centres + noise * rng.normal(size=(k, 60, 8))
        outputs[output] = evaluation.geometry(views, names=names)
    (path / "geometry.json").write_text(training.RunGeometry(400, "test", 60, outputs).text())
    return path


def write_decomposition(path):
    """The file that `mvcl decompose` writes, with invented numbers."""
    numbers = {"left": [1.0, 0.9, 1.1], "left + right": [2.0, 1.9, 2.1]}
    numbers["unique left"] = [0.5, 0.4, 0.6, 0.0, 1.0, 0.0, 1.1]
    numbers["synergy"] = [1.5, 1.4, 1.6, 1.0, 2.0, 0.9, 2.1]
    columns = evaluation.Estimate._fields
    found = {"parts": ["unique left", "synergy"], "entropy": 2.5, "protocol": "Bits of labels"}
    found["numbers"] = {name: dict(zip(columns, row)) for name, row in numbers.items()}
    content = {"step": 400, "rows": {"trained encoder": found, "raw views": found | {"entropy": None}}}
    (path / "decomposition.json").write_text(json.dumps(content))
    return path


def write_refreshes(run, looks=None):
    """Of two views, at three steps, one line cut short."""
    if looks is None:
        labels = np.load(run / "embeddings.npz")["labels"]
        wrong = np.where(labels == 0, 1, labels)
        looks = [{"step": 0, "clusters": [labels.tolist(), wrong.tolist()]}]
        for step, weight, cosine, loss, first in ((5, 0.25, 0.3, 2.0, labels), (9, 0.5, 0.4, 1.0, wrong)):
            of_pairs = {"weights": (1.7, weight), "cosines": (1, cosine), "losses": (0, loss)}
            look = {name: [[own, pair], [pair, own]] for name, (own, pair) in of_pairs.items()}
            looks.append({"step": step, "clusters": [first.tolist(), labels.tolist()]} | look)
    (run / "refresh.jsonl").write_text("\n".join([*map(json.dumps, looks), '{"step": 12, "wei']))
    return run
