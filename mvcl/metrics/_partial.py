"""Partial information: what views tell of a target alone, in common, and only together."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_TINY = np.finfo(np.float64).tiny
_SWEEPS = 2  # over the tables, in each turn
_TURNS = 10  # before the information is looked at


class Parts(NamedTuple):
    """The parts of the information of k views: their sum over views and parts is that of all views.

    Attributes:
      unique: (..., k), what a view tells, and all others together do not.
      shared: (...), what a view tells, and the others, alone or together, tell again.
      synergy: (...), what no view tells, and several together do.
    """

    unique: np.ndarray
    shared: np.ndarray
    synergy: np.ndarray


def information_bounds(alone: ArrayLike, without: ArrayLike, whole: ArrayLike) -> tuple[Parts, Parts]:
    """Lower and upper bounds of the parts of an information, of any decomposition whose parts are not negative.

    With I_i of view i alone, W_i of all views without it, and I of all:

        unique_i   max(0, I_i - W_i)                <= U_i <= min(I_i, I - W_i)
        synergy    max(0, I - Σ_i I_i)              <= S   <= I - max_i I_i
        shared     max(0, max_i I_i + W_i - I)      <= R   <= min(min_i W_i, Σ_i I_i, I - least S - Σ_i least U_i)

    They follow from the lattice of Williams and Beer 2010 (arXiv 1004.2515): U_i is the atom {i}, S has the atoms
    without a single view, R all others. Of two views W_1 = I_2, and R - S = I_1 + I_2 - I exactly: one number is free.
    The least U_i and the largest S are those of the minimum mutual information (Barrett 2015, arXiv 1411.2832).

    Args:
      alone: (..., k), I_i of k >= 2 views.
      without: (..., k), W_i; of two views the other's information.
      whole: (...), I. Negative values count as 0, and what more views tell is at least what fewer do.
    """
    one, rest, all_views = _monotone(alone, without, whole)
    total, every = one.sum(-1), all_views[..., None]
    low = Parts(
        np.maximum(one - rest, 0),
        np.maximum(one + rest - every, 0).max(-1),
        np.maximum(all_views - total, 0),
    )
    left = all_views - low.synergy - low.unique.sum(-1)
    shared = np.minimum(np.minimum(rest.min(-1), total), left)
    return low, Parts(np.minimum(one, every - rest), shared, all_views - one.max(-1))


def information_parts(
    alone: ArrayLike,
    without: ArrayLike,
    whole: ArrayLike,
    *,
    tables: Sequence[ArrayLike] = (),
    others: Sequence[ArrayLike] = (),
) -> Parts:
    """One decomposition within the `information_bounds`, whose arguments are the first.

    With tables that of the `union_information`, BROJA (Bertschinger 2014) of two views; what is told twice, as a share
    of the most that can be, is that of the tables. Of more views U_i is BROJA of view i and all others together, and S
    what the union of all leaves (Griffith and Koch 2014). Without tables that of the minimum mutual information
    (Barrett 2015): the least unique and the largest synergy.

    Args:
      tables: of each view and the target, as `union_information` has them; (): none.
      others: of all views but one and the target, for each; of two views the tables, exchanged.
    """
    one, rest, every = _monotone(alone, without, whole)
    low, high = information_bounds(one, rest, every)
    if not tables:
        return Parts(low.unique, every - high.synergy - low.unique.sum(-1), high.synergy)
    if len(tables) != one.shape[-1] or len(others) != len(tables):
        what = f"tables and others must be {one.shape[-1]} each"
        raise ValueError(f"{what}, got {len(tables)} and {len(others)}")
    union = np.minimum(one.sum(-1) - _told_twice(*np.moveaxis(one, -1, 0), tables=tables), every)
    unique = [union - rest[..., i] for i in range(2)]  # of two views
    if len(tables) > 2:
        pairs = enumerate(zip(tables, others))
        unique = [one[..., i] - _told_twice(one[..., i], rest[..., i], tables=pair) for i, pair in pairs]
    own = np.clip(np.stack(unique, axis=-1), low.unique, high.unique)
    # Where tables and informations do not fit, less is unique.
    least, room = low.unique.sum(-1), union - low.shared
    scale = np.clip((room - least) / np.maximum(own.sum(-1) - least, _TINY), 0, 1)[..., None]
    own = low.unique + scale * (own - low.unique)
    shared = np.clip(union - own.sum(-1), low.shared, high.shared)
    return Parts(own, shared, every - shared - own.sum(-1))


def _told_twice(*informations: np.ndarray, tables: Sequence[ArrayLike]) -> np.ndarray:
    """The sum of informations without that of their union, in proportion to the tables'."""
    found = np.stack([table_information(table) for table in tables])
    most = found.sum(0) - found.max(0)
    share = np.clip((found.sum(0) - union_information(tables)) / np.maximum(most, 1e-9), 0, 1)
    given = np.stack(informations)
    return share * (given.sum(0) - given.max(0))


def _monotone(*informations: ArrayLike) -> tuple[np.ndarray, ...]:
    one, rest, whole = (np.asarray(of, np.float64) for of in informations)
    if one.ndim < 1 or one.shape[-1] < 2 or one.shape != rest.shape or whole.shape != one.shape[:-1]:
        got = f"{one.shape}, {rest.shape} and {whole.shape}"
        raise ValueError(f"alone, without and whole must be (..., k), (..., k) and (...), k >= 2, got {got}")
    one = np.maximum(one, 0)
    others = np.where(np.eye(one.shape[-1], dtype=bool), 0, one[..., None, :]).max(-1)
    rest = others if one.shape[-1] == 2 else np.maximum(rest, others)
    return one, rest, np.maximum(whole, np.maximum(one, rest).max(-1))


def union_information(
    tables: Sequence[ArrayLike], *, steps: int = 300, tolerance: float = 1e-5
) -> np.ndarray:
    """What k variables tell of a target, if their joint law with it is the one that tells least, in nats.

        min  I_Q(y; x_1, ..., x_k)   over laws Q whose tables of each x_i and y are those given

    What it leaves of the information of all is their synergy, and of two variables I_1 + I_2 - it is the shared
    information: Bertschinger 2014 (arXiv 1311.2852); of more variables Griffith and Koch 2014 (arXiv 1205.4265). For
    XOR it is 0, of two fair bits of which y is the pair 2 log 2. Found in turns: R is the mean of Q over y, and Q of
    each y is R, scaled to the tables (as Banerjee 2018, arXiv 1709.07487).

    Args:
      tables: k >= 2 joint probabilities (..., m_i, classes), with the same sums over m_i.
      steps: turns at most.
      tolerance: stop when ten turns change no information by more, in nats.
    """
    given: list[np.ndarray] = [np.asarray(table, np.float64) for table in tables]
    if len(given) < 2 or min(table.ndim for table in given) < 2 or min(table.min() for table in given) < 0:
        got = ", ".join(str(table.shape) for table in given)
        raise ValueError(f"tables must be at least 2 joint probabilities (..., m, classes) >= 0, got {got}")
    target = given[0].sum(-2)
    for table in given[1:]:
        if table.shape[:-2] + table.shape[-1:] != target.shape or not np.allclose(table.sum(-2), target):
            raise ValueError("tables must have the same probabilities of the classes, their sums over rows")
    k, batch = len(given), target.ndim - 1
    p = np.moveaxis(target, -1, 0)  # (classes, ...)
    p = p.reshape((*p.shape, *[1] * k))
    margins = []  # of x_i given y, (classes, ..., 1, m_i, 1)
    for i, table in enumerate(given):
        of = np.moveaxis(table, -1, 0) / np.maximum(np.moveaxis(target, -1, 0)[..., None], _TINY)
        margins.append(of.reshape((*of.shape[:-1], *[1] * i, of.shape[-1], *[1] * (k - 1 - i))))
    axes = [tuple(batch + 1 + j for j in range(k) if j != i) for i in range(k)]
    law = np.prod(np.broadcast_arrays(*margins), axis=0)  # independent given y
    factors, before = np.ones_like(law), np.inf
    for turn in range(1, steps + 1):
        mean = (p * law).sum(0)
        law = mean * factors
        for margin, over in zip([*margins] * _SWEEPS, axes * _SWEEPS):
            law = law * (margin / np.maximum(law.sum(over, keepdims=True), _TINY))
        factors = law / np.maximum(mean, _TINY)  # each a product of functions of x_1, ..., x_k
        if turn % _TURNS and turn < steps:
            continue
        parts = law * (np.log(np.maximum(law, _TINY)) - np.log(np.maximum((p * law).sum(0), _TINY)))
        value = (p * parts).sum((0, *range(-k, 0)))
        if np.max(np.abs(before - value), initial=0) < tolerance:
            break
        before = value
    return np.maximum(value, 0)


def table_information(table: ArrayLike) -> np.ndarray:
    """Mutual information (...) of joint probabilities (..., m, classes), in nats."""
    p = np.asarray(table, np.float64)
    independent = p.sum(-1, keepdims=True) * p.sum(-2, keepdims=True)
    ratio = np.log(np.maximum(p, _TINY)) - np.log(np.maximum(independent, _TINY))
    return np.where(p > 0, p * ratio, 0).sum((-2, -1))
