"""The learning rates of the bench of the small studies, on images for validation and with other seeds."""

from pathlib import Path

import _bench
import _images
import pilot

from mvcl.studies import Study

_ABOUT = f"""\
The trained cells of the study `pilot` with each of three learning rates. Of the first
{_bench.TRAIN + _bench.VALIDATION:,} training images of CIFAR-10 the last {_bench.VALIDATION:,} take the place
of the test images, and the seeds are others: no test image and no run of `pilot` has a part in the choice."""


def small(seeds: int = 2, *, data: Path) -> Study:
    """Three rates of each objective and of training on labels. `data` is the file of CIFAR-10, .npz."""
    base = _bench.bench_of(2, _bench.Images(path=str(data)))
    supervised = _bench.baselines(base, {"objective": "", "k": 0})[-1]
    return Study(
        title="Learning rates of the bench of the small studies",
        about=_ABOUT,
        cells=_bench.of_rates([*pilot.cells_of(base), supervised]),
        measures=_bench.MEASURES,
        along="learning rate",
        seeds=seeds,
        cost="10 minutes on 2 CPU cores",
    )


smoke = _images.smoke(small)
