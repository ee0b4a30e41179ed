"""Views of known information: their truth by enumeration, and what probes read of trained encoders."""

import itertools
import math

import _factors
import _factors_task
import _fused_task
import _scenes
import _trifeature
import jax
import numpy as np
import pytest

from mvcl import losses, metrics, models

FLIP = 0.1


def test_no_two_views_tell_the_synergy_and_three_do():
    # Of three parts and the synergy, over the fair bits and the flip behind them.
    joint = np.zeros((2, 2, 2, 2))
    for a, b, t in itertools.product((-1, 1), repeat=3):
        parts = np.asarray(_factors.parts(*map(np.float32, (a, b, t)))).astype(int)
        joint[*(np.append(parts, t) > 0).astype(int)] += (FLIP if t < 0 else 1 - FLIP) / 4
    entropy = -FLIP * math.log2(FLIP) - (1 - FLIP) * math.log2(1 - FLIP)
    for others in [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]:
        bits = metrics.table_information(joint.sum(others).reshape(-1, 2)) / math.log(2)
        assert bits == pytest.approx(0 if others else entropy, abs=1e-12)
    assert entropy == pytest.approx(0.469, abs=1e-3)


@pytest.mark.parametrize("k", [2, 4])
def test_each_factor_is_seen_by_its_views(k):
    data = _factors.FactorViews(views=k)
    bits = data.bits(jax.random.key(0), 2)

    def seeing(name, *place):
        """The views that change with a bit."""
        changed = np.asarray(getattr(bits, name)).copy()
        changed[(slice(None), *place)] *= -1
        before, after = data.of_views(bits), data.of_views(bits._replace(**{name: changed}))
        return {l for l in range(k) if np.any(before[l] != after[l])}

    assert data.of_views(bits).shape == (k, 2, data.seen)
    assert seeing("shared", 0) == set(range(k))
    assert [seeing("unique", l, 0) for l in range(k)] == [{l} for l in range(k)]
    for l in range(data.neighbours):
        assert seeing("pair", l, 0) == {l, (l + 1) % k}
        assert [seeing("part", l, 0, p) for p in range(3)] == [{l}, {(l + 1) % k}, {(l + 2) % k}]
        assert seeing("synergy", l, 0) == set()
    assert data.neighbours == (0 if k == 2 else k)


def test_a_scene_shows_each_factor_in_the_pictures_that_have_it():
    data = _scenes.scenes(2, "shape", "position")
    bits, quiet = data.bits(jax.random.key(0), 300), np.zeros(2, np.float32)
    seen = data.of_views(bits)
    drawn = data.render(None, seen, quiet + 1, quiet, jax.random.key(1)).reshape(2, 300, 16, 16, 3)
    ends = np.cumsum([_scenes.BITS[name] for name in data.order])
    of = dict(zip(data.order, np.split(np.asarray(seen), ends[:-1], -1)))
    there = np.abs(drawn).max(-1) > 0
    rows, columns = ((there.sum(axis) * (np.arange(16) - 7.5)).sum(-1) for axis in (3, 2))
    np.testing.assert_array_equal(np.sign([columns, rows]), np.moveaxis(of["position"], -1, 0))
    areas, large = there.sum((2, 3)), of["size"][..., 0] > 0
    hues = (drawn.sum((2, 3)) / areas[..., None]).round(4)
    for code in (-3, -1, 1, 3):
        assert len(np.unique(hues[of["colour"] @ [2, 1] == code], axis=0)) == 1
        shaped = of["shape"] @ [2, 1] == code
        assert areas[shaped & large].min() > areas[shaped & ~large].max()
    for name in ("shape", "position"):
        np.testing.assert_array_equal(*of[name])
    for name in ("colour", "size"):
        assert abs(np.mean(of[name][0] == of[name][1]) - 0.5) < 0.1
    other = of["shape"] * np.asarray([1, -1])
    again = data.render(None, seen.at[..., :2].set(other), quiet + 1, quiet, jax.random.key(1))
    assert np.all(np.any(again.reshape(drawn.shape) != drawn, axis=(2, 3, 4)))


def test_the_drawn_bits_are_fair_and_the_synergy_is_the_product_of_its_parts():
    bits = _factors.FactorViews(views=3, flip=FLIP).bits(jax.random.key(1), 4000)
    np.testing.assert_array_equal(bits.part.prod(-1), bits.synergy)
    np.testing.assert_allclose(np.mean(np.asarray(bits.synergy) < 0), FLIP, atol=0.01)
    every = np.concatenate([np.asarray(x).reshape(4000, -1) for x in bits[:4]], axis=1)
    # Five standard errors: no bit is biased, no two depend on each other.
    covariance = every.T @ every / 4000
    assert np.abs(every.mean(0)).max() < 5 / math.sqrt(4000)
    assert np.abs(covariance - np.eye(len(covariance))).max() < 5 / math.sqrt(4000)


def test_an_option_is_chosen_by_other_networks(tmp_path, monkeypatch):
    values, seen = (0.1, 0.5), []

    def probed(task, seed, tuned):
        seen.append((seed, tuned.tolist()))
        return [{"shared": value, "part": 2 * value, "shared, one view": -9.0} for value in tuned]

    monkeypatch.setattr(_factors_task.Factored, "_probed", probed)
    task = _factors_task.Factored(data=_factors.FactorViews(), networks=4, tuned=("temperature", values))
    assert [found["temperature"] for found in task.run(tmp_path, 7)] == [0.5] * 4
    assert seen == [(1_000_007, [0.1, 0.1, 0.5, 0.5]), (7, [0.5] * 4)]
    for objective in (losses.all_pairs(losses.nt_xent, pairs="all"), losses.mv_dhel):
        z = np.random.default_rng(0).normal(size=(3, 5, 4))
        at = [_factors_task.with_option(objective, "temperature", t)(z) for t in values]
        assert at[0] != at[1]
        assert at[1] == objective(z)  # their default


@pytest.mark.exhaustive
def test_runs_are_repeated_exactly_and_depend_on_the_seed(tmp_path):
    data = _factors.FactorViews(views=2, present=0.7)
    options = {"networks": 2, "steps": 3, "batch_size": 16, "objective": losses.mv_infonce}
    task = _factors_task.Factored(data=data, encoder=models.MLP(widths=(8, 4)), **options)
    first, again, other = (task.run(tmp_path, seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_of_three_pictures_no_two_tell_the_match():
    factors = _trifeature.drawn(np.random.default_rng(0), (200_000,), 3)
    (first, second, third), texture = factors.colour.T, factors.texture[:, 1]
    for colour in (first, third):
        of_pairs = [factors.match[(colour == i) & (texture == j)].mean() for i in range(5) for j in range(5)]
        np.testing.assert_allclose(of_pairs, 0.5, atol=0.03)
    np.testing.assert_array_equal(factors.match, texture == _trifeature.MATCH[(first + third) % 5])
    assert set(np.unique(second)) == set(range(5))
    places = _trifeature.pictures(np.random.default_rng(0), factors, 2)
    assert places.shape == (2, 3, 200_000)
    np.testing.assert_array_equal(places[1, 2] // _trifeature.RENDERED // 5 // 5, factors.shape)


def test_critics_of_upper_bounds_learn_in_their_own_turn_alone():
    z = np.random.default_rng(0).normal(size=(8, 6, 4)).astype(np.float32)
    weights = _fused_task.critics(jax.random.key(0), 4, hidden=3)
    gradient = jax.jit(jax.grad(lambda w, twice: _fused_task.factor_loss(w, z, twice=twice)))
    once, more = gradient(weights, 1.0), gradient(weights, 3.0)  # a factor of two terms of the other turn
    for i in (1, 5):
        assert np.any(once[i][2])
        np.testing.assert_allclose(once[i][2], more[i][2], rtol=1e-5)
    assert not np.allclose(once[4][2], more[4][2])
