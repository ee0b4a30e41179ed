"""Plots equal the numbers, and the page is whole: nothing is loaded, ids are unique, colours are variables."""

import base64
import hashlib
import re

import numpy as np
import pandas as pd
import pytest

from mvcl.report import _figures, _read


def points(svg, color, count):
    """(count, 2) points of the line of this colour, from left to right."""
    paths = re.findall(rf'<path d="([^"]*)"[^>]*stroke: {color}', svg)
    path = next(path for path in paths if path.count("L") == count - 1)
    return np.array(re.findall(r"[ML] ([\d.]+) ([\d.]+)", path), float)


def test_the_loss_of_the_page_equals_the_log(whole):
    svg = next(part for part in whole[1].source.split("<svg") if 'aria-label="Loss over' in part)
    log = _read.read_run(whole[0]).log["loss"]
    x, y = points(svg, _figures.LINES[0], len(log)).T
    np.testing.assert_allclose(np.interp(x, x[[0, -1]], log.index[[0, -1]]), log.index, atol=1e-3)
    low, high = y[np.argmin(log)], y[np.argmax(log)]
    expected = (log - log.min()) / (log.max() - log.min())
    np.testing.assert_allclose((y - low) / (high - low), expected, atol=1e-4)


def test_a_band_is_the_interval_of_the_mean_thinned_to_120_points():
    seeds = [pd.Series([1.0, 2.0, 4.0], [0, 1, 2]), pd.Series([3.0, 2.0], [0, 1])]
    found = _figures.band(seeds, "epoch")
    assert found.index.name == "epoch"
    assert found["value"].tolist() == [2, 2, 4]
    half = 12.706204736
    expected = [[2 - half, 2 + half], [2, 2], [np.nan, np.nan]]
    np.testing.assert_allclose(found.to_numpy()[:, 1:], expected, rtol=1e-9)
    long = _figures.band([pd.Series(np.arange(1000.0))], "step")["value"]
    assert (len(long), *long.iloc[[0, -1]]) == (120, 0, 999)


def test_the_spectrum_and_the_heat_map_equal_the_numbers():
    alignment = np.array([[np.nan, 0.5], [0.5, np.nan]])
    of = {"views": ["a", "b"], "spectra": {"a": np.array([1.0, 0.1, 0.01])}, "alignment": alignment}
    of |= {"positives": np.array([1, 3]), "negatives": np.array([4, 0])}
    spectrum, cosines, heat = (plot for plot, _, _ in _figures.geometry(of, "head"))
    heights = points(spectrum, _figures.LINES[0], 3)[:, 1]
    np.testing.assert_allclose(np.diff(heights), np.ptp(heights) / 2, rtol=1e-4)  # a decade each
    assert ">1e−02<" in spectrum
    assert "$" not in spectrum
    assert heat.count(">0.500<") == 2
    assert ">positives<" in cosines
    assert ">1.0<" in cosines  # the density of all negatives in half of [-1, 1]


def test_the_bar_of_parts_is_as_long_as_their_sum():
    columns = ["value", "low", "high", "least", "most"]
    numbers = pd.DataFrame([[1.0, 0.9, 1.1, 0, 2], [3.0, 3.0, 3.0, 0, 4]], ["a", "b"], columns)
    svg = _figures.parts({"row": {"parts": ["a", "b"], "entropy": None, "numbers": numbers}})
    ends = []
    for color in _figures.LINES[:2]:
        bar = re.search(rf'<path d="([^"]*)"[^>]*fill: {color}', svg)[1]
        ends.append(np.array(re.findall(r"[ML] ([\d.]+) ", bar), float)[[0, 1]])
    (start, middle), (begin, end) = np.array(ends) - ends[0][0]
    np.testing.assert_allclose([start, begin, end], [0, middle, 4 * middle], rtol=1e-3)


@pytest.mark.parametrize("name", ["whole", "two_by_three"])
def test_a_page_loads_nothing_and_is_complete(name, request):
    """Its ids are unique, its pictures have texts, and every colour of a plot has a variable for dark pages."""
    page = request.getfixturevalue(name)[1]
    for tag, attributes in page.elements:
        assert tag not in ("iframe", "object", "embed", "form")
        for key in ("src", "href", "srcset", "action", "poster"):
            assert attributes.get(key, "#").startswith(("#", "data:"))
    [policy] = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline';")
    scripts = re.findall("<script>(.*?)</script>", page.source, re.DOTALL)
    assert len(scripts) == (name == "two_by_three") == page.source.count("script-src")
    for script in scripts:  # only it may run
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{digest}';" in policy
    style = re.search("<style>(.*?)</style>", page.source, re.DOTALL)[1]
    assert not re.search(r"url\(|@import", style)
    assert set(re.findall(r"var\((--\w+)\)", page.source)) <= set(re.findall(r"(--\w+):", style))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert all(image["alt"] for image in page.all("img"))
    assert len(page.plots) >= 2
    assert all(page.plots)
    rules = re.findall(r'\[style\*="(?:fill|stroke): (#\w+)"\] { (?:fill|stroke): var', page.source)
    body = page.source.partition("<body>")[2]
    assert set(re.findall(r"(?:fill|stroke): (#\w+)[;\"]", body)) <= set(rules)
