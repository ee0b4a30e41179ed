"""Intervals over seeds, and rules that decide the claims of a paper."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from mvcl.metrics import Interval, interval
from mvcl.studies._grid import Cell, Claim, Factors, Found, Study, Verdict, partner, select

_SHOWN = 4  # comparisons of a claim in its reason
_TOGETHER = "at 95% for all together (Bonferroni)"


def difference(found: Found, first: Cell, second: Cell, measure: str, level: float = 0.95) -> Interval:
    """Interval of first - second, paired by seed, over the seeds that both have."""
    return interval(_minus(found.of(first, measure), found.of(second, measure)).values(), level)


@dataclasses.dataclass(frozen=True)
class Above(Claim):
    """Some cells have a larger value than others; of a measure where less is better, exchange the two."""

    cells: Factors
    """Cells with these levels; all other factors may vary."""
    than: Sequence[Factors]
    """Each is put in place of a cell's own factors to find the cell that it is compared with."""

    _compared = "paired differences by seed"

    @property
    def rule(self) -> str:
        return f"{self._compared}: holds if all 95% intervals are above 0; does not hold if one is below 0, {_TOGETHER}"

    def about(self, study: Study) -> list[tuple[Cell, ...]]:
        """The compared cells."""
        return _pairs(study, self.cells, self.than)

    def judge(self, found: Found) -> Verdict:
        return _decided(found, self, lambda of: of.low > 0, lambda of: of.high < 0)


@dataclasses.dataclass(frozen=True)
class Gain(Above):
    """A measure gains more from the first to the last level of a factor of numbers in some cells than in others.

    Factors beside `along` that still vary give one gain each.
    """

    along: str
    """The factor."""

    @property
    def _compared(self) -> str:  # type: ignore[override]
        return f"differences of the gains from the first to the last {self.along}, paired by seed"

    def about(self, study: Study) -> list[tuple[Cell, ...]]:
        """First and last cell of a line, and those of the line that it is compared with."""
        found: list[tuple[Cell, ...]] = []
        for line, factors in itertools.product(_lines(study, self.cells, self.along), self.than):
            first, last = (partner(study, cell, factors) for cell in (line[0], line[-1]))
            if first is not None and last is not None and first is not line[0]:
                found.append((line[0], line[-1], first, last))
        return found


@dataclasses.dataclass(frozen=True)
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
        way, other = ("above", "below") if self.rises else ("below", "above")
        return (
            f"paired differences by seed: holds if the 95% interval from the first to the last {self.along} is {way} 0 "
            f"and no step's is {other} 0; does not hold if that from the first to the last, or a step's, is {other} 0, "
            + _TOGETHER
        )

    def about(self, study: Study) -> list[list[Cell]]:
        """The lines that should rise or fall."""
        return _lines(study, self.cells, self.along)

    def judge(self, found: Found) -> Verdict:
        lines, answers, reasons = self.about(found.study), [], []
        # The steps of each line, and from its first to its last cell, which of two cells is the step.
        level = 1 - 0.05 / sum(len(line) if len(line) > 2 else 1 for line in lines)
        for line in lines:
            pairs = [(line[-1], line[0]), *((b, a) for a, b in itertools.pairwise(line))]
            ways = pairs if self.rises else [pair[::-1] for pair in pairs]
            whole, *steps = [difference(found, *pair, self.measure) for pair in ways]
            holds = whole.low > 0 and not any(step.high < 0 for step in steps)
            refuted = any(difference(found, *pair, self.measure, level).high < 0 for pair in ways)
            answers.append(_answer(holds, refuted))
            reasons.append(f"{_named(*pairs[0])}: {_text(difference(found, *pairs[0], self.measure))}")
        return _verdict(answers, reasons)


@dataclasses.dataclass(frozen=True)
class Within(Claim):
    """A measure, or its difference between cells, lies in a range: cells are alike, or a bound is not passed."""

    cells: Factors
    """Cells with these levels; all other factors may vary."""
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

    def about(self, study: Study) -> list[tuple[Cell, ...]]:
        """The cells, or the compared cells."""
        if self.than:
            return _pairs(study, self.cells, self.than)
        return [(cell,) for cell in select(study, self.cells)]

    def judge(self, found: Found) -> Verdict:
        return _decided(
            found,
            self,
            lambda of: self.low <= of.low and of.high <= self.high,
            lambda of: of.high < self.low or of.low > self.high,
        )


def _pairs(study: Study, cells: Factors, than: Sequence[Factors]) -> list[tuple[Cell, ...]]:
    """The cells with their partners; a cell is not compared with itself."""
    pairs = [(cell, partner(study, cell, factors)) for cell in select(study, cells) for factors in than]
    return [(cell, other) for cell, other in pairs if other is not None and other is not cell]


def _lines(study: Study, factors: Factors, along: str) -> list[list[Cell]]:
    """The cells with these factors, in the order of the factor `along`: a line for each level of the other factors."""
    if along not in study.cells[0].factors:
        return []
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in sorted(select(study, factors), key=lambda cell: cell.factors[along]):
        rest = tuple(level for name, level in cell.factors.items() if name != along)
        groups.setdefault(rest, []).append(cell)
    return [group for group in groups.values() if len(group) > 1]


def _minus(a: Mapping[int, float], b: Mapping[int, float]) -> dict[int, float]:
    """Differences of the seeds that both have."""
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def _decided(
    found: Found, claim: Claim, holds: Callable[[Interval], bool], refuted: Callable[[Interval], bool]
) -> Verdict:
    """A claim about the values of cells, their differences, or the differences of gains: all have to hold.

    One refutes it. Refutation is corrected for their number (Bonferroni); that all hold needs no correction.
    """
    answers, reasons = [], []
    about = claim.about(found.study)
    for cells in about:
        of = [found.of(cell, claim.measure) for cell in cells]
        values, name = of[0], cells[0].name
        if len(cells) == 2:
            values, name = _minus(*of), _named(*cells)
        elif len(cells) == 4:
            values = _minus(_minus(of[1], of[0]), _minus(of[3], of[2]))
            name = f"gain of {cells[1].name} - that of {cells[3].name}"
        whole = interval(values.values())
        answers.append(_answer(holds(whole), refuted(interval(values.values(), 1 - 0.05 / len(about)))))
        reasons.append(f"{name}: {_text(whole)}")
    return _verdict(answers, reasons)


def _answer(holds: bool, refuted: bool) -> str:
    return "holds" if holds else "does not hold" if refuted else "cannot tell"


def _verdict(answers: Sequence[str], reasons: Sequence[str]) -> Verdict:
    """The answer to all, with the comparisons that decide, at most `_SHOWN`, and how many others there are."""
    ranked = ("does not hold", "cannot tell", "holds")
    answer = next((a for a in ranked if a in answers), "holds")
    if len(reasons) <= _SHOWN:
        return Verdict(answer, "; ".join(reasons))
    ordered = sorted(zip(answers, reasons), key=lambda pair: ranked.index(pair[0]))
    rest = [one for one, _ in ordered[_SHOWN:]]
    counts = ", ".join(f"{rest.count(one)} {one}" for one in ranked if one in rest)
    shown = "; ".join(reason for _, reason in ordered[:_SHOWN])
    return Verdict(answer, f"{shown}; and {len(rest)} more: {counts}")


def _named(first: Cell, second: Cell) -> str:
    """The difference of two cells in words: the factors in which they differ, and behind them those they share."""
    differ = [name for name, level in first.factors.items() if second.factors[name] != level]
    one, other = (", ".join(f"{name} {cell.factors[name]}" for name in differ) for cell in (first, second))
    shared = ", ".join(f"{name} {level}" for name, level in first.factors.items() if name not in differ)
    return f"{one} - {other}" + (f" ({shared})" if shared else "")


def _text(of: Interval) -> str:
    """An interval in words: "+1.20 [0.80, 1.60], 5 seeds"."""
    if not of.seeds:
        return "not run"
    if of.seeds == 1:
        return f"{of.mean:+.2f}, 1 seed"
    return f"{of.mean:+.2f} [{of.low:.2f}, {of.high:.2f}], {of.seeds} seeds"
