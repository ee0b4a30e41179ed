"""What the studies of Piran 2024 compute of their own."""

import math

import numpy as np
import pytest

from mvcl import data, studies, training
from mvcl.studies import Cell, Found, Measure, Study

table2 = training.config_module(studies.find("piran_table2"))
MEASURES = [Measure("from a", percent=True), Measure("from b", percent=True)]


def found_of(values, claim=None):
    """Of (method, unseen domain): a seed's values of both measures."""
    cells = [Cell({"method": method, "unseen": unseen}, None) for method, unseen in values]
    study = Study(
        title="T",
        about="",
        cells=cells,
        measures=MEASURES,
        claims=[claim] if claim else (),
        cost="",
        columns="unseen",
        maps=["from a", "from b"],
    )
    rows = [
        {seed: dict(zip(("from a", "from b"), of, strict=True)) for seed, of in enumerate(seeds)}
        for seeds in values.values()
    ]
    return Found(study, rows)


def rank(**options):
    keys = {"text": "t", "source": "s", "measure": "from a", "cells": {"method": "M"}}
    return table2._piran.LowestRank(**keys, measures=("from a", "from b"), **options)


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
    assert answer == "holds"
    assert reason == "M 1.25, N 1.75; M - N -0.50 ± 0.00, seeds: 2"
    values = {(name, domain): of for (name, domain), of in values.items()} | {
        ("O", "x"): [(0.95, 0.95), (0.95, math.nan)],
        ("O", "y"): [(0.95, 0.5), (0.5, 0.95)],
    }
    assert rank().judge(found_of(values)).answer != "holds"
    assert rank(than=("N",)).judge(found_of(values)).answer == "holds"  # O is not ranked
    ranks = rank().ranks(found_of(values))
    assert ranks["N"][0] == pytest.approx((3 + 3 + 3 + 1.5) / 4)  # O and N are equal once


@pytest.mark.parametrize(
    ("name", "instances", "m3g"),
    [
        ("digits", {128}, {128}),
        ("handwritten", {256, 16}, {256, 16}),
        ("which_objective", {128, 32}, {128}),
    ],
)
def test_m3g_compares_as_many_instances_as_the_others(name, instances, m3g):
    """In every study of all objectives; beside M3G of six views, n^6 tuples, there are three others of its groups."""
    study = studies.without_data(studies.scales(studies.find(name))["small"])
    known = {cell.name: n for cell in study.cells if (n := getattr(cell.task, "instances", None))}
    assert {*known.values()} == instances
    assert {n for cell, n in known.items() if "m3g" in cell.lower()} == m3g
    if name == "handwritten":
        assert {cell.task.config.examples for cell in study.cells if hasattr(cell.task, "config")} == {256}
        assert sum(n == 16 for n in known.values()) == 4


def test_digits_in_six_looks():
    """Each of other images; a view of an example for each look that is seen."""
    source = table2._piran.DigitDomains(held_out="turned")
    splits, digits = source.open(), data.Digits().open()
    for part, count in (("train", 1437), ("test", 360)):
        of = [splits[f"{look}/{part}"] for look in table2._piran.LOOKS]
        assert sum(map(len, of)) == count
        images = [[split.read(row, 0)[0][..., 0] for row in (0, 5)] for split in of]
        plain = [[digits[part].read(6 * row + look, 0)[0][..., 0] for row in (0, 5)] for look in range(6)]
        labels = [[digits[part].labels[6 * row + look] for row in (0, 5)] for look in range(6)]
        assert [[split.labels[row] for row in (0, 5)] for split in of] == labels
        np.testing.assert_array_equal(images[0], plain[0])
        np.testing.assert_array_equal(images[1], 255 - np.asarray(plain[1]))
        x = np.pad(plain[4][1], 1)  # zeros outside change no maximum of numbers >= 0
        largest = [[x[i : i + 3, j : j + 3].max() for j in range(8)] for i in range(8)]
        np.testing.assert_array_equal(images[4][1], largest)
        noisy = np.asarray(images[5], int) - plain[5]
        assert noisy.min() == 0
        assert 60 < noisy.max() <= 120
    assert splits["train"].spec.view_names == tuple(look for look in table2._piran.LOOKS if look != "turned")
    with pytest.raises(ValueError, match=r"held_out must be one of plain, .*, got 'real'"):
        table2._piran.DigitDomains(held_out="real").open()
