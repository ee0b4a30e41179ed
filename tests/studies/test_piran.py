"""What the studies of Piran 2024 compute of their own."""

import dataclasses
import math

import numpy as np
import pytest

from mvcl import data, studies, training
from mvcl.studies import Cell, Found, Measure, Study

table2 = training.config_module(studies.find("piran_table2"))
NAMES = ("from a", "from b")


def found_of(values):
    """Of (method, unseen domain): a seed's values of both measures."""
    cells = [Cell({"method": method, "unseen": unseen}, None) for method, unseen in values]
    measures = [Measure(name, percent=True) for name in NAMES]
    options = {"cells": cells, "measures": measures, "columns": "unseen", "maps": NAMES}
    study = Study(title="T", about="", cost="", **options)
    rows = [{seed: dict(zip(NAMES, of)) for seed, of in enumerate(seeds)} for seeds in values.values()]
    return Found(study, rows)


def rank(**options):
    keys = {"text": "t", "source": "s", "measure": "from a", "cells": {"method": "M"}}
    return table2.LowestRank(**keys, measures=NAMES, **options)


def test_mean_rank_by_hand():
    """Over four tasks of each of two seeds M is first three times and once second, 1.25 and N 1.75."""
    values = {
        ("M", "x"): [(0.9, 0.8), (0.9, 0.1)],
        ("M", "y"): [(0.9, 0.1), (0.9, 0.8)],
        ("N", "x"): [(0.5, 0.5), (0.5, 0.5)],
        ("N", "y"): [(0.5, 0.5), (0.5, 0.5)],
    }
    ranks = rank().ranks(found_of(values))
    assert ranks == {"M": {0: 1.25, 1: 1.25}, "N": {0: 1.75, 1: 1.75}}
    answer, reason, *_ = rank().judge(found_of(values))
    assert (answer, reason) == ("holds", "M 1.25, N 1.75; M - N -0.50 ± 0.00, seeds: 2")
    values["O", "x"] = [(0.95, 0.95), (0.95, math.nan)]
    values["O", "y"] = [(0.95, 0.5), (0.5, 0.95)]
    verdict = rank().judge(found_of(values))  # with each of the other methods
    assert (verdict.answer, len(rank().about(found_of(values).study))) == ("cannot tell", 2)
    assert "too few seeds: more than 10,000 would decide" in verdict.reason
    assert rank(than=("N",)).judge(found_of(values)).answer == "holds"  # O is not ranked
    ranks = rank().ranks(found_of(values))
    assert ranks["N"][0] == pytest.approx((3 + 3 + 3 + 1.5) / 4)  # O and N are equal once


def test_a_rank_among_methods_that_are_not_trained_decides_nothing():
    found = found_of({(m, u): [(0.9 if m == "M" else 0.5,) * 2] * 2 for m in "MN" for u in "xy"})
    assert rank().judge(found).answer == "holds"
    untrained = dataclasses.replace(found, not_trained={"method N, unseen x": ["from b"]})
    assert rank().judge(untrained)[:2] == ("cannot tell", "not trained: method N, unseen x")


def test_m3g_compares_as_many_instances_as_the_others():
    study = studies.without_data(studies.scales(studies.find("which_objective"))["small"])
    known = {cell.name: n for cell in study.cells if (n := getattr(cell.task, "instances", None))}
    assert {*known.values()} == {128, 32}
    assert {n for cell, n in known.items() if "m3g" in cell.lower()} == {128}


def test_images_in_six_looks(monkeypatch, rng):
    """Each of other images; a view of an example for each look that is seen."""
    images, labels = rng.integers(0, 256, (60, 8, 8, 3)).astype(np.uint8), np.arange(60) // 6
    split = data.in_memory((images,), labels, tuple(map(str, range(10))))
    monkeypatch.setattr(table2._bench.Images, "open", lambda self: {"train": split, "test": split})
    splits = table2.Looks(held_out="turned").open()
    assert splits["train"].spec.view_names == tuple(look for look in table2.LOOKS if look != "turned")
    for number, look in enumerate(table2.LOOKS):
        found, plain = splits[f"{look}/train"], images[number::6]
        np.testing.assert_array_equal(found.labels, labels[number::6])
        seen = np.stack([found.read(row, 0)[0] for row in range(10)])
        if look in ("plain", "inverted"):
            np.testing.assert_array_equal(seen, plain if look == "plain" else 255 - plain)
        elif look == "grey":
            np.testing.assert_array_equal(seen[..., 0], plain.mean(-1).astype(np.uint8))
        elif look == "noisy":
            assert 0 < np.abs(seen.astype(int) - plain).max() <= 60
        elif look == "blurred":
            assert seen.std() < plain.std()  # averages of neighbours
    with pytest.raises(ValueError, match=r"held_out must be one of plain, .*, got 'real'"):
        table2.Looks(held_out="real").open()
