"""The claim that a measure gains more along a factor in some cells than in others."""

import pytest

from mvcl.studies import Cell, Found, Gain, Measure, MultiCropVariance, Study

KEYS = {"text": "t", "source": "s", "measure": "m"}


def found(values, claim):
    """A cell for each objective and k, with these values by seed."""
    cells = tuple(
        Cell(factors={"objective": name, "k": k}, task=MultiCropVariance(views=2)) for name, k in values
    )
    study = Study(title="", about="", cells=cells, measures=(Measure(name="m"),), claims=(claim,), cost="")
    return Found(
        study, tuple({seed: {"m": value} for seed, value in enumerate(of)} for of in values.values())
    )


def gain(**changes):
    return Gain(
        **{**KEYS, "cells": {"objective": "a"}, "than": ({"objective": "b"},), "along": "k"} | changes
    )


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        ([13.0, 14.1, 15.2], "holds"),  # gains 3, 3.1, 3.2 of a, 1 of b
        ([10.0, 11.1, 12.2], "does not hold"),  # 0, 0.1, 0.2
        ([11.0, 10.0, 15.0], "cannot tell"),
    ],
)
def test_gains_are_paired_by_seed(last, answer):
    values = {
        ("a", 8): last,  # not in the order of k
        ("a", 2): [10, 11, 12],
        ("a", 4): [100, 0, 50],  # between first and last: does not count
        ("b", 2): [0, 50, 100],
        ("b", 8): [1, 51, 101],
    }
    assert gain().judge(found(values, gain())).answer == answer


def test_the_reason_names_the_gains():
    values = {("a", 2): [1, 2], ("a", 3): [3, 4.2], ("b", 2): [5, 5], ("b", 3): [5, 5]}
    reason = gain().judge(found(values, gain())).reason
    assert reason.startswith("gain of objective a, k 3 - that of objective b, k 3: +2.10")


def test_seeds_that_one_side_lacks_do_not_count():
    values = {("a", 2): [1, 2, 3], ("a", 3): [3, 4.2], ("b", 2): [5, 5, 5], ("b", 3): [5, 5, 5]}
    assert "2 seeds" in gain().judge(found(values, gain())).reason
    values[("a", 3)] = []
    assert gain().judge(found(values, gain())).answer == "cannot tell"


@pytest.mark.parametrize("changes", [{"along": "n"}, {"than": ({"objective": "c"},)}, {"cells": {"k": 2}}])
def test_a_claim_about_no_cells_is_refused(changes):
    values = {("a", 2): [1], ("a", 3): [2], ("b", 2): [1], ("b", 3): [1]}
    with pytest.raises(ValueError, match="about no cells"):
        found(values, gain(**changes))
