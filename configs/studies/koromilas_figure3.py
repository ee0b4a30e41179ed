"""Koromilas 2025, Fig. 3: accuracy, rank, uniformity and alignment by number of views; small with Tables II, III.

Source: Fig. 3, Sections V-C1 to V-C3; small also Tables II and III. Recipes `koromilas/cifar`, small `digits`.
"""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import _conflict
import _digits
import _koromilas
import _rows
from _koromilas import ALL, DHEL, INFO_NCE, PAIRS

from mvcl import studies, training
from mvcl.studies import SEEDS, Claim, Factors, Measure, Study, Trend, Within
from mvcl.training import Config

_MEASURED = """\
Rank, uniformity and alignment are of the projection head's 128 outputs on the unit sphere, k random views of the test
images: the rank counts eigenvalues of a view's covariance above 1e-5, as the authors' released measures do, uniformity
is the Wasserstein distance of the cosines from those of uniform points (lower is more uniform), alignment the mean
squared distance of two views (lower is closer). The paper does not say which embeddings, which split or which
tolerance its rank has. That competitors do not scale the dimension is decided as a gain of at most one dimension, that
embeddings are aligned alike as mean squared distances that differ by at most 0.05 of 4.

Section III-F and Fig. 2 say that the pair terms of a view conflict, and more so with more views (L1). Measured are the
gradients of NT-Xent of the first view and each of the others, by the first view, at these embeddings: the mean cosine
of two of them, the share of cosines below 0, and their variance about their mean. The expected cosine of two terms is
the same at any k if views are drawn alike and the network is the same, so that a trend is the networks'. MV-InfoNCE
and MV-DHEL have one term; theirs are the pair terms that the others would have had."""

_ABOUT = f"""\
CIFAR-10 and CIFAR-100 with batches of 128 images of k = 2 to 8 views (Section V-C). The paper's figure prints no
numbers and we do not have it. {_MEASURED}"""

_ABOUT_SMALL = f"""\
The grid of Tables II and III and of Fig. 3 on 1,437 training and 360 test digits of 8 x 8 pixels: k = 2, 3, 4 and 8
views, a ConvNet of widths 16, 32 and 64, batches of 128 with k views of every image, 10 epochs of AdamW at 3e-3 for
all objectives (the paper: ResNet-18 and -50, 100 or 200 epochs of SGD or LARS, CIFAR and ImageNet). So more views
cost more here too. Objectives are those of the released code at temperature 0.5. The claims of the tables are about
k up to 4, as the tables are.

Accuracy of Table II is that of 10 labels a class, the mean of 10 draws: all labels, the paper's linear layer, leave
little to separate on digits, where raw pixels have 96 %; both are shown. k-NN is Table III's, with 20 neighbours,
since a class has 144 rows, of the encoder and of the head. The head's hidden layer has 256 units, so that its 128
outputs can have rank 128; the effective rank (RankMe) is shown beside the rank, and the claims about the rank are
decided for both. One of the 360 test images is 0.28 %; all seeds share the split, so intervals are over networks and
views, not over images.

{_MEASURED}"""

_RANK, _EFFECTIVE = "rank", "effective rank"
_UNIFORMITY, _ALIGNMENT = "uniformity, Wasserstein", "alignment"
_COSINE, _SHARE, _VARIANCE = _conflict.MEASURES
_GEOMETRY = (
    Measure(_RANK, digits=1),
    Measure(_EFFECTIVE, digits=1),
    Measure(_UNIFORMITY, digits=4, better="lower"),
    Measure(_ALIGNMENT, digits=3, better="lower"),
    Measure(_COSINE, digits=3),
    Measure(_SHARE, percent=True, better="lower"),
    Measure(_VARIANCE, digits=3, better="lower"),
)


def paper(seeds: int = 1) -> Study:
    """CIFAR-10 and -100 with ResNet-18, batches of 128, k = 2 to 8."""
    bases = {name: partial(_cifar, name) for name in ("CIFAR-10", "CIFAR-100")}
    measures = (Measure("linear, SGD", percent=True), *_GEOMETRY)
    cost = f"several GPUs; 10,300 PFLOP a seed, estimated from the recipes' cost at k = 4{_koromilas.PROBE}"
    ks = range(2, 9)
    claims = [claim for data in bases for claim in _claims(ALL, ks, "linear, SGD", {"data": data})]
    return _study(bases, ALL, ks, measures=measures, claims=claims, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = SEEDS) -> Study:
    """Digits, k = 2, 3, 4 and 8; the measures and claims of Tables II and III too."""
    ks, few, printed = (2, 3, 4, 8), _digits.FEW, (2, 3, 4)
    claims: list[Claim] = [
        *_koromilas.best_claims(ALL, printed, few, "Table II, Section V-A1", {}),
        _koromilas.gain_claim(INFO_NCE, ALL, few, "Table II, Section V-A1", {}, printed),
        *_koromilas.best_claims(ALL, printed[1:], "k-NN", "Table III, Section V-A2", {}),
    ]
    known = [dataclasses.replace(claim, text="", source="") for claim in claims]
    for claim in _claims(ALL, ks, few, {}):
        if dataclasses.replace(claim, text="", source="") not in known:
            claims.append(claim)
    measures = (*_digits.ACCURACIES, Measure("k-NN, head", percent=True), *_GEOMETRY)
    cost = "40 minutes on 2 cores, estimated"
    bases = {"digits": _on_digits}
    return _study(
        bases, ALL, ks, measures=measures, claims=claims, about=_ABOUT_SMALL, seeds=seeds, cost=cost
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random images."""
    names, ks, cost = ("pwe", DHEL), (3,), "seconds on 2 cores"
    claims = _claims(names, ks, "linear", {})
    measures = (*_digits.LINEAR, *_GEOMETRY)
    bases = {"random": _random}
    return _study(bases, names, ks, measures=measures, claims=claims, about=_ABOUT, seeds=seeds, cost=cost)


def _cifar(name: str, k: int) -> Config:
    return studies.changed(_koromilas.images(name)[name](k), {"train.batch_size": 128})


def _on_digits(k: int) -> Config:
    knn = {"evaluation.knn_k": 20, "evaluation.knn_head": True}
    own = {**knn, "evaluation.baselines": True, "head.hidden": 256}
    return studies.changed(_digits.digits_of(k), own)


def _random(k: int) -> Config:
    steps = {"train.steps": 2, "train.evaluate_every": 0.0, "evaluation.draws": 2}
    return studies.changed(training.load("digits:smoke"), {"views.k": k, **steps})


def _claims(names: Sequence[str], ks: Sequence[int], accuracy: str, where: Factors) -> list[Claim]:
    """What Sections V-C1 to V-C3 say of Fig. 3, and Section III-F of gradients."""
    on, found = _koromilas.on(where), list[Claim]()
    ours, others = ([n for n in names if (n in PAIRS) == pairs] for pairs in (False, True))
    a, b, c, d = (f"Fig. 3{panel}, Section V-C{n}" for panel, n in zip("abcd", (1, 2, 3, 3)))
    for name in ours:
        found += _koromilas.pair_claims(name, names, ks, accuracy, a, where)
    for k in [k for k in ks if k >= 5] or [max(ks)]:
        text = f"MV-DHEL uses all 128 dimensions at k = {k}{on}"
        found.append(Within(text, b, _RANK, {**where, "objective": DHEL, "k": k}, low=128))
    for name in ours:
        less = f"{{objective}} is less uniform than {name} at k = {{k}}{on}"
        rows = _rows.each(less, where, [{"objective": name}], objective=others, k=[max(ks)])
        found += _rows.above(c, _UNIFORMITY, rows)
    if len(ks) > 1:
        found += _koromilas.rise_claims(names, accuracy, a, where)
        for measure, of in ((_RANK, b), (_EFFECTIVE, f"{b}, of RankMe")):
            found += _koromilas.rise_claims([DHEL], measure, of, where)
            found.append(_koromilas.gain_claim(DHEL, names, measure, of, where))
            competitors = [name for name in names if name != DHEL]
            found += _koromilas.no_rise_claims(competitors, ks, measure, of, where, 1.0)
        for name in ours:
            text, cells = f"{name} is more uniform with more views{on}", {**where, "objective": name}
            found.append(Trend(text, c, _UNIFORMITY, cells, "k", rises=False))
        for name in others:
            text, cells = f"the gradients of {name} conflict more with more views{on}", {"objective": name}
            several = [k for k in ks if k > 2]
            found.append(Trend(text, "L1, Section III-F", _COSINE, {**where, **cells}, "k", False, several))
    alike = [name for name in names if name != DHEL]
    for first, second in itertools.combinations(alike, 2):
        row = (f"{first} and {second} are aligned alike at every k{on}", {**where, "objective": first})
        found += _rows.within(d, _ALIGNMENT, (-0.05, 0.05), [(*row, [{"objective": second}])])
    worse = f"MV-DHEL is worse aligned than all others at every k{on}"
    row = (worse, {**where, "objective": DHEL})
    return found + _rows.above(d, _ALIGNMENT, [(*row, _rows.levels("objective", alike))])


def _study(bases: Mapping[str, Any], names: Sequence[str], ks: Sequence[int], **scale: Any) -> Study:
    return Study(
        title="Koromilas 2025, Fig. 3: accuracy, rank, uniformity and alignment by number of views",
        cells=_koromilas.by_k(bases, names, ks, _koromilas.results_and_embeddings),
        columns="k",
        reference={"objective": "pwe"},
        along="k",
        **scale,
    )
