"""Intervals over seeds, and the claims of a paper: does what it says hold here?"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from mvcl.metrics import Interval, interval
from mvcl.studies._study import Cell, Factors, Found, Study, partner, select

_SHOWN = 4  # comparisons of a claim in its reason
Answer = Literal["holds", "does not hold", "cannot tell"]


def difference(found: Found, first: Cell, second: Cell, measure: str, level: float = 0.95) -> Interval:
    """Interval of first - second, paired by seed, over the seeds that both have."""
    a, b = found.of(first, measure), found.of(second, measure)
    return interval((a[seed] - b[seed] for seed in a if seed in b), level)


class Verdict(NamedTuple):
    """The answer to a claim.

    Attributes:
      answer: whether it holds.
      reason: the numbers that decide, in words.
    """

    answer: Answer
    reason: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """A statement of a paper about the cells of a study."""

    text: str
    """The statement in our words."""
    source: str
    """Section, table or figure of the paper."""
    measure: str
    """Name of the measure that decides."""

    @property
    def rule(self) -> str:
        """How the answer is found, for readers."""
        raise NotImplementedError(f"{type(self).__name__} is an interface")

    def check(self, study: Study) -> None:
        """Raise `ValueError` if the study has no cells that the claim is about."""
        raise NotImplementedError(f"{type(self).__name__} is an interface")

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured."""
        raise NotImplementedError(f"{type(self).__name__} is an interface")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Above(Claim):
    """Some cells have a larger value than others; of a measure where less is better, exchange the two."""

    cells: Factors
    """Cells with these levels; all other factors may vary."""
    than: tuple[Factors, ...]
    """Each is put in place of a cell's own factors to find the cell that it is compared with."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        return (
            "paired differences by seed: holds if all 95% intervals are above 0; does not hold if one is below 0, at "
            "95% for all together (Bonferroni)"
        )

    def pairs(self, study: Study) -> list[tuple[Cell, Cell]]:
        """The compared cells."""
        found = [
            (cell, other)
            for cell in select(study, self.cells)
            for factors in self.than
            if (other := partner(study, cell, factors)) is not None
        ]
        return [(cell, other) for cell, other in found if cell is not other]

    def check(self, study: Study) -> None:
        """Raise `ValueError` if the study has no cells that the claim is about."""
        if not self.pairs(study):
            raise ValueError(f"the claim {self.text!r} is about no cells of {study.title!r}")

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured."""
        return _of_all(found, [(minus(a, b), a, b) for a, b in self.pairs(found.study)], self.measure)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Gain(Claim):
    """A measure gains more from the first to the last level of a factor of numbers in some cells than in others."""

    cells: Factors
    """Cells with these levels; factors beside `along` that still vary give one gain each."""
    than: tuple[Factors, ...]
    """Each is put in place of the cells' own factors to find the cells whose gain is smaller."""
    along: str
    """The factor."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        return (
            f"differences of the gains from the first to the last {self.along}, paired by seed: holds if all 95% "
            "intervals are above 0; does not hold if one is below 0, at 95% for all together (Bonferroni)"
        )

    def _pairs(self, study: Study) -> list[tuple[tuple[Cell, Cell], tuple[Cell, Cell]]]:
        """First and last cell of a line, and those of the line that it is compared with."""
        found = []
        for line in lines(study, self.cells, self.along):
            for factors in self.than:
                first, last = (partner(study, cell, factors) for cell in (line[0], line[-1]))
                if first is not None and last is not None and first is not line[0]:
                    found.append(((line[0], line[-1]), (first, last)))
        return found

    def check(self, study: Study) -> None:
        """Raise `ValueError` if the study has no cells that the claim is about."""
        if self.along not in study.cells[0].factors or not self._pairs(study):
            raise ValueError(f"the claim {self.text!r} is about no cells of {study.title!r}")

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured."""
        compared = []
        for (first, last), (other_first, other_last) in self._pairs(found.study):
            gains, others = (
                {seed: high[seed] - low[seed] for seed in high if seed in low}
                for low, high in (
                    (found.of(first, self.measure), found.of(last, self.measure)),
                    (found.of(other_first, self.measure), found.of(other_last, self.measure)),
                )
            )
            name = f"gain of {last.name} - that of {other_last.name}"
            compared.append((name, [gains[seed] - others[seed] for seed in gains if seed in others]))
        return _above_zero(compared)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trend(Claim):
    """A measure rises, or falls, along a factor of numbers."""

    cells: Factors
    """Cells with these levels; factors beside `along` that still vary give one trend each."""
    along: str
    """The factor."""
    rises: bool = True
    """False: it falls."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        way, other = ("above", "below") if self.rises else ("below", "above")
        return (
            f"paired differences by seed: holds if the 95% interval from the first to the last {self.along} is {way} 0 "
            f"and no step's is {other} 0; does not hold if that from the first to the last, or a step's, is {other} 0, "
            "at 95% for all together (Bonferroni)"
        )

    def check(self, study: Study) -> None:
        """Raise `ValueError` if the study has no cells that the claim is about."""
        if self.along not in study.cells[0].factors or not lines(study, self.cells, self.along):
            raise ValueError(f"the claim {self.text!r} is about no cells of {study.title!r}")

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured."""
        sign = 1 if self.rises else -1
        answers, reasons = [], []
        compared = lines(found.study, self.cells, self.along)
        # The steps of each line, and from its first to its last cell, which of two cells is the step.
        together = 1 - 0.05 / sum(len(line) if len(line) > 2 else 1 for line in compared)
        for line in compared:
            whole = difference(found, line[-1], line[0], self.measure)
            steps = [(b, a) for a, b in itertools.pairwise(line)]
            against = any(_sign(difference(found, *step, self.measure)) == -sign for step in steps)
            holds = _sign(whole) == sign and not against
            every = [(line[-1], line[0]), *steps]
            refuted = any(_sign(difference(found, *pair, self.measure, together)) == -sign for pair in every)
            answers.append("holds" if holds else "does not hold" if refuted else "cannot tell")
            reasons.append(f"{minus(line[-1], line[0])}: {text(whole)}")
        return Verdict(_together(answers), _most_telling(answers, reasons))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Within(Claim):
    """A measure, or its difference between cells, lies in a range: cells are alike, or a bound is not passed."""

    cells: Factors
    """Cells with these levels; all other factors may vary."""
    than: tuple[Factors, ...] = ()
    """Each is put in place of a cell's own factors to find the cell whose value is subtracted; none: the values."""
    low: float = -math.inf
    """Least value, in the unit of the table."""
    high: float = math.inf
    """Largest value."""

    @property
    def rule(self) -> str:
        """How the answer is found."""
        what = "paired differences by seed" if self.than else "means over seeds"
        ends = {"at least": self.low, "at most": self.high}
        inside = " and ".join(f"{end} {value:g}" for end, value in ends.items() if math.isfinite(value))
        return (
            f"{what}: holds if all 95% intervals are {inside}; does not hold if one is wholly outside, at 95% for all "
            "together (Bonferroni)"
        )

    def _compared(self, study: Study) -> list[tuple[Cell, Cell | None]]:
        if not self.than:
            return [(cell, None) for cell in select(study, self.cells)]
        above = Above(
            text=self.text, source=self.source, measure=self.measure, cells=self.cells, than=self.than
        )
        return list(above.pairs(study))

    def check(self, study: Study) -> None:
        """Raise `ValueError` if the study has no cells that the claim is about."""
        if not self._compared(study):
            raise ValueError(f"the claim {self.text!r} is about no cells of {study.title!r}")

    def judge(self, found: Found) -> Verdict:
        """The answer from what was measured."""
        compared = self._compared(found.study)
        answers, reasons = [], []
        for cell, other in compared:
            mean, together = (
                interval(found.of(cell, self.measure).values(), level)
                if other is None
                else difference(found, cell, other, self.measure, level)
                for level in (0.95, 1 - 0.05 / len(compared))
            )
            inside = self.low <= mean.low and mean.high <= self.high
            outside = together.high < self.low or together.low > self.high
            answers.append("holds" if inside else "does not hold" if outside else "cannot tell")
            reasons.append(f"{cell.name if other is None else minus(cell, other)}: {text(mean)}")
        return Verdict(_together(answers), _most_telling(answers, reasons))


def lines(study: Study, factors: Factors, along: str) -> list[list[Cell]]:
    """The cells with these factors, in the order of the factor `along`: a line for each level of the other factors."""
    cells = sorted(select(study, factors), key=lambda cell: cell.factors[along])
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        rest = tuple(level for name, level in cell.factors.items() if name != along)
        groups.setdefault(rest, []).append(cell)
    return [group for group in groups.values() if len(group) > 1]


def text(of: Interval, digits: int = 2) -> str:
    """An interval in words: "+1.20 [0.80, 1.60], 5 seeds"."""
    if not of.seeds:
        return "not run"
    if of.seeds == 1:
        return f"{of.mean:+.{digits}f}, 1 seed"
    return f"{of.mean:+.{digits}f} [{of.low:.{digits}f}, {of.high:.{digits}f}], {of.seeds} seeds"


def _of_all(found: Found, pairs: Sequence[tuple[str, Cell, Cell]], measure: str) -> Verdict:
    compared = []
    for name, first, second in pairs:
        a, b = found.of(first, measure), found.of(second, measure)
        compared.append((name, [a[seed] - b[seed] for seed in a if seed in b]))
    return _above_zero(compared)


def _above_zero(compared: Sequence[tuple[str, Sequence[float]]]) -> Verdict:
    """Whether the values of each name, one per seed, are above 0."""
    answers, reasons = [], []
    for name, values in compared:
        gap, together = interval(values), interval(values, 1 - 0.05 / len(compared))
        answers.append(
            "holds" if _sign(gap) > 0 else "does not hold" if _sign(together) < 0 else "cannot tell"
        )
        reasons.append(f"{name}: {text(gap)}")
    return Verdict(_together(answers), _most_telling(answers, reasons))


def minus(first: Cell, second: Cell) -> str:
    """The difference of two cells in words: the factors in which they differ, and behind them those they share."""
    differ = [name for name, level in first.factors.items() if second.factors[name] != level]
    one, other = (", ".join(f"{name} {cell.factors[name]}" for name in differ) for cell in (first, second))
    shared = ", ".join(f"{name} {level}" for name, level in first.factors.items() if name not in differ)
    return f"{one} - {other}" + (f" ({shared})" if shared else "")


def _most_telling(answers: Sequence[str], reasons: Sequence[str]) -> str:
    """The comparisons that decide, at most `_SHOWN`, and how many others there are."""
    order = ["does not hold", "cannot tell", "holds"]
    ordered = sorted(zip(answers, reasons), key=lambda pair: order.index(pair[0]))
    shown = "; ".join(reason for _, reason in ordered[:_SHOWN])
    if len(ordered) <= _SHOWN:
        return "; ".join(reasons)
    rest = [answer for answer, _ in ordered[_SHOWN:]]
    counts = ", ".join(f"{rest.count(answer)} {answer}" for answer in order if answer in rest)
    return f"{shown}; and {len(rest)} more: {counts}"


def _together(answers: Sequence[str]) -> Answer:
    if "does not hold" in answers:
        return "does not hold"
    return "cannot tell" if "cannot tell" in answers else "holds"


def _sign(of: Interval) -> int:
    """1 if the interval is above 0, -1 if below, else 0."""
    return int(of.low > 0) - int(of.high < 0)
