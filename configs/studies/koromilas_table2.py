"""Koromilas 2025, Tables II, III and VI and Fig. 3: accuracy, rank, uniformity and alignment by number of views.

Source: Sections V-A1, V-A2 and V-C1 to V-C3, appendix F; recipes `koromilas/cifar` and `koromilas/imagenet`.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path

import _bench
import _conflict
import _images
import _koromilas
import _rows
from _koromilas import ALL, DHEL, EQ_11, INFO_NCE, PAIRS

from mvcl.studies import SEEDS, Cell, Claim, Factors, Measure, Study, Trend, Within, changed, trained

_ABOUT = """\
k = 2, 3 and 4 views of each image of a batch, so that more views cost more. Objectives are those of the released code:
pwe, avg and PVC have NT-Xent and are one function at two views, MV-InfoNCE contrasts a vector with all others of the
batch; "MV-InfoNCE, Eq. 11" is the formula's, with MV-CL1's negatives, as appendix F says of both. MV-CL2 sums the
energies over the views, as the code does: only so it is MV-DHEL at k = 2, as printed. No numbers of runs are given.

Rank, uniformity and alignment are of the projection head's 128 outputs on the unit sphere, k random views of the test
images: the rank counts eigenvalues of a view's covariance above 1e-5, as the authors' released measures do (the
effective rank is RankMe), uniformity is the Wasserstein distance of the cosines from those of uniform points (lower is
more uniform), alignment the mean squared distance of two views (lower is closer). The paper does not say which
embeddings, which split or which tolerance. That competitors do not scale the dimension is decided as a gain of at most
one, that embeddings are aligned alike as mean squared distances that differ by at most 0.05 of 4.

Section III-F says that the pair terms of a view conflict, and more so with more views (L1). Measured are the gradients
of NT-Xent of the first view and each of the others at these embeddings: the mean cosine of two of them, the share of
cosines below 0, and their variance about their mean. The expected cosine of two terms is the same at any k if views are
drawn alike and the network is the same, so that a trend is the networks'. MV-InfoNCE and MV-DHEL have one term; theirs
are the pair terms that the others would have had."""
_PAPER = """

The cells of Fig. 3 are those of 128 images, k = 2 to 8; the figure prints no numbers and we do not have it. Table III
is weighted k-NN, 200 neighbours and e^(cosine / 0.07) as in the paper's reference (Wu 2018), of the encoder; that of
the head's outputs is beside it, as the paper says "learned representations".

In the paper's own numbers MV-InfoNCE does not gain most from 2 to 4 views on CIFAR-100 (PVC does, +3.8) and on
ImageNet-1K (it gains least, +1.2), is below pwe, avg and PVC on ImageNet-1K at 3 and 4 views, and no objective but it
and MV-DHEL gains from 3 to 4 views on ImageNet-100. By k-NN it is below pwe on ImageNet-100 at 3 views.

At 2 views the printed accuracies of pwe, avg and PVC show the noise of a run. Read as two runs of each data set, those
of pwe and avg as one, a run's deviation is 0.31 and single runs tell differences of 1.2 points (95 %); read as three,
0.25 and 0.8. MV-InfoNCE is above the best of the pairs by 0.1 to 0.3 on both CIFARs."""
_SMALL = """

Here the paper's three tables and its figure are one grid, of 2, 4 and 8 views; claims of the tables end at 4, as they
do. The head's hidden layer has 64 units, so that its 128 outputs lie in 64 dimensions at most. MV-DHEL has all 64 at
k = 2 already, so that no claim compares the gains of the rank, only those of the effective rank."""
_MORE = ("MV-CL1", EQ_11, "MV-CL2")  # of Table VI
_LINEAR = {  # Tables II and VI
    ("CIFAR-10", 2): (86.0, 86.0, 85.8, 86.0, 87.4),
    ("CIFAR-10", 3): (87.5, 87.4, 87.0, 87.8, 89.1),
    ("CIFAR-10", 4): (88.7, 88.2, 88.0, 88.8, 89.5),
    ("CIFAR-100", 2): (58.1, 58.1, 57.3, 58.1, 59.4),
    ("CIFAR-100", 3): (59.9, 60.4, 60.3, 60.6, 61.8),
    ("CIFAR-100", 4): (60.9, 60.8, 61.1, 61.2, 62.7),
    ("ImageNet-100", 2): (72.2, 72.2, 72.2, 72.2, 73.3, 72.2, None, 73.3),
    ("ImageNet-100", 3): (75.0, 74.8, 75.0, 75.2, 77.1, 74.6, None, 76.7),
    ("ImageNet-100", 4): (73.9, 73.7, 74.4, 75.8, 77.2, 74.8, None, 76.8),
    ("ImageNet-1K", 2): (60.0, 60.0, 59.7, 60.0, 61.2),
    ("ImageNet-1K", 3): (61.2, 61.0, 61.4, 60.8, 61.9),
    ("ImageNet-1K", 4): (62.0, 61.6, 62.4, 61.2, 62.6),
}
_KNN: dict[str, dict[int, tuple[float | None, ...]]] = {  # Table III, which has no avg
    "CIFAR-10": {3: (82.3, None, 82.3, 83.0, 85.1), 4: (83.4, None, 83.6, 84.3, 86.7)},
    "CIFAR-100": {3: (43.9, None, 43.8, 44.9, 49.9), 4: (45.1, None, 45.3, 45.9, 51.8)},
    "ImageNet-100": {3: (65.3, None, 63.8, 64.7, 68.5), 4: (63.3, None, 65.6, 65.9, 70.1)},
    "ImageNet-1K": {3: (42.1, None, 42.4, 42.5, 42.6), 4: (43.8, None, 43.7, 44.9, 46.3)},
}
_RANK, _EFFECTIVE, _UNIFORMITY, _ALIGNMENT = (measure.name for measure in _images.GEOMETRY[:4])
_TITLE = "Koromilas 2025, Tables II, III and VI and Fig. 3: accuracy and geometry by number of views"


def paper(seeds: int = 1, *, released: bool = False) -> Study:
    """CIFAR-10 and -100 with ResNet-18, ImageNet-100 and -1K with ResNet-50; Fig. 3 on both CIFARs.

    Args:
      released: train as the authors' code does, without the cells of Fig. 3.
    """
    bases, cells, claims = _koromilas.images(released=released), list[Cell](), list[Claim]()
    for factors in _rows.grid(data=bases, k=(2, 3, 4), objective=(*ALL, *_MORE)):
        data, k, name = factors.values()
        if name in ALL or data == "ImageNet-100":
            tables = {"linear, SGD": _LINEAR.get((data, k), ()), "k-NN": _KNN[data].get(k, ())}
            known = {m: dict(zip((*ALL, *_MORE), of)).get(name) for m, of in tables.items()}
            printed = {m: value for m, value in known.items() if value is not None}
            objective = {"objective": _koromilas.objectives(0.1 if data == "ImageNet-1K" else 0.5)[name]}
            cells.append(trained(factors, bases[data](k), objective, printed, _images.with_embeddings))
    for where in ({"data": data} for data in bases):
        claims += _table_claims("linear, SGD", (2, 3, 4), where)
    claims += _table_6_claims("linear, SGD", (3, 4), {"data": "ImageNet-100"})
    for name in () if released else ("CIFAR-10", "CIFAR-100"):
        data = f"{name}, 128 images"
        for factors in _rows.grid(data=[data], k=range(2, 9), objective=ALL):
            base = changed(bases[name](factors["k"]), {"train.batch_size": 128})
            objective = {"objective": _koromilas.objectives()[factors["objective"]]}
            cells.append(trained(factors, base, objective, measure=_images.with_embeddings))
        claims += _figure_claims("linear, SGD", range(2, 9), {"data": data})
    measures = (_koromilas.SGD, *(Measure(name, percent=True) for name in ("k-NN", "k-NN, head")))
    return Study(
        unequal="A batch of ImageNet-1K has 512 images, of Fig. 3 128, of the others 256 (Section V, Appendix E).",
        title=_TITLE,
        about=_ABOUT + _PAPER + _koromilas.RELEASED * released,
        cells=cells,
        measures=(*measures, *_images.GEOMETRY),
        claims=claims,
        columns="objective",
        reference={"objective": "pwe"},
        along="k",
        noise=dict.fromkeys(("linear, SGD", "k-NN"), _koromilas.NOISE),
        seeds=seeds,
        cost=_rows.of_gpus(291_000 if released else 191_000, "a seed"),
    )


def small(seeds: int = SEEDS, *, data: Path) -> Study:
    """Part of CIFAR-10, k = 2, 4 and 8. `data` is its file, .npz."""
    ks = (2, 4, 8)
    grid = _rows.grid(objective=ALL, k=ks) + _rows.grid(objective=_MORE, k=(4,))
    claims = _table_claims(_images.LINEAR, (2, 4), {}) + _table_6_claims(_images.LINEAR, (4,), {})
    claims += _figure_claims(_images.LINEAR, ks, {}, dimensions=64)
    cells = [_koromilas.on_bench(data, factors) for factors in grid]
    same = {"title": _TITLE, "measures": (*_bench.MEASURES, *_images.GEOMETRY), **_koromilas.BY_K}
    return _images.study(data, cells, _ABOUT + _SMALL, claims=claims, seeds=seeds, **same)


smoke = _images.smoke(small)


def _table_claims(accuracy: str, ks: Sequence[int], where: Factors) -> list[Claim]:
    """Of Tables II and III."""
    two, three = "Table II, Section V-A1", "Table III, Section V-A2"
    of_knn = [name for name in ALL if name != "avg"]
    return [
        *_koromilas.best_claims(ALL, ks, accuracy, two, where),
        _koromilas.gain_claim(INFO_NCE, ALL, accuracy, two, where, ks),
        *_koromilas.best_claims(of_knn, [k for k in ks if k > 2], "k-NN", three, where),
    ]


def _table_6_claims(accuracy: str, ks: Sequence[int], where: Factors) -> list[Claim]:
    """One term for an instance or one for each of its views; at k = 2 the paper prints the same accuracies."""
    rows: list[_rows.Row] = []
    notes = {DHEL: "", INFO_NCE: ", with the negatives of the code", EQ_11: ", with the same negatives"}
    for first, note in notes.items():
        second = "MV-CL2" if first == DHEL else "MV-CL1"
        text = f"{first} is above {second} at k = {{k}}{note}"
        rows += _rows.each(text, {**where, "objective": first}, [{"objective": second}], k=ks)
    return _rows.above("Table VI, appendix F", accuracy, rows)


def _figure_claims(accuracy: str, ks: Sequence[int], where: Factors, dimensions: int = 128) -> list[Claim]:
    """What Sections V-C1 to V-C3 say of Fig. 3, and Section III-F of gradients."""
    on, found, ours = _koromilas.on(where), list[Claim](), (INFO_NCE, DHEL)
    a, b, c, d = (f"Fig. 3{panel}, Section V-C{n}" for panel, n in zip("abcd", (1, 2, 3, 3)))
    for name in ours:
        found += _koromilas.pair_claims(name, ALL, ks[-1:], accuracy, a, where)
    found += _koromilas.rise_claims(ALL, accuracy, a, where)
    for k in [k for k in ks if k >= 5]:
        text = f"MV-DHEL uses all {dimensions} dimensions at k = {k}{on}"
        found.append(Within(text, b, _RANK, {**where, "objective": DHEL, "k": k}, low=dimensions))
    ranks = ((_RANK, b), (_EFFECTIVE, f"{b}, of RankMe"))
    for measure, of in ranks if dimensions > 64 else ranks[1:]:
        found += _koromilas.rise_claims([DHEL], measure, of, where)
        found.append(_koromilas.gain_claim(DHEL, ALL, measure, of, where))
        found += _koromilas.no_rise_claims(ALL[:-1], ks, measure, of, where, 1.0)
    for name in ours:
        less = f"{{objective}} is less uniform than {name} at k = {{k}}{on}"
        rows = _rows.each(less, where, [{"objective": name}], objective=PAIRS, k=ks[-1:])
        found += _rows.above(c, _UNIFORMITY, rows)
        text, cells = f"{name} is more uniform with more views{on}", {**where, "objective": name}
        found.append(Trend(text, c, _UNIFORMITY, cells, "k", rises=False))
    several = [k for k in ks if k > 2]
    for name in PAIRS:
        text = f"the gradients of {name} conflict more with more views{on}"
        cells = {**where, "objective": name}
        found.append(Trend(text, "L1, Section III-F", _conflict.MEASURES[0], cells, "k", False, several))
    most = {**where, "k": ks[-1]}
    for first, second in itertools.combinations(ALL[:-1], 2):
        row = (f"{first} and {second} are aligned alike at k = {ks[-1]}{on}", {**most, "objective": first})
        found += _rows.within(d, _ALIGNMENT, (-0.05, 0.05), [(*row, [{"objective": second}])])
    row = (f"MV-DHEL is worse aligned than all others at k = {ks[-1]}{on}", {**most, "objective": DHEL})
    return found + _rows.above(d, _ALIGNMENT, [(*row, _rows.levels("objective", ALL[:-1]))])
