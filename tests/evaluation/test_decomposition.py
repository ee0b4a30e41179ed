"""The parts of what probes read, of simulated views whose parts are known, and the rows and subsets they are of."""

import math
from unittest import mock

import numpy as np
import pytest
import sklearn.linear_model
import sklearn.metrics

from mvcl.evaluation import _decomposition, decompose, subsets
from mvcl.evaluation._probe import PENALTIES


def bits(rng, n, k):
    """(n, k) fair bits and (k, n, 2) views, each a bit and a number without meaning, with little noise."""
    drawn = rng.integers(0, 2, (n, k))
    views = np.stack([2.0 * drawn.T - 1, rng.normal(size=(k, n))], -1) + 0.2 * rng.normal(size=(k, n, 2))
    return drawn, views.astype(np.float32)


KNOWN = {  # bits of the two views, label; unique of a and b, shared, synergy
    "xor": ((0, 1), lambda x: x[:, 0] ^ x[:, 1], [0, 0, 0, 1]),
    "copy": ((0, 0), lambda x: x[:, 0], [0, 0, 1, 0]),
    "unique bits": ((0, 1), lambda x: 2 * x[:, 0] + x[:, 1], [1, 1, 0, 0]),
}


@pytest.mark.parametrize("name", KNOWN)
def test_parts_of_simulated_views(rng, name):
    (a, b), label, expected = KNOWN[name]
    (x, views), (z, tested) = bits(rng, 800, 2), bits(rng, 400, 2)
    features = [{"a": of[a], "b": of[b]} for of in (views, tested)]
    found = decompose(*features, (label(x), label(z)), draws=50)
    parts = [found.parts[part] for part in ("unique a", "unique b", "shared", "synergy")]
    np.testing.assert_allclose([part.value for part in parts], expected, atol=0.06)
    for part, truth in zip(parts, expected):
        assert part.outer_low <= part.least <= part.value + 1e-9 <= part.most + 2e-9
        assert part.outer_low - 0.06 <= truth <= part.outer_high + 0.06
    whole = found.informations["a", "b"].value
    np.testing.assert_allclose(sum(part.value for part in parts), whole, rtol=1e-9)
    assert whole <= found.entropy


def test_a_linear_probe_reads_no_xor_and_says_which_it_is(rng):
    (x, views), (z, tested) = bits(rng, 300, 2), bits(rng, 100, 2)
    features = [dict(zip("ab", of)) for of in (views, tested)]
    found = decompose(*features, (x.sum(1) % 2, z.sum(1) % 2), probe="linear", draws=5)
    assert found.parts["synergy"].high < 0.05
    assert "(linear)" in found.protocol


def test_three_views_that_only_all_tell(rng, monkeypatch):
    """The probes' outputs are those of a law: any two views tell nothing of the parity of three bits."""
    (x, views), (z, tested) = bits(rng, 100, 3), bits(rng, 200, 3)
    parity = [of.sum(1) % 2 for of in (x, z)]

    def known(train, test, **options):
        sure = test.shape[1] == 6
        p = np.where(np.eye(2)[parity[1]], 0.99, 0.01) if sure else np.full((200, 2), 0.5)
        return np.log(p)

    monkeypatch.setattr("mvcl.evaluation._decomposition.outputs", known)
    found = decompose(dict(zip("abc", views)), dict(zip("abc", tested)), parity, draws=20)
    whole = found.entropy + math.log2(0.99)
    np.testing.assert_allclose(found.parts["synergy"].value, whole, rtol=1e-6)
    np.testing.assert_allclose(found.beyond_pairs.value, whole, rtol=1e-6)
    assert found.parts["shared"].high < 0.02  # draws of the labels are not balanced
    assert list(found.informations) == [*[(n,) for n in "abc"], *map(tuple, ("ab", "ac", "bc", "abc"))]


def test_scores_of_a_gaussian_law(rng):
    """y = a + 2 b + noise: the closed form of every information, and the minimum mutual information."""
    a, b, e = rng.normal(size=(3, 4000))
    y = a + 2 * b + e
    views = {"a": a[:, None], "b": b[:, None]}
    half = slice(2000), slice(2000, 4000)
    features = [{name: x[rows] for name, x in views.items()} for rows in half]
    found = decompose(*features, tuple(y[rows] for rows in half), probe="linear", draws=100)
    one, two, both = (0.5 * math.log2(6 / rest) for rest in (5, 2, 1))
    for subset, truth in ((("a",), one), (("b",), two), (("a", "b"), both)):
        of = found.informations[subset]
        assert of.low - 0.01 < truth < of.high + 0.01
        assert of.high - of.low < 0.2
    parts = [found.parts[name].value for name in ("unique a", "unique b", "shared", "synergy")]
    np.testing.assert_allclose(parts, [0, two - one, one, both - two], atol=0.06)
    assert found.entropy is None


def test_information_is_entropy_minus_the_cross_entropy_of_scikit_learn(rng):
    (x, views), (z, tested) = bits(rng, 300, 2), bits(rng, 200, 2)
    label, answer = ((of[:, 0] + of[:, 1]).astype(np.int32) for of in (x, z))
    features = [dict(zip("ab", of)) for of in (views, tested)]
    found = decompose(*features, (label, answer), probe="linear", draws=5)
    share = np.bincount(answer) / 200
    entropy = -np.sum(share * np.log2(share))
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-9)
    scaled = [(of - views[0].mean(0)) / views[0].std(0) for of in (views[0], tested[0])]
    models = [sklearn.linear_model.LogisticRegression(C=1 / (300 * p), max_iter=1000) for p in PENALTIES]
    predicted = [model.fit(scaled[0], label).predict_proba(scaled[1]) for model in models]
    losses = [sklearn.metrics.log_loss(answer, p) for p in predicted]
    bits_of_each = entropy - np.array(losses) / math.log(2)
    assert np.abs(bits_of_each - found.informations["a",].value).min() < 1e-3


def test_equal_views_have_nothing_unique_in_any_draw(rng):
    """Draws are the same rows for all subsets."""
    (x, views), (z, tested) = bits(rng, 200, 1), bits(rng, 100, 1)
    both = [{("a",): of[0], ("b",): of[0], ("a", "b"): of[0]} for of in (views, tested)]
    part = decompose(*both, (x[:, 0], z[:, 0]), probe="linear", draws=20).parts["unique a"]
    assert part.outer_low == part.outer_high == 0


def test_rows_that_lack_a_view_are_left_out(rng):
    (x, views), (z, tested) = bits(rng, 200, 2), bits(rng, 150, 2)
    present = [rng.random((len(of), 2)) < 0.7 for of in (x, z)]
    gaps = [np.where(of.T[..., None], v, np.nan) for of, v in zip(present, (views, tested))]
    features = [dict(zip("ab", of)) for of in gaps]
    with mock.patch("mvcl.evaluation._decomposition.outputs", wraps=_decomposition.outputs) as outputs:
        found = decompose(*features, (x[:, 0], z[:, 0]), present=present, probe="linear", draws=5)
    sizes = [(len(train[0]), len(test)) for (train, test), _ in outputs.call_args_list]
    tests = int(present[1].all(1).sum())
    trains = [*present[0].sum(0), present[0].all(1).sum()]
    assert sizes == [(int(n), tests) for n in trains]
    assert f"{tests} test rows with all views, of 150" in found.protocol
    assert found.informations["a",].value > 0.8


def test_subsets_of_many_views_are_few():
    assert len(subsets("abcdef")) == 63
    assert len(subsets("abcdefgh")) == 8 + 28 + 8 + 1


ROWS = {"a": np.zeros((80, 2)), "b": np.ones((80, 3))}
LABELS = np.arange(80) % 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"a": ROWS["a"]}}, "at least 2 views and 2 draws, got 1 and 200"),
        ({"labels": (LABELS, np.zeros(80, int))}, "decompose needs labels or scores"),
        ({"labels": (LABELS, LABELS + 1)}, "classes of train, which has no 2"),
        ({"labels": (LABELS[:, None], LABELS)}, r"must be \(n,\) of train and test, got \(80, 1\)"),
        ({"labels": (LABELS * np.nan, LABELS / 1)}, "scores must be finite"),
        ({"test": {"a": ROWS["a"]}}, "features of b or of b, got neither"),
        ({"test": ROWS | {"b": np.ones((79, 3))}}, r"features of b must be \(80, d\), got \(79, 3\)"),
        ({"present": (np.ones((80, 3)), None)}, r"\(n, 2\) of 80 and 80 rows, got \(80, 3\) and \(80, 2\)"),
        ({"present": (None, np.eye(80, 2))}, "got 80 that have a and 0 that have all views; use more"),
    ],
)
def test_bad_input(changes, message):
    given = {"train": ROWS, "test": ROWS, "labels": (LABELS, LABELS)} | changes
    with pytest.raises(ValueError, match=message):
        decompose(**given)
