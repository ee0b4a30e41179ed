"""Shidani 2024, Figure 3b: ImageNet-1K accuracy after 128 epochs against the number of views M.

Section 3.2: M = 2, 3, 4, 6, 8, 12, 16, growing and fixed batch. Needs ImageNet-1K (docs/how_to/data.md).
"""

from collections.abc import Mapping
from functools import partial

from mvcl import losses, models, studies, training
from mvcl.studies import Above, Measure, Study, Trend, trained
from mvcl.training import Config

_ABOUT = """\
The paper's figure has no numbers. Accuracy is that of our linear probe on the validation images, as the paper does not
give its protocol (docs/papers/shidani.md). Growing: K = 4096 instances a batch for every M; fixed: K = (2 / M) 4096,
rounded down at M = 3, 6 and 12. At M = 2 all objectives are SimCLR's loss (Appendix E.2)."""

GEOMETRIC, SUFFICIENT, MULTI_CROP = "Poly-view, geometric", "Sufficient statistics", "Multi-Crop"
_OBJECTIVES = {
    GEOMETRIC: partial(losses.poly_view, temperature=0.1, aggregation="geometric"),
    SUFFICIENT: partial(losses.sufficient_statistics, temperature=0.1),
    MULTI_CROP: losses.all_pairs(partial(losses.nt_xent, temperature=0.1)),
}


def paper(seeds: int = 3) -> Study:
    """ImageNet-1K, ResNet-50, 128 epochs."""
    bases = {name: training.load(f"shidani/imagenet1k:{name}_batch") for name in ("growing", "fixed")}
    cost = "many accelerators; 3,600,000 PFLOP with 3 seeds, estimated from 31,500 for M = 8 (--dry-run)"
    return _study(bases, (2, 3, 4, 6, 8, 12, 16), seeds, cost)


def smoke(seeds: int = 2) -> Study:
    """Some steps of a small network on random images."""
    small = studies.changed(
        training.load("shidani/imagenet1k:smoke_fixed_batch"),
        {"encoder": models.ConvNet(widths=(4, 8)), "evaluation.linear": None},
    )
    return _study({"fixed": small}, (2, 4), seeds, "seconds", "k-NN", (GEOMETRIC, SUFFICIENT))


def _study(
    bases: Mapping[str, Config],
    views: tuple[int, ...],
    seeds: int,
    cost: str,
    accuracy: str = "linear, SGD",
    names: tuple[str, ...] = tuple(_OBJECTIVES),
) -> Study:
    cells = tuple(
        trained(
            {"objective": name, "batch": batch, "M": m}, base, {"objective": _OBJECTIVES[name], "views.k": m}
        )
        for batch, base in bases.items()
        for name in names
        for m in views
    )
    others = ({"objective": SUFFICIENT}, {"objective": MULTI_CROP})
    claims: list[Above | Trend] = []
    for batch in bases:
        claims += [
            Trend(
                f"More views are never harmful, {batch} batch: {name}",
                "Section 3.2, Figure 3b",
                accuracy,
                {"objective": name, "batch": batch},
                "M",
            )
            for name in names
        ]
        claims.append(
            Above(
                f"Geometric is the strongest, {batch} batch, M = {views[-1]}",
                "Section 3.2, Figure 3b",
                accuracy,
                {"objective": GEOMETRIC, "batch": batch, "M": views[-1]},
                others,
            )
        )
        if batch == "growing":
            claims.append(
                Above(
                    f"Multi-Crop is above sufficient statistics, growing batch, M = {views[-1]}",
                    "Section 3.2, Figure 3b",
                    accuracy,
                    {"objective": MULTI_CROP, "batch": batch, "M": views[-1]},
                    ({"objective": SUFFICIENT},),
                )
            )
    return Study(
        title="Shidani 2024, Figure 3b: ImageNet-1K after 128 epochs by number of views",
        about=_ABOUT,
        cells=cells,
        measures=(Measure(accuracy, label="accuracy", percent=True, digits=2),),
        claims=claims,
        columns="M",
        along="M",
        reference={"objective": GEOMETRIC},
        seeds=seeds,
        cost=cost,
    )
