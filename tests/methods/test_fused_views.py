"""Fused views: each pair of views as a further view, against sums written by hand with the same networks."""

from functools import cache, partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import losses, methods, models

N, SHAPES = 6, ((5,), (3,), (4,))
TEMPERATURE = 0.2
OBJECTIVE = losses.all_pairs(partial(losses.info_nce, temperature=TEMPERATURE), pairs="ordered")
FUSION = models.MLPHead(
    hidden=6, out=3, activation="gelu"
)  # relu gives a zero vector here, which has no direction


def setting(objective=OBJECTIVE, shapes=SHAPES):
    return methods.Specification(
        encoder=models.MLP(widths=(7,)),
        head=models.MLPHead(layers=1, out=3),
        objective=objective,
        shapes=shapes,
        given=True,
        examples=20,
        classes=3,
    )


def started(method, spec, objective=OBJECTIVE):
    """The learner, its first parameters and statistics, and (parameters, inputs) -> what its loss returns."""
    learner, params, statistics = initial(method, spec)
    of_views = methods.of_views(objective)

    @jax.jit
    def loss(params, inputs):
        return learner.loss(params, statistics, methods.Batch(inputs, lambda x: x["views"]), of_views)

    return learner, params, statistics, loss


@cache
def initial(method, spec):
    learner = method.build(spec)
    return learner, *jax.jit(learner.init)(jax.random.key(1))


def tables(rng, shapes=SHAPES):
    return tuple(rng.normal(size=(N, *shape)).astype(np.float32) for shape in shapes)


def info_nce(x, y, of_x, of_y):
    """Both directions, in float64: anchors have both vectors, negatives are all vectors of the other view."""
    unit = lambda z: np.asarray(z, np.float64) / np.linalg.norm(z, axis=1, keepdims=True)  # noqa: E731
    similarity, both = np.exp(unit(x) @ unit(y).T / TEMPERATURE), of_x & of_y
    shares = [
        np.diag(e)[both] / e[:, there].sum(1)[both] for e, there in ((similarity, of_y), (similarity.T, of_x))
    ]
    return -np.mean(np.log(shares))


def by_hand(nets, views, there, weight):
    """ConFu's released loss: the mean over the pairs of views and the pairs of a fused view and a third view."""
    features = [encoder(view) for encoder, view in zip(nets.encoder, views)]
    z = [head(x) for head, x in zip(nets.head, features)]
    terms = []
    for network, (l, m) in zip(nets.fusion, combinations(range(len(views)), 2)):
        terms.append((1 - weight) * info_nce(z[l], z[m], there[l], there[m]))
        fused = network(jnp.concatenate([features[l], features[m]], axis=1))
        for p in range(len(views)):
            if p not in (l, m):
                terms.append(weight * info_nce(fused, z[p], there[l] & there[m], there[p]))
    return np.mean(terms)


@pytest.mark.parametrize(
    ("shapes", "weight"),
    [(SHAPES, 0.2), pytest.param((*SHAPES, (2,)), 0.7, marks=pytest.mark.exhaustive)],
)
def test_equals_the_sum_over_pairs_and_fused_pairs(rng, shapes, weight):
    method = methods.MultiEncoder(fusion=FUSION, fusion_weight=weight)
    learner, params, statistics, loss = started(method, setting(shapes=shapes))
    views = tables(rng, shapes)
    value, (_, z, _) = loss(params, {"views": views})
    nets = learner.network(params, statistics)
    there = np.ones((len(shapes), N), bool)
    np.testing.assert_allclose(value, by_hand(nets, views, there, weight), rtol=1e-5)
    assert z.shape == (len(shapes), N, 3)  # what the log measures are the views themselves


def test_a_fused_view_is_missing_where_one_of_its_views_is(rng):
    learner, params, statistics, loss = started(methods.MultiEncoder(fusion=FUSION), setting())
    views, present = tables(rng), np.ones((N, 3), bool)
    present[1, 2] = present[4, 0] = False
    values = [
        loss(params, {"views": filled, "present": present})[0]
        for fill in (0, 7)
        for filled in [tuple(np.where(present[:, l, None], v, fill) for l, v in enumerate(views))]
    ]
    np.testing.assert_allclose(*values, rtol=1e-6)
    expected = by_hand(learner.network(params, statistics), views, present.T, 0.5)
    np.testing.assert_allclose(values[0], expected, rtol=1e-5)


def test_gradients_reach_the_fusion_networks_and_through_them_the_encoders(rng):
    _, params, _, loss = started(methods.MultiEncoder(fusion=FUSION, fusion_weight=1.0), setting())
    views = tables(rng)
    gradient = jax.jit(jax.grad(lambda p: loss(p, {"views": views})[0]))(params)
    assert set(gradient) == {"encoder", "head", "fusion"}
    assert all(np.any(g) for g in jax.tree.leaves(gradient))


def test_chance_level_is_that_of_views_without_information():
    learner = methods.MultiEncoder(fusion=FUSION).build(setting())
    of_views = methods.of_views(OBJECTIVE)
    chance = methods.chance_level(lambda z: learner.level(of_views, z), 3, N, 3)
    np.testing.assert_allclose(chance, np.log(N) / 2, rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ({}, {"shapes": SHAPES[:2]}, "at least 3 views, got 2"),
        ({}, {"objective": losses.mv_infonce}, "needs objective all_pairs, got mv_infonce"),
        (
            {"fusion": models.MLPHead(out=4)},
            {},
            r"must end in the head's 3 features, got 4; set --method\.fusion",
        ),
        ({"fusion_weight": 1.5}, {}, r"fusion_weight must be in \[0, 1\], got 1\.5"),
    ],
)
def test_raises_on_incompatible_options(method, change, message):
    with pytest.raises(ValueError, match=message):
        methods.MultiEncoder(**{"fusion": FUSION, **method}).build(setting(**change))
