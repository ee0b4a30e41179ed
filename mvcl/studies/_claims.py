"""Intervals over seeds, and rules that decide the claims of a paper."""

import abc
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mvcl import _files
from mvcl.metrics import Interval, interval
from mvcl.studies._grid import Cell, Factors, Found, Study, partner, select

_SHOWN = 4  # comparisons of a claim in its reason
_TOGETHER = "at 95% for all together (Bonferroni)"
_ANSWERS = ("does not hold", "cannot tell", "holds")

# One cell is compared by its values, two by their difference, four by the difference of their gains.
Compared = tuple[Cell, ...]


def difference(found: Found, first: Cell, second: Cell, measure: str, level: float = 0.95) -> Interval:
    """Interval of first - second, paired by seed, over the seeds that both have."""
    return interval(_minus(found.of(first, measure), found.of(second, measure)).values(), level)


class Verdict(NamedTuple):
    """The answer to a claim, "holds", "does not hold" or "cannot tell", and the numbers that decide, in words."""

    answer: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Claim(abc.ABC):
    """A statement of a paper about the cells of a study; a subclass is a rule that decides it."""

    text: str
    """The statement in our words."""
    source: str
    """Section, table or figure of the paper."""
    measure: str
    """Name of the measure that decides."""
    cells: Factors
    """Cells with these levels; all other factors may vary."""

    @property
    @abc.abstractmethod
    def rule(self) -> str:
        """How the answer is found, for readers."""

    @abc.abstractmethod
    def about(self, study: Study) -> list[list[Compared]]:
        """Comparisons that have to hold, each followed by its steps, none of which may be refuted.

        A claim about nothing is refused.
        """

    def _holds(self, of: Interval) -> bool:
        return of.low > 0

    def _refuted(self, of: Interval) -> bool:
        return of.high < 0

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured, with the comparisons that decide, at most `_SHOWN`.

        One refutes it. Refutation is corrected for their number (Bonferroni); that all hold needs no correction.
        """
        about, judged = self.about(found.study), []
        level = 1 - 0.05 / sum(map(len, about))
        digits = max([2, *(m.digits for m in found.study.measures if m.name == self.measure)])
        for group in about:
            whole, *steps = (_interval(found, cells, self.measure) for cells in group)
            holds = self._holds(whole) and not any(map(self._refuted, steps))
            refuted = any(self._refuted(_interval(found, cells, self.measure, level)) for cells in group)
            answer = "holds" if holds else "does not hold" if refuted else "cannot tell"
            judged.append((answer, f"{named(*group[0])}: {_text(whole, digits)}"))
        if len(judged) > _SHOWN:
            judged.sort(key=lambda of: _ANSWERS.index(of[0]))
        reasons, rest = [reason for _, reason in judged[:_SHOWN]], [one for one, _ in judged[_SHOWN:]]
        if rest:
            counts = ", ".join(f"{rest.count(one)} {one}" for one in _ANSWERS if one in rest)
            reasons.append(f"and {len(rest)} more: {counts}")
        reasons[:0] = self._order(found, [group[0] for group in about])
        return Verdict(min((one for one, _ in judged), key=_ANSWERS.index), "; ".join(reasons))

    def _order(self, found: Found, compared: Sequence[Compared]) -> list[str]:
        """Of one seed and without a noise: how many are as claimed, here and in print."""
        values = [_values(found, cells, self.measure) for cells in compared]
        if found.study.noise.get(self.measure) or max(map(len, values)) != 1:
            return []
        printed = [_combined([_printed(cell, self.measure) for cell in cells]) for cells in compared]
        (here, of), (there, known) = (
            (sum(self._holds(Interval(v, v, v, 1)) for [v] in filter(None, each)), sum(map(bool, each)))
            for each in (values, printed)
        )
        text = f"one seed: as claimed in {here} of {of} comparisons"
        return [f"{text}, in print in {there} of {known}" if known else text]


@dataclasses.dataclass(frozen=True)
class Above(Claim):
    """Some cells have a larger value than others; of a measure where less is better, exchange the two."""

    than: Sequence[Factors]
    """Each is put in place of a cell's own factors to find the cell that it is compared with."""

    _compared = "paired differences by seed"

    @property
    def rule(self) -> str:
        return f"{self._compared}: holds if all 95% intervals are above 0; does not hold if one is below 0, {_TOGETHER}"

    def about(self, study: Study) -> list[list[Compared]]:
        return _pairs(study, self.cells, self.than)


@dataclasses.dataclass(frozen=True)
class Bootstrapped(Above):
    """Some cells have a larger share of test examples right than others, or not a smaller one: over test examples.

    The paired bootstrap of each seed's runs. It is about other test examples and says nothing about other trainings. A
    task writes which examples are right to correct.npz in its folder: measure -> (n,) bool, the same n for all cells.
    """

    strictly: bool = False
    """The share is larger; False: it is not smaller."""
    level: float = 0.9
    """Of the interval."""

    @property
    def rule(self) -> str:
        holds = "above 0; does not hold if one is wholly below it" if self.strictly else "not wholly below 0"
        return (
            f"paired differences over test examples of one training for each seed, their bootstrap intervals of "
            f"{100 * self.level:g}%, which say nothing about other trainings: holds if all are {holds}"
        )

    def _holds(self, of: Interval) -> bool:
        return of.low > 0 if self.strictly else of.high >= 0

    def judge(self, found: Found) -> Verdict:
        """The answer by the differences of the examples that are right, in points."""
        judged = []
        for [(first, second)] in self.about(found.study):
            one, other = (_right(found, cell, self.measure) for cell in (first, second))
            wins = [one[seed].astype(int) - other[seed] for seed in one if seed in other]
            of, examples = _resampled(wins, self.level), len(wins[0]) if wins else 0
            answer = "holds" if self._holds(of) else "does not hold" if self._refuted(of) else "cannot tell"
            judged.append((answer, f"{named(first, second)}: {_text(of, 2)}, {examples} test examples"))
        reason = "; ".join(text for _, text in judged)
        return Verdict(min((answer for answer, _ in judged), key=_ANSWERS.index), reason)


@dataclasses.dataclass(frozen=True)
class Gain(Above):
    """A measure gains more from the first to the last level of a factor of numbers in some cells than in others.

    Factors beside `along` that still vary give one gain each.
    """

    along: str
    """The factor."""
    among: Sequence[str | int | float] = ()
    """Its levels that count; empty: all."""

    @property
    def _compared(self) -> str:  # type: ignore[override]
        return f"differences of the gains from the first to the last {self.along}, paired by seed"

    def about(self, study: Study) -> list[list[Compared]]:
        found: list[list[Compared]] = []
        for line, factors in itertools.product(_lines(study, self.cells, self.along, self.among), self.than):
            first, last = (partner(study, cell, factors) for cell in (line[0], line[-1]))
            if first is not None and last is not None and first is not line[0]:
                found.append([(line[0], line[-1], first, last)])
        return found


@dataclasses.dataclass(frozen=True)
class Alike(Gain):
    """A measure gains as much from the first to the last level of a factor of numbers in some cells as in others."""

    margin: float = 1.0
    """Largest difference between two gains, in the unit of the table."""

    @property
    def rule(self) -> str:
        return (
            f"{self._compared}: holds if all 95% intervals are within ±{self.margin:g}; does not hold if one is wholly "
            f"outside, {_TOGETHER}"
        )

    def _holds(self, of: Interval) -> bool:
        return -self.margin <= of.low and of.high <= self.margin

    def _refuted(self, of: Interval) -> bool:
        return of.high < -self.margin or of.low > self.margin


@dataclasses.dataclass(frozen=True)
class Trend(Claim):
    """A measure rises, or falls, along a factor of numbers.

    Factors beside `along` that still vary give one trend each.
    """

    along: str
    """The factor."""
    rises: bool = True
    """False: it falls."""
    among: Sequence[str | int | float] = ()
    """Levels of the factor that count; empty: all."""

    @property
    def rule(self) -> str:
        way, other = ("above", "below") if self.rises else ("below", "above")
        return (
            f"paired differences by seed: holds if the 95% interval from the first to the last {self.along} is {way} 0 "
            f"and no step's is {other} 0; does not hold if that from the first to the last, or a step's, is {other} 0, "
            + _TOGETHER
        )

    def about(self, study: Study) -> list[list[Compared]]:
        lines = _lines(study, self.cells, self.along, self.among)
        steps = [[(b, a) for a, b in itertools.pairwise(line)] if len(line) > 2 else [] for line in lines]
        return [[(line[-1], line[0]), *of] for line, of in zip(lines, steps)]

    def _holds(self, of: Interval) -> bool:
        return of.low > 0 if self.rises else of.high < 0

    def _refuted(self, of: Interval) -> bool:
        return of.high < 0 if self.rises else of.low > 0


@dataclasses.dataclass(frozen=True)
class Within(Claim):
    """A measure, or its difference between cells, lies in a range: cells are alike, or a bound is not passed."""

    than: Sequence[Factors] = ()
    """Each is put in place of a cell's own factors to find the cell whose value is subtracted; none: the values."""
    low: float = -math.inf
    """Least value, in the unit of the table."""
    high: float = math.inf
    """Largest value."""

    @property
    def rule(self) -> str:
        what = "paired differences by seed" if self.than else "means over seeds"
        ends = {"at least": self.low, "at most": self.high}
        inside = " and ".join(f"{end} {value:g}" for end, value in ends.items() if math.isfinite(value))
        return f"{what}: holds if all 95% intervals are {inside}; does not hold if one is wholly outside, {_TOGETHER}"

    def about(self, study: Study) -> list[list[Compared]]:
        if self.than:
            return _pairs(study, self.cells, self.than)
        return [[(cell,)] for cell in select(study, self.cells)]

    def _holds(self, of: Interval) -> bool:
        return self.low <= of.low and of.high <= self.high

    def _refuted(self, of: Interval) -> bool:
        return of.high < self.low or of.low > self.high


def _pairs(study: Study, cells: Factors, than: Sequence[Factors]) -> list[list[Compared]]:
    """The cells with their partners; a cell is not compared with itself."""
    pairs = [(cell, partner(study, cell, factors)) for cell in select(study, cells) for factors in than]
    return [[(cell, other)] for cell, other in pairs if other is not None and other is not cell]


def _lines(
    study: Study, factors: Factors, along: str, among: Sequence[str | int | float]
) -> list[list[Cell]]:
    """The cells with these factors, in the order of the factor `along`, of which levels may be chosen: a line for each
    level of the other factors."""
    if along not in study.cells[0].factors:
        return []
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in sorted(select(study, factors), key=lambda cell: cell.factors[along]):
        rest = tuple(level for name, level in cell.factors.items() if name != along)
        if not among or cell.factors[along] in among:
            groups.setdefault(rest, []).append(cell)
    return [group for group in groups.values() if len(group) > 1]


def _minus(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    """Differences of the seeds that both have."""
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def _values(found: Found, cells: Compared, measure: str) -> list[float]:
    """What is judged, of the seeds that all cells have."""
    return _combined([found.of(cell, measure) for cell in cells])


def _printed(cell: Cell, measure: str) -> dict[int, float]:
    """What the paper prints, as one seed."""
    return {0: cell.printed[measure]} if measure in cell.printed else {}


def _interval(found: Found, cells: Compared, measure: str, level: float = 0.95) -> Interval:
    """The interval over seeds; of one seed that of the noise which the paper's table shows of itself, if it does."""
    values, noise = _values(found, cells, measure), found.study.noise.get(measure)
    if noise is None or len(values) != 1:
        return interval(values, level)
    return noise.around(values[0], len(cells), level)


def _combined(of: list[dict[int, float]]) -> list[float]:
    """The value, the difference of two, or the difference of two gains."""
    if len(of) == 4:
        of = [_minus(of[1], of[0]), _minus(of[3], of[2])]
    return [*(_minus(*of) if len(of) == 2 else of[0]).values()]


def _right(found: Found, cell: Cell, measure: str) -> dict[int, np.ndarray]:
    """Seed -> (n,) bool of the runs that have written it."""
    folders = found.folders[found.study.cells.index(cell)] if found.folders else {}
    files = {seed: folder / "correct.npz" for seed, folder in folders.items()}
    arrays = {seed: _files.read_npz(file) for seed, file in files.items() if file.is_file()}
    return {seed: of[measure] for seed, of in arrays.items() if measure in of}


def _resampled(wins: Sequence[np.ndarray], level: float, draws: int = 10_000) -> Interval:
    """Bootstrap interval in points of the mean over seeds of (n,) arrays of -1, 0 and 1, by the numbers of each."""
    rng, means = np.random.default_rng(0), []
    for of in wins:
        drawn = rng.multinomial(len(of), np.bincount(of + 1, minlength=3) / len(of), draws)
        means.append(100 * (drawn[:, 2] - drawn[:, 0]) / len(of))
    if not means:
        return Interval(math.nan, math.nan, math.nan, 0)
    low, high = np.quantile(np.mean(means, axis=0), (0.5 - level / 2, 0.5 + level / 2))
    return Interval(100 * float(np.mean([of.mean() for of in wins])), float(low), float(high), len(wins))


def named(*cells: Cell) -> str:
    """What is judged, in words: of a difference the factors that differ, and behind them those that are shared."""
    if len(cells) != 2:
        name = cells[0].name
        return name if len(cells) == 1 else f"gain of {cells[1].name} - that of {cells[3].name}"
    first, second = cells
    differ = [name for name, level in first.factors.items() if second.factors[name] != level]
    one, other = (", ".join(f"{name} {cell.factors[name]}" for name in differ) for cell in cells)
    shared = ", ".join(f"{name} {level}" for name, level in first.factors.items() if name not in differ)
    return f"{one} - {other}" + (f" ({shared})" if shared else "")


def _text(of: Interval, digits: int) -> str:
    """An interval in words: "+1.20 [0.80, 1.60], 5 seeds"."""
    if not of.seeds:
        return "not run"
    seeds = f"{of.seeds} seed{'s' * (of.seeds > 1)}"
    if of.seeds == 1 and math.isinf(of.high):
        return f"{of.mean:+.{digits}f}, {seeds}"
    return f"{of.mean:+.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}], {seeds}"
