"""Shidani 2024, Proposition 2.2: how much more views lower the variance of Multi-Crop's loss.

    mvcl study shidani_variance --scale paper
    mvcl study shidani_variance --scale small

No training. Cost on 2 CPU cores: a minute with 10 seeds; small a quarter of that; smoke seconds.
"""

from mvcl.studies import Cell, Measure, MultiCropVariance, Study, Trend, Within, printed_variance

_ABOUT = """\
Variance of Multi-Crop's loss over batches by that of one pair of views, beside the factor of Eq. 3, 2 (2M - 1) / (3 M
(M - 1)), which the paper proves to be an upper bound and does not measure. Views c + noise / 2, both standard normal,
of 32 instances, embedded as (cos x, sin x), temperature 0.5, InfoNCE. The factor's proof counts a third of the pairs of
pairs that share a view, and gives pairs without a common view no covariance, although they share their instances."""


def paper(seeds: int = 10) -> Study:
    """20,000 batches for each seed."""
    return _study((2, 3, 4, 8), seeds, 20_000, "2 CPU cores, a minute, estimated")


def small(seeds: int = 5) -> Study:
    """5,000 batches for each seed."""
    return _study((2, 3, 4, 8), seeds, 5_000, "2 CPU cores, 20 seconds")


def smoke(seeds: int = 2) -> Study:
    """200 batches for each seed."""
    return _study((2, 4), seeds, 200, "seconds")


def _study(views: tuple[int, ...], seeds: int, batches: int, cost: str) -> Study:
    return Study(
        title="Shidani 2024, Proposition 2.2: variance of Multi-Crop",
        about=_ABOUT,
        cells=tuple(
            Cell(
                factors={"M": m},
                task=MultiCropVariance(views=m, batches=batches),
                printed={"variance": printed_variance(m)},
            )
            for m in views
        ),
        measures=(
            Measure(name="variance", label="variance by that of a pair", digits=3, better="lower"),
            Measure(name="excess", label="above the factor of Eq. 3", digits=3, better="lower"),
        ),
        claims=(
            Trend(
                text="More views lower the variance of Multi-Crop's loss",
                source="Proposition 2.2; Section 3.1",
                measure="variance",
                cells={},
                along="M",
                rises=False,
            ),
            Within(
                text="The variance is at most the factor of Eq. 3 times that of a pair",
                source="Proposition 2.2, Eq. 3",
                measure="excess",
                cells={},
                high=0,
            ),
        ),
        along="M",
        seeds=seeds,
        cost=cost,
    )
