"""Confidence intervals over seeds."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np


class Interval(NamedTuple):
    """A mean with its confidence interval; the interval of one seed is infinite.

    Attributes:
      mean: over seeds.
      low: lower end.
      high: upper end.
      seeds: number of values.
    """

    mean: float
    low: float
    high: float
    seeds: int


def interval(values: Iterable[float], level: float = 0.95) -> Interval:
    """Mean and confidence interval by Student's t, for independent values of one normal distribution, one per seed.

    Of one value it is from minus to plus infinity, of none, or where one is not finite, all NaN.
    """
    from scipy.special import stdtrit  # its import is slow

    x = np.asarray(list(values), np.float64)
    if not len(x):
        return Interval(math.nan, math.nan, math.nan, 0)
    if not np.isfinite(x).all():
        return Interval(math.nan, math.nan, math.nan, len(x))
    mean = float(x.mean())
    if len(x) == 1:
        return Interval(mean, -math.inf, math.inf, 1)
    half = float(stdtrit(len(x) - 1, 0.5 + level / 2) * x.std(ddof=1) / math.sqrt(len(x)))
    return Interval(mean, mean - half, mean + half, len(x))
