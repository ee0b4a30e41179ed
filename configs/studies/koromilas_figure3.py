"""Koromilas 2025, Fig. 3: accuracy, rank, uniformity and alignment by number of views; small with Tables II, III.

Source: Fig. 3, Sections V-C1 to V-C3; small also Tables II and III. Recipes `koromilas/cifar`, small `digits`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import _digits
import _koromilas

from mvcl import studies
from mvcl.studies import Above, Claim, Factors, Measure, Study, Trend, Within, trained
from mvcl.training import Config

_ABOUT = """\
CIFAR-10 and CIFAR-100 with batches of 128 images of k = 2 to 8 views (Section V-C). The paper's figure prints no
numbers and we do not have it. Rank, uniformity and alignment are of the projection head's 128 outputs on the unit
sphere, k random views of the test images: the rank counts eigenvalues of a view's covariance above 1e-5, as the
authors' released measures do, uniformity is the Wasserstein distance of the cosines from those of uniform points
(lower is more uniform), alignment the mean squared distance of two views (lower is closer). The paper does not say
which embeddings, which split or which tolerance its rank has."""

_ABOUT_SMALL = """\
The grid of Tables II and III and of Fig. 3 on 1,437 training and 360 test digits of 8 x 8 pixels: k = 2, 3, 4 and 8
views, a ConvNet of widths 16, 32 and 64, batches of 128 with k views of every image, 10 epochs of AdamW at 3e-3 for
all objectives (the paper: ResNet-18 and -50, 100 or 200 epochs of SGD or LARS, CIFAR and ImageNet). So more views
cost more here too. Objectives are those of the released code at temperature 0.5.

Accuracy of Table II is that of 10 labels a class, the mean of 10 draws: all labels, the paper's linear layer, leave
little to separate on digits, where raw pixels have 96 %; both are shown. k-NN is Table III's, 200 neighbours. The
head's hidden layer has 64 units, so that the rank of its 128 outputs is at most 64; the claim that MV-DHEL reaches
the full dimension from five views on is decided at k = 8 and 64. Already pwe with two views has rank 64, so the rank
cannot separate here; the effective rank (RankMe) is shown beside it, and the claims about the rank are decided for
both. One of the 360 test images is 0.28 %; all seeds share the split, so intervals are over networks and views, not
over images."""

_OBJECTIVES = ("pwe", "avg", "PVC", "MV-InfoNCE", "MV-DHEL")
_RANK, _EFFECTIVE, _UNIFORMITY, _ALIGNMENT = (
    "rank",
    "effective rank",
    "uniformity, Wasserstein",
    "alignment",
)
_GEOMETRY = (
    Measure(_RANK, digits=1),
    Measure(_EFFECTIVE, digits=1),
    Measure(_UNIFORMITY, digits=4, better="lower"),
    Measure(_ALIGNMENT, digits=3, better="lower"),
)


def paper(seeds: int = 1) -> Study:
    """CIFAR-10 and -100 with ResNet-18, batches of 128, k = 2 to 8."""
    bases = {"CIFAR-10": partial(_cifar, "cifar10"), "CIFAR-100": partial(_cifar, "cifar100")}
    measures = (Measure("linear, SGD", percent=True), *_GEOMETRY)
    cost = "several GPUs; 10,300 PFLOP a seed, estimated from the recipes' cost at k = 4"
    claims: list[Claim] = []
    for data in bases:
        claims += _claims(_OBJECTIVES, range(2, 9), "linear, SGD", {"data": data}, full=128)
    return _study(bases, _OBJECTIVES, range(2, 9), measures, claims, _ABOUT, seeds, cost)


def small(seeds: int = 5) -> Study:
    """Digits, k = 2, 3, 4 and 8; the measures and claims of Tables II and III too."""
    ks = (2, 3, 4, 8)
    tables: list[Claim] = [
        *_koromilas.best_claims(_OBJECTIVES, ks, "10 labels/class", "Table II, Section V-A1", {}),
        _koromilas.gain_claim("MV-InfoNCE", _OBJECTIVES, "10 labels/class", "Section V-A1", {}),
        *_koromilas.best_claims(_OBJECTIVES, ks, "k-NN", "Table III, Section V-A2", {}),
    ]
    figure = _claims(_OBJECTIVES, ks, "10 labels/class", {}, full=64)
    claims = [*tables, *(claim for claim in figure if claim not in tables)]
    measures = (*_digits.ACCURACIES, *_GEOMETRY)
    bases = {"digits": _on_digits}
    return _study(
        bases, _OBJECTIVES, ks, measures, claims, _ABOUT_SMALL, seeds, "9 minutes on 2 cores, estimated"
    )


def smoke(seeds: int = 2) -> Study:
    """Two steps of a tiny network on random images."""
    names, ks = ("pwe", "MV-DHEL"), (2,)
    claims = _claims(names, ks, "linear", {}, full=128)
    measures = (Measure("linear", percent=True), *_GEOMETRY)
    return _study({"random": _random}, names, ks, measures, claims, _ABOUT, seeds, "seconds on 2 cores")


def _cifar(variant: str, k: int) -> Config:
    return studies.changed(_koromilas.recipe_of(f"koromilas/cifar:{variant}", k), {"train.batch_size": 128})


def _on_digits(k: int) -> Config:
    return studies.changed(_digits.digits_of(k), {"evaluation.baselines": True})


def _random(k: int) -> Config:
    steps = {"train.steps": 2, "train.evaluate_every": 0.0, "evaluation.draws": 2}
    return studies.changed(_koromilas.recipe_of("digits:smoke", k), steps)


def _claims(names: Sequence[str], ks: Sequence[int], accuracy: str, where: Factors, full: int) -> list[Claim]:
    """What Section V-C says of Fig. 3; `full` is the largest rank."""
    on = "".join(f", {level}" for level in where.values())
    ours = [name for name in names if name in ("MV-InfoNCE", "MV-DHEL")]
    others = [name for name in names if name not in ours]
    than = tuple({"objective": name} for name in others)
    many = [k for k in ks if k >= 5] or [max(ks)]
    source = "Fig. 3b, Section V-C2"
    found: list[Claim] = [
        *_koromilas.best_claims(names, ks, accuracy, "Fig. 3a, Section V-C1", where),
        *(
            Within(
                f"MV-DHEL uses all {full} dimensions at k = {k}{on}",
                source,
                _RANK,
                {**where, "objective": "MV-DHEL", "k": k},
                low=full,
            )
            for k in many
        ),
        *(
            Above(
                f"{other} is less uniform than {name} at k = {max(ks)}{on}",
                "Fig. 3c, Section V-C3",
                _UNIFORMITY,
                {**where, "objective": other, "k": max(ks)},
                ({"objective": name},),
            )
            for name in ours
            for other in others
        ),
    ]
    if len(ks) > 1:
        found += _koromilas.rise_claims(names, accuracy, "Fig. 3a, Section V-C1", where)
        for measure, of in ((_RANK, source), (_EFFECTIVE, f"{source}, of RankMe")):
            found += _koromilas.rise_claims(["MV-DHEL"], measure, of, where)
            found.append(_koromilas.gain_claim("MV-DHEL", names, measure, of, where))
        found += [
            Trend(
                f"{name} is more uniform with more views{on}",
                "Fig. 3c, Section V-C3",
                _UNIFORMITY,
                {**where, "objective": name},
                "k",
                rises=False,
            )
            for name in ours
        ]
    found.append(
        Above(
            f"MV-DHEL is worse aligned than all others at every k{on}",
            "Fig. 3d, Section V-C3",
            _ALIGNMENT,
            {**where, "objective": "MV-DHEL"},
            (*than, *({"objective": name} for name in ours if name != "MV-DHEL")),
        )
    )
    return found


def _study(
    bases: Mapping[str, Callable[[int], Config]],
    names: Sequence[str],
    ks: Sequence[int],
    measures: tuple[Measure, ...],
    claims: Sequence[Claim],
    about: str,
    seeds: int,
    cost: str,
) -> Study:
    objectives = _koromilas.objectives()
    return Study(
        title="Koromilas 2025, Fig. 3: accuracy, rank, uniformity and alignment by number of views",
        about=about,
        cells=tuple(
            trained(
                {"data": data, "objective": name, "k": k},
                base(k),
                {"objective": objectives[name]},
                measure=_koromilas.results_and_embeddings,
            )
            for data, base in bases.items()
            for name in names
            for k in ks
        ),
        measures=measures,
        claims=claims,
        columns="k",
        reference={"objective": "pwe"},
        along="k",
        seeds=seeds,
        cost=cost,
    )
