"""The claim that values or differences lie in a range."""

import pytest

from mvcl.studies import Cell, Found, Measure, MultiCropVariance, Study, Within

KEYS = {"text": "t", "source": "s", "measure": "m"}


def found(values, claim):
    """Two cells, "a" and "b", with these values by seed."""
    cells = tuple(Cell(factors={"f": name}, task=MultiCropVariance(views=2)) for name in values)
    study = Study(title="", about="", cells=cells, measures=(Measure(name="m"),), claims=(claim,), cost="")
    rows = [{seed: {"m": value} for seed, value in enumerate(of)} for of in values.values()]
    return Found(study, tuple(rows))


@pytest.mark.parametrize(
    ("other", "answer"),
    [
        ([0.4, 0.5, 0.6], "holds"),  # differences of 0.4 to 0.6 from 0
        ([2.9, 3.0, 3.1], "does not hold"),
        ([0.5, 1.0, 1.5], "cannot tell"),
    ],
)
def test_differences(other, answer):
    claim = Within(**KEYS, cells={"f": "b"}, than=({"f": "a"},), low=-1, high=1)
    assert claim.judge(found({"a": [0, 0, 0], "b": other}, claim)).answer == answer


def test_values():
    claim = Within(**KEYS, cells={}, low=0)
    assert "95% intervals are at least 0;" in claim.rule
    assert claim.judge(found({"a": [1, 1.1, 1.2], "b": [2, 2, 2]}, claim)).answer == "holds"
    verdict = claim.judge(found({"a": [1, 1.1, 1.2], "b": [-2, -2.1, -2.2]}, claim))
    assert verdict.answer == "does not hold"
    assert "f b: -2.10" in verdict.reason
    assert claim.judge(found({"a": [1], "b": [2]}, claim)).answer == "cannot tell"


def test_a_claim_about_no_cells_is_refused():
    claim = Within(**KEYS, cells={"f": "c"}, high=1)
    with pytest.raises(ValueError, match="about no cells"):
        found({"a": [0], "b": [1]}, claim)
