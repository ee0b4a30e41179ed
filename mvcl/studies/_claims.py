"""Intervals over seeds, and rules that decide the claims of a paper."""

import abc
import bisect
import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mvcl.metrics import Interval, interval
from mvcl.studies._grid import Baseline, Cell, Factors, Found, Study, partner, select

_SHOWN = 4  # comparisons of a claim in its reason
_MOST_SEEDS = 10_000
HOLDS, EQUAL, REFUTED = "holds", "equal within the margin", "does not hold"
OPEN = "cannot tell"
"""The answer to a claim that what was measured does not decide."""
ANSWERS = (REFUTED, OPEN, EQUAL, HOLDS)
"""Answers to a claim, the worst first."""

# One cell is compared by its values, two by their difference, four by the difference of their gains.
Compared = tuple[Cell, ...]


def difference(found: Found, first: Cell, second: Cell, measure: str, level: float = 0.95) -> Interval:
    """Interval of first - second, paired by seed, over the seeds that both have."""
    return interval(_minus(found.of(first, measure), found.of(second, measure)).values(), level)


class Verdict(NamedTuple):
    """The answer to a claim, "holds", "does not hold", "equal within the margin" or "cannot tell", and the reason."""

    answer: str
    reason: str
    half_width: float = 0.0
    """Largest of its intervals over seeds."""
    seeds: int = 0
    """With so many no half-width is above the margin, if deviations stay; 0 without a margin."""
    lacking: int = 0
    """With so many what cannot be told would be decided, if mean and deviation stay; 0: none, or unknown."""


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
        """When a comparison holds, and when it does not, for readers."""

    @abc.abstractmethod
    def about(self, study: Study) -> list[list[Compared]]:
        """Comparisons that have to hold, each followed by its steps, none of which may be refuted; a claim has one."""

    def _sign(self, of: Interval) -> int:
        """1: the comparison holds, -1: it does not, 0: its interval says neither."""
        return 1 if of.low > 0 else -1 if of.high < 0 else 0

    def _answer(self, margin: float, of: Interval) -> str:
        if sign := self._sign(of):
            return HOLDS if sign > 0 else REFUTED
        return EQUAL if max(-of.low, of.high) <= margin else OPEN

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured, the worst of the comparisons'; the reason has the `_SHOWN` worst."""
        about = self.about(found.study)
        judged = [self._judged(found, group) for group in about]
        answer = min((of.answer for of in judged), key=ANSWERS.index)
        if len(judged) > _SHOWN:
            judged.sort(key=lambda of: ANSWERS.index(of.answer))
        reasons, rest = [of.reason for of in judged[:_SHOWN]], [of.answer for of in judged[_SHOWN:]]
        if rest:
            counts = ", ".join(f"{rest.count(one)} {one}" for one in ANSWERS if one in rest)
            reasons.append(f"and {len(rest)} more: {counts}")
        half_width, seeds, lacking = (max(numbers) for numbers in zip(*(of[2:] for of in judged)))
        if answer == OPEN and all(of.lacking for of in judged if of.answer == OPEN):
            level = found.study.level
            every = (_values(found, cells, self.measure) for group in about for cells in group)
            refuted = [enough_seeds(of, level, lambda of: self._sign(of) < 0) for of in every if len(of) > 1]
            lacking = min([lacking, *refuted])
            reasons.append(too_few(lacking))
        reasons[:0] = self._order(found, [group[0] for group in about])
        return Verdict(answer, "; ".join(reasons), half_width, seeds, lacking)

    def _judged(self, found: Found, group: Sequence[Compared]) -> Verdict:
        """A comparison with its steps; with a cell that is not trained it decides nothing."""
        study, margin = found.study, found.study.margin(self.measure) or 0.0
        intervals = [interval(_values(found, cells, self.measure), study.level) for cells in group]
        answers = [self._answer(margin, of) for of in intervals]
        answer = min(answers, key=ANSWERS.index)
        complete = all(of.seeds for of in intervals)
        if answers[0] == HOLDS and answer != REFUTED and complete:  # steps may be open
            answer = HOLDS
        digits = max([2, *(m.digits for m in study.measures if m.name == self.measure)])
        reason = f"{named(*group[0])}: {_text(intervals[0], digits)}"
        decides = answers.index(answer)
        if decides and intervals[decides].seeds:
            reason += f", a step's {named(*group[decides])}: {_text(intervals[decides], digits)}"
        if intervals[0].seeds and not complete:
            reason += ", a step not run"
        if untrained := _not_trained(found, group, self.measure):
            return Verdict(OPEN, f"{reason}, not trained: {'; '.join(untrained)}")
        of = intervals[decides]
        if margin and answer in (HOLDS, REFUTED) and max(-of.low, of.high) <= margin:
            reason += f", less than {margin:g}"
        half_width, seeds, lacking = 0.0, 0, 0
        for cells, of, one in zip(group, intervals, answers):
            values = _values(found, cells, self.measure)
            if len(values) < 2 or not math.isfinite(of.mean):
                continue
            half_width = max(half_width, (of.high - of.low) / 2)
            if margin:
                narrow = enough_seeds(values, study.level, lambda of: of.high - of.low <= 2 * margin)
                seeds = max(seeds, narrow)
            if answer == one == OPEN and (cells is group[0] or answers[0] != OPEN):
                decided = enough_seeds(values, study.level, lambda of: self._answer(margin, of) != OPEN)
                lacking = max(lacking, decided)
        return Verdict(answer, reason, half_width, seeds, lacking)

    def _order(self, found: Found, compared: Sequence[Compared]) -> list[str]:
        """Of one seed: how many are as claimed, here and in print."""
        m, values = self.measure, [_values(found, cells, self.measure) for cells in compared]
        if max(map(len, values)) != 1:
            return []
        each = ([{0: c.printed[m]} if m in c.printed else {} for c in cells] for cells in compared)
        printed = list(map(_combined, each))
        every = map(itertools.chain.from_iterable, (values, printed))
        here, there = ([self._sign(Interval(v, v, v, 1)) > 0 for v in each] for each in every)
        text = f"one seed: as claimed in {sum(here)} of {len(here)} comparisons"
        return [f"{text}, in print in {sum(there)} of {len(there)}" if there else text]


@dataclasses.dataclass(frozen=True)
class Above(Claim):
    """Some cells have a larger value than others; of a measure where less is better, exchange the two."""

    than: Sequence[Factors]
    """Each is put in place of a cell's own factors to find the cell that it is compared with."""
    along: str = ""
    """Gains from the first to the last level of this factor of numbers are compared, one for each level of the other
    factors that still vary; empty: values."""
    among: Sequence[str | int | float] = ()
    """Levels of `along` that count; empty: all."""

    @property
    def rule(self) -> str:
        return f"{_differences(self.along)}: holds above 0, does not hold below 0"

    def about(self, study: Study) -> list[list[Compared]]:
        return _pairs(study, self)


@dataclasses.dataclass(frozen=True)
class Trend(Claim):
    """A measure rises, or falls, along a factor of numbers; other factors that still vary give one trend each."""

    along: str
    """The factor."""
    rises: bool = True
    """False: it falls."""
    among: Sequence[str | int | float] = ()
    """As of `Above`."""

    @property
    def rule(self) -> str:
        way, other = ("above", "below") if self.rises else ("below", "above")
        return (
            f"paired differences by seed: holds if that from the first to the last {self.along} is {way} 0 and no "
            f"step's is {other} 0; does not hold if that from the first to the last, or a step's, is {other} 0"
        )

    def about(self, study: Study) -> list[list[Compared]]:
        lines = _lines(study, self)
        steps = [[(b, a) for a, b in itertools.pairwise(line)] if len(line) > 2 else [] for line in lines]
        return [[(line[-1], line[0]), *of] for line, of in zip(lines, steps)]

    def _sign(self, of: Interval) -> int:
        return super()._sign(of) if self.rises else -super()._sign(of)


@dataclasses.dataclass(frozen=True)
class Within(Claim):
    """A measure, its difference or the difference of its gains between cells, lies in a range."""

    than: Sequence[Factors] = ()
    """Each is put in place of a cell's own factors to find the cell whose value is subtracted; none: the values."""
    low: float = -math.inf
    """Least value, in the unit of the table."""
    high: float = math.inf
    """Largest value."""
    along: str = ""
    """As of `Above`."""
    among: Sequence[str | int | float] = ()
    """As of `Above`."""

    @property
    def rule(self) -> str:
        what = _differences(self.along) if self.than else "means over seeds"
        ends = {"at least": self.low, "at most": self.high}
        inside = " and ".join(f"{end} {value:g}" for end, value in ends.items() if math.isfinite(value))
        return f"{what}: holds if wholly {inside}, does not hold if wholly outside"

    def about(self, study: Study) -> list[list[Compared]]:
        return _pairs(study, self) if self.than else [[(cell,)] for cell in select(study, self.cells)]

    def _sign(self, of: Interval) -> int:
        if self.low <= of.low and of.high <= self.high:
            return 1
        return -1 if of.high < self.low or of.low > self.high else 0


def enough_seeds(values: Sequence[float], level: float, does: Callable[[Interval], bool]) -> int:
    """The least number of seeds whose interval at this level does, if mean and deviation stay; 10,001: more.

    What an interval does, a narrower one of the same mean must do.
    """
    from scipy.special import stdtrit  # its import is slow

    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1))

    def would(n: int) -> bool:
        half = float(stdtrit(n - 1, 0.5 + level / 2)) * deviation / math.sqrt(n)
        return does(Interval(mean, mean - half, mean + half, n))

    return 2 + bisect.bisect_left(range(2, _MOST_SEEDS + 1), True, key=would)


def too_few(enough: int) -> str:
    """That there are too few seeds, and how many are `enough_seeds`, in words."""
    most = f"more than {_MOST_SEEDS:,}" if enough > _MOST_SEEDS else enough
    return f"too few seeds: {most} would decide, if mean and deviation stay"


def _not_trained(found: Found, group: Sequence[Compared], measure: str) -> list[str]:
    """The names of cells that are not trained; none where a baseline is what is compared."""
    cells = {cell.name: cell.task for compared in group for cell in compared}
    baselines = any(isinstance(task, Baseline) for task in cells.values())
    return [name for name in cells if not baselines and measure in found.not_trained.get(name, ())]


def _differences(along: str) -> str:
    gains = f"differences of the gains from the first to the last {along}, paired by seed"
    return gains if along else "paired differences by seed"


def _pairs(study: Study, claim: Above | Within) -> list[list[Compared]]:
    """The cells with their partners, or the first and last cells of lines; a cell is not compared with itself."""
    lines = _lines(study, claim) if claim.along else [[cell] for cell in select(study, claim.cells)]
    found: list[list[Compared]] = []
    for line, factors in itertools.product(lines, claim.than):
        first, last = (partner(study, cell, factors) for cell in (line[0], line[-1]))
        if first is not None and last is not None and first is not line[0]:
            found.append([(line[0], line[-1], first, last) if claim.along else (line[0], first)])
    return found


def _lines(study: Study, claim: Above | Trend | Within) -> list[list[Cell]]:
    """The cells of a claim, in the order of its factor `along`: a line for each level of the other factors."""
    along, among = claim.along, claim.among
    if along not in study.cells[0].factors:
        return []
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in sorted(select(study, claim.cells), key=lambda cell: cell.factors[along]):
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


def _combined(of: list[dict[int, float]]) -> list[float]:
    """The value, the difference of two, or the difference of two gains."""
    if len(of) == 4:
        of = [_minus(of[1], of[0]), _minus(of[3], of[2])]
    return [*(_minus(*of) if len(of) == 2 else of[0]).values()]


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
    """An interval in words, its half-width behind the mean: "+1.20 ± 0.40, 5 seeds"."""
    if not of.seeds:
        return "not run"
    half = f" ± {(of.high - of.low) / 2:.{digits}f}" if math.isfinite(of.high) else ""
    return f"{of.mean:+.{digits}f}{half}, {of.seeds} seed{'s' * (of.seeds > 1)}"
