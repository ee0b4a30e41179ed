"""Intervals, paired differences and the answers to claims, by hand, against scipy, and by simulation."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from mvcl import studies, training
from mvcl.metrics import interval
from mvcl.studies import Above, Baseline, Cell, Found, Margin, Measure, Study, Trend, Within, _grid, _table

TASK = None  # nothing is run
CONFIG = training.Config()
KEYS = {"text": "t", "source": "s", "measure": "m"}
HOLDS, REFUTED, OPEN, EQUAL = "holds", "does not hold", "cannot tell", "equal within the margin"


def study_of(factors, claims=(), **options):
    """A study with a cell for each entry of `factors`, of one measure m."""
    cells = tuple(Cell(factors=each, task=TASK) for each in factors)
    options = {"measures": (Measure(name="m"),)} | options
    return Study(title="T", about="", cells=cells, claims=tuple(claims), cost="", **options)


def found_of(study, values):
    """Values of m by cell, by seed; a list counts seeds from 0."""
    rows = [dict(enumerate(of)) if isinstance(of, list) else of for of in values]
    return Found(study, tuple({seed: {"m": value} for seed, value in row.items()} for row in rows))


def judged(claim, factors, values):
    return claim.judge(found_of(study_of(factors, [claim]), values))


def test_interval_of_few_values():
    assert interval([2.5]) == (2.5, -math.inf, math.inf, 1)
    np.testing.assert_equal(interval([]), (math.nan, math.nan, math.nan, 0))
    assert interval([4, 4, 4]) == (4, 4, 4, 3)


def test_differences_are_paired_by_seed():
    """Seeds 1 and 2 are those that both have: 5 - 1 and 9 - 2, mean 5.5, half range 1.5."""
    study, difference = study_of([{"f": "a"}, {"f": "b"}]), studies.difference
    found = found_of(study, [{0: 100.0, 1: 5.0, 2: 9.0}, {2: 2.0, 1: 1.0, 7: -50.0}])
    gap = difference(found, *study.cells, "m")
    # the deviation over sqrt(2) is half the range; the quantile is that of one degree of freedom
    half = 12.706204736432095 * 1.5
    np.testing.assert_allclose(gap, (5.5, 5.5 - half, 5.5 + half, 2), rtol=1e-9)
    assert difference(found, *study.cells[::-1], "m").mean == -5.5
    assert difference(found, *study.cells, "m", 0.5).high < gap.high
    assert difference(found, *study.cells, "other").seeds == 0


def test_measures_in_per_cent_are_judged_in_per_cent():
    claim = Within(**KEYS, cells={"f": "a"}, low=49, high=51)
    study = study_of([{"f": "a"}], [claim], measures=(Measure(name="m", percent=True),))
    verdict = claim.judge(found_of(study, [[0.499, 0.5, 0.501]]))
    assert verdict[:2] == (HOLDS, "f a: +50.00 ± 0.25, 3 seeds")


A_B = [{"f": "a"}, {"f": "b"}]
ABOVE = Above(**KEYS, cells={"f": "a"}, than=({"f": "b"},))


@pytest.mark.parametrize(
    ("first", "second", "answer"),
    [
        ([1.0, 1.1, 0.9], [0, 0, 0], HOLDS),
        ([-1.0, -1.1, -0.9], [0, 0, 0], REFUTED),
        ([1.0, -1.0, 0.5], [0, 0, 0], OPEN),
        ([5.0], [0], OPEN),  # one seed has no interval
        ([2.0, 2.0], [1, 1], HOLDS),  # always by the same
        ([1.0, 1.0], [1, 1], EQUAL),  # always the same
        ([], [0, 0], OPEN),
        ({0: 5.0, 1: 5.1}, {2: 0.0, 3: 0.1}, OPEN),  # no seed in common
        ([math.nan, 1.0, 1.0], [0, 0, 0], OPEN),
    ],
)
def test_above(first, second, answer):
    assert judged(ABOVE, A_B, [first, second]).answer == answer


SEVEN = [{"f": name} for name in "abcdefg"]


def test_one_seed_has_the_order_beside_the_printed_one():
    printed = (1.0, 0.0, 2.0)
    cells = [Cell(factors, TASK, {"m": value}) for factors, value in zip(SEVEN, printed, strict=False)]
    claim = dataclasses.replace(ABOVE, than=({"f": "b"}, {"f": "c"}))
    study = Study(title="T", about="", cells=cells, measures=(Measure("m"),), claims=(claim,), cost="")
    verdict = claim.judge(found_of(study, [[5.0], [4.0], [3.0]]))
    both = "one seed: as claimed in 2 of 2 comparisons, in print in 1 of 2; f a - f b: +1.00"
    assert verdict.answer == OPEN
    assert verdict.reason.startswith(both)
    two = claim.judge(found_of(study, [[5.0, 5.0], [4.0, 4.0], [3.0, 3.0]]))
    assert not two.reason.startswith("one seed")


def test_intervals_are_covered_together_over_all_claims_of_a_study():
    """Three seeds at |t| = 5: decided at 95 % (4.30), not at 97.5 % (6.21), the level of each of two comparisons."""
    x = np.array([-1.0, 0.0, 1.0])
    values = [list(5 / math.sqrt(3) + x), [0, 0, 0], list(-x)]
    upside_down = dataclasses.replace(ABOVE, cells={"f": "b"}, than=({"f": "a"},))
    other = dataclasses.replace(ABOVE, cells={"f": "c"})
    for claims, comparisons, answers in (
        ([ABOVE], 1, [HOLDS]),
        ([ABOVE, upside_down], 1, [HOLDS, REFUTED]),  # the same comparison
        ([ABOVE, upside_down, other], 2, [OPEN, OPEN, OPEN]),
    ):
        study = study_of(SEVEN[:3], claims)
        assert study.level == pytest.approx(1 - 0.05 / comparisons)
        assert [claim.judge(found_of(study, values)).answer for claim in claims] == answers


@pytest.mark.parametrize(
    ("mean", "margin", "answer", "small"),
    [
        (0.1, 0.5, EQUAL, False),  # 0.1 ± 0.25
        (0.1, 0.3, OPEN, False),
        (0.3, 1.0, HOLDS, True),
        (0.3, 0.5, HOLDS, False),
        (-0.3, 1.0, REFUTED, True),
        (0.1, None, OPEN, False),
    ],
)
def test_a_difference_has_a_sign_or_is_equal_within_the_margin(mean, margin, answer, small):
    margins = {} if margin is None else {"m": Margin(margin, "of the test")}
    study = study_of(A_B, [ABOVE], margins=margins)
    verdict = ABOVE.judge(found_of(study, [list(mean + np.array([-0.1, 0.0, 0.1])), [0, 0, 0]]))
    assert verdict.answer == answer
    assert ("less than 1" in verdict.reason) == small
    assert verdict.half_width == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)


def test_a_claim_of_several_comparisons_is_its_weakest():
    """Above b, equal to c and d undecided; shares have a margin of half a point."""
    values = [[0.8, 0.8, 0.8], [0.5, 0.5, 0.5], [0.8, 0.8, 0.8], [0.7, 0.8, 0.9], [0.9, 0.9, 0.9]]
    for others, answer in (("b", HOLDS), ("bc", EQUAL), ("bcd", OPEN), ("bcde", REFUTED)):
        claim = dataclasses.replace(ABOVE, than=tuple({"f": name} for name in others))
        study = study_of(SEVEN[:5], [claim], measures=(Measure("m", percent=True),))
        assert claim.judge(found_of(study, values)).answer == answer


def test_too_few_seeds_says_how_many_would_do():
    """Of deviation 1 and mean 0.2 at margin 0.5: equal at a half-width of 0.3; at 0.2 it would be above 0."""
    x = np.tile([-1.0, 1.0], 10) * math.sqrt(19 / 20) + 0.2
    study = study_of(A_B, [ABOVE], margins={"m": Margin(0.5, "of the test")})
    verdict = ABOVE.judge(found_of(study, [list(x), [0.0] * 20]))

    def half(n, missed=0.05):
        return stats.t.ppf(1 - missed / 2, n - 1) / math.sqrt(n)

    n = int(verdict.reason.split("too few seeds: ")[1].split()[0])
    assert half(n) <= 0.3 < half(n - 1)
    assert half(verdict.seeds) <= 0.5 < half(verdict.seeds - 1)
    # One that would not hold decides a claim before the others do: here the second, of mean -0.4.
    both = dataclasses.replace(ABOVE, than=({"f": "b"}, {"f": "c"}))
    lacking = judged(both, SEVEN[:3], [list(x), [0.0] * 20, [0.4 + 0.2] * 20]).lacking
    assert half(lacking, 0.025) < 0.4 < half(lacking - 1, 0.025)
    reason = judged(ABOVE, A_B, [[1.0, -1.0, 0.0], [0, 0, 0]]).reason
    assert reason.endswith("too few seeds: more than 10,000 would decide, if mean and deviation stay")


@pytest.mark.parametrize(("named", "answer"), [((), HOLDS), (("m",), OPEN), (("n",), HOLDS)])
def test_a_cell_that_is_not_trained_decides_nothing(named, answer):
    study = study_of(A_B, [ABOVE])
    values = found_of(study, [[1.0, 1.1, 0.9], [0, 0, 0]]).values
    verdict = ABOVE.judge(Found(study, values, not_trained={"f b": named}))
    assert verdict.answer == answer
    assert ("not trained: f b" in verdict.reason) == (answer == OPEN)
    raw = study_of(A_B, [ABOVE])
    cells = [raw.cells[0], dataclasses.replace(raw.cells[1], task=Baseline(config=CONFIG, row="raw input"))]
    raw = dataclasses.replace(raw, cells=cells)  # whether training helps is what is asked
    assert ABOVE.judge(Found(raw, values, not_trained={"f a": ("m",)})).answer == HOLDS


LINE = [{"f": "a", "k": k} for k in (8, 2, 4)]  # in no order


@pytest.mark.parametrize(
    ("at_2", "at_4", "at_8", "rises", "falls"),
    [
        (0, 1, 2, HOLDS, REFUTED),
        (2, 1, 0, REFUTED, HOLDS),
        (0, 3, 2, REFUTED, REFUTED),  # up as a whole, down in the second step
        (0, 0, 2, HOLDS, REFUTED),  # a step without a difference
        (0, 1, 0, REFUTED, REFUTED),
    ],
)
def test_trend(at_2, at_4, at_8, rises, falls):
    noise = [np.array(n) for n in ([0.01, -0.01, 0.0], [0.0, 0.01, -0.01], [-0.01, 0.01, 0.0])]
    values = [list(level + n) for level, n in zip((at_8, at_2, at_4), noise, strict=True)]
    for up, answer in ((True, rises), (False, falls)):
        claim = Trend(**KEYS, cells={"f": "a"}, along="k", rises=up)
        late = judged(dataclasses.replace(claim, among=(4, 8)), LINE, values)
        assert late.reason.startswith("k 8 - k 4 (f a)")
        verdict = judged(claim, LINE, values)
        assert verdict.answer == answer
        assert verdict.reason.startswith(f"k 8 - k 2 (f a): {at_8 - at_2:+d}.0")
        by_step = answer == REFUTED and (at_8 >= at_2 if up else at_8 <= at_2)
        assert ("a step's k " in verdict.reason) == by_step


def test_a_trend_with_a_step_that_was_not_run_is_open():
    claim = Trend(**KEYS, cells={"f": "a"}, along="k")
    verdict = judged(claim, LINE, [[2.0, 2.1, 1.9], [0.0, 0.1, 0.0], []])
    assert verdict.answer == OPEN
    assert verdict.reason == "k 8 - k 2 (f a): +1.97 ± 0.25, 3 seeds, a step not run"


def test_no_number_of_seeds_decides_what_was_not_run():
    claim = Above(**KEYS, cells={"f": "a"}, than=[{"f": "b"}, {"f": "c"}])
    factors, wide = [{"f": f} for f in "abc"], [3.0, -2.0, 2.5]
    assert "too few seeds" in judged(claim, factors, [wide, [0.0] * 3, [0.1] * 3]).reason
    assert "too few seeds" not in judged(claim, factors, [wide, [0.0] * 3, []]).reason


def test_of_some_cells_the_claims_about_them_alone_are_judged():
    """They share 95%; baselines are always chosen."""
    factors = [{"f": f, "k": k} for f in "ab" for k in (2, 4)]
    claims = [Above("t", "s", "m", {"f": "a", "k": k}, [{"f": "b"}]) for k in (2, 4)]
    rise = Trend("t", "s", "m", {}, "k")
    study = study_of(factors, [*claims, rise])
    raw = Cell({"f": "raw", "k": 0}, Baseline(config=CONFIG, row="raw input"))
    study = dataclasses.replace(study, cells=[raw, *study.cells])
    assert _grid.chosen(study, "k=4") == ["f raw, k 0", "f a, k 4", "f b, k 4"]
    part = _grid.claimed(study, "k=4")
    assert (part.claims, part.comparisons, study.comparisons) == ([claims[1]], 1, 4)
    assert _grid.claimed(study, "").claims == list(study.claims)


def test_trend_of_several_lines():
    """A line for each f; that of c, with one cell, is none. Refutation is corrected for two lines."""
    factors = [{"f": f, "k": k} for f in "ab" for k in (2, 4)] + [{"f": "c", "k": 2}]
    claim = Trend(**KEYS, cells={}, along="k")
    up, none = [1.0, 1.1, 0.9], [0, 0, 0]
    down = list(-5 / math.sqrt(3) + np.array([-1.0, 0.0, 1.0]))  # t = -5, see above
    assert judged(claim, factors, [none, up, none, up, up]).answer == HOLDS
    assert judged(claim, factors, [none, up, none, down, up]).answer == OPEN
    assert judged(claim, factors, [none, up, none, [-v for v in up], up]).answer == REFUTED
    one = dataclasses.replace(claim, cells={"f": "b"})
    assert judged(one, factors, [none, up, none, down, up]).answer == REFUTED


GRID = [{"f": f, "k": k} for f in "ab" for k in (2, 4, 8)]


def test_the_bootstrap_interval_of_a_share_is_that_of_its_binomial(rng):
    half = training.config_module(studies.find("shidani_table3")).bootstrap(rng.random(10_000) < 0.9, 0)
    assert half == pytest.approx(1.645 * math.sqrt(0.9 * 0.1 / 10_000), rel=0.06)


def test_never_harmful_is_no_rise():
    """Figure 3b: equal accuracies do no harm; a fall by 2 points does."""
    of = training.config_module(studies.find("shidani_figure3")).paper()
    claims = [claim for claim in of.claims if "never harmful" in claim.text]
    values = [{seed: {"linear, SGD": 0.7 + 0.001 * seed} for seed in range(3)} for _ in of.cells]
    assert {claim.judge(Found(of, values)).answer for claim in claims} == {HOLDS}
    factors = ("Poly-view, geometric", "fixed", 16, 128)
    last = [tuple(cell.factors.values()) for cell in of.cells].index(factors)
    values[last] = {seed: {"linear, SGD": 0.68 + 0.001 * seed} for seed in range(3)}
    assert [claim.judge(Found(of, values)).answer for claim in claims].count(REFUTED) == 1


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [((1, 3), (1, 2), HOLDS), ((1, 2), (1, 3), REFUTED), ((5, 6), (0, 1), OPEN), ((0, 2), (4, 5), HOLDS)],
)
def test_gain(a, b, answer):
    """From k = 2 to k = 8, whatever is between; the level does not count."""
    noise = np.array([0.01, -0.02, 0.01])
    middle = [7.0, 8.0, 9.0]
    values = [list(a[0] + noise), middle, [a[1]] * 3, [b[0]] * 3, middle, [b[1]] * 3]
    claim = Above(**KEYS, cells={"f": "a"}, than=({"f": "b"},), along="k")
    verdict = judged(claim, GRID, values)
    assert judged(dataclasses.replace(claim, among=(2, 8)), GRID, values) == verdict
    of_two = judged(dataclasses.replace(claim, among=(2, 4)), GRID, values)
    assert f"gain of f a, k 4 - that of f b, k 4: {b[0] - a[0]:+.2f}" in of_two.reason
    assert verdict.answer == answer
    assert f"gain of f a, k 8 - that of f b, k 8: {a[1] - a[0] - b[1] + b[0]:+.2f}" in verdict.reason


@pytest.mark.parametrize(
    ("low", "high", "answer"),
    [
        (-3, 7, HOLDS),  # 2 ± 2.484
        (-0.4, math.inf, OPEN),
        (-0.5, math.inf, HOLDS),
        (4.4, math.inf, OPEN),
        (4.5, math.inf, REFUTED),
        (-math.inf, -0.5, REFUTED),
        (-math.inf, 4.5, HOLDS),
        (1.9, 2.1, OPEN),
    ],
)
def test_within_at_the_ends(low, high, answer):
    claim = Within(**KEYS, cells={"f": "a"}, low=low, high=high)
    assert judged(claim, [{"f": "a"}], [[1, 2, 3]]).answer == answer


CELLS = [{"f": "a", "k": 2}, {"f": "b", "k": 2}]
NO_CELLS = "the claim 't' is about no cells of 'T'"
NO_FACTOR = "chosen by the factors f, k, got 'j'"


@pytest.mark.parametrize(
    ("factors", "options", "message"),
    [
        ([{"f": "a"}, {"f": "a"}], {}, "must differ in their factors, got 'f a' twice"),
        ([{"f": "a"}], {"measures": ()}, "must have cells and measures, got none in 'T'"),
        ([{"f": "a"}], {"seeds": 0}, "seeds must be a whole number >= 1, got 0"),
        ([{"f": "a"}, {"g": "a"}], {}, r"must have the same factors, got \['f'\] and \['g'\]"),
        (CELLS, {"columns": "j"}, "columns must be one of 'f', 'k', got 'j'"),
        (CELLS, {"along": "j"}, "along must be one of 'f', 'k', got 'j'"),
        (CELLS, {"reference": {"j": 1}}, NO_FACTOR),
        (CELLS, {"measures": (Measure(name="m"), Measure(name="m"))}, "different names, got m, m"),
        (CELLS, {"claims": [Above(**KEYS, cells={"f": "c"}, than=({"f": "a"},))]}, NO_CELLS),
        (CELLS, {"claims": [Above(**KEYS, cells={"f": "a"}, than=({"f": "a"},))]}, NO_CELLS),
        (CELLS, {"claims": [Trend(**KEYS, cells={"f": "a"}, along="k")]}, NO_CELLS),  # one level
        (CELLS, {"claims": [dataclasses.replace(ABOVE, along="k")]}, NO_CELLS),
        (CELLS, {"claims": [Within(**KEYS, cells={"f": "c"}, high=1)]}, NO_CELLS),
        (CELLS, {"claims": [dataclasses.replace(ABOVE, than=({"j": "b"},))]}, NO_FACTOR),
        (CELLS, {"claims": [dataclasses.replace(ABOVE, measure="n")]}, "'t' must be one of 'm', got 'n'"),
    ],
)
def test_invalid_study_or_claim_raises(factors, options, message):
    with pytest.raises(ValueError, match=message):
        study_of(factors, **options)


def test_cells_that_compare_different_numbers_of_instances_raise_without_a_reason():
    """A batch of 64 beside groups of 16 of it."""
    groups = [{"train.batch_size": 64, "train.group": group} for group in (None, 16)]
    tasks = [studies.Training(config=studies.changed(CONFIG, change)) for change in groups]
    cells = tuple(Cell(factors={"f": name}, task=task) for name, task in zip("ab", tasks, strict=True))
    keys = {"title": "T", "about": "", "cells": cells, "measures": (Measure(name="m"),), "cost": ""}
    with pytest.raises(ValueError, match=r"different numbers of instances, 16 \(f b\), 64 \(f a\)"):
        Study(**keys)
    assert Study(**keys, unequal="groups are the factor").unequal
    Study(**keys | {"cells": cells[:1]})


@pytest.mark.parametrize("columns", [None, "k"])
def test_rows_that_a_paper_prints_are_on_the_page_and_not_run(tmp_path, columns):
    """A claim that names one is judged by the others."""
    row = Cell({"f": "c", "k": 2}, None, printed={"m": 2.5}, deviations={"m": 0.5})
    claim = dataclasses.replace(ABOVE, than=({"f": "b"}, {"f": "c"}))
    study = study_of(CELLS, [claim], printed_only=(row,), columns=columns)
    assert len(claim.about(study)) == 1
    page = studies.page(_table.numbers(studies.Opened("n", "paper", study, ()), tmp_path), "f.svg")
    assert "| c | (paper 2.5 ± 0.5) |" in page if columns else "| c | 2 |  | 2.5 ± 0.5 |" in page
    assert "Rows with the paper's numbers alone are not run here." in page
    assert {place.cell.name for place in studies.places(study, tmp_path)} == {"f a, k 2", "f b, k 2"}
