"""An encoder for each view, and fused views of each pair of them, against sums by hand with the same networks."""

from functools import partial
from itertools import combinations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parametrize import some
from test_methods import N, loss_of, setting, started

from mvcl import losses, methods, models
from tests.losses import brute_force

SHAPES, WEIGHT = ((5,), (3,), (4,)), 0.2
TEMPERATURE = 0.2
OBJECTIVE = losses.all_pairs(partial(losses.info_nce, temperature=TEMPERATURE), pairs="ordered")
# relu gives a zero vector here, which has no direction
FUSION = models.MLPHead(hidden=6, out=3, activation="gelu")


of_tables = partial(setting, objective=OBJECTIVE, shapes=SHAPES, head=models.MLPHead(layers=1, out=3))


def info_nce(x, y, of_x, of_y):
    """Both directions, in float64: anchors have both vectors, negatives are all vectors of the other view."""
    z = brute_force.unit(np.stack([x, y]).astype(np.float64))
    return brute_force.info_nce(z, np.stack([of_x, of_y]), TEMPERATURE, symmetric=True)


def by_hand(nets, views, there):
    """ConFu's released loss: the mean over the pairs of views and the pairs of a fused view and a third view."""
    features = [encoder(view) for encoder, view in zip(nets.encoder, views)]
    z = [head(x) for head, x in zip(nets.head, features)]
    pairs = list(combinations(range(len(views)), 2))
    weight = WEIGHT if len(nets.fusion) else 0
    terms = [(1 - weight) * info_nce(z[l], z[m], there[l], there[m]) for l, m in pairs]
    for network, (l, m) in zip(nets.fusion, pairs):
        fused = network(jnp.concatenate([features[l], features[m]], axis=1))
        for p in range(len(views)):
            if p not in (l, m):
                terms.append(weight * info_nce(fused, z[p], there[l] & there[m], there[p]))
    return np.mean(terms)


@pytest.mark.parametrize("fusion", [None, FUSION])
@pytest.mark.parametrize("shapes", some([SHAPES, (*SHAPES, (2,))], fast=[SHAPES]))
def test_equals_the_sum_over_pairs_and_fused_pairs(rng, shapes, fusion):
    """With all views and without some, which are never read: a fused view is missing where one of its views is."""
    learner = methods.MultiEncoder(fusion=fusion, fusion_weight=WEIGHT).build(of_tables(shapes=shapes))
    params, statistics = started(learner)
    nets = learner.network(params, statistics)
    loss = jax.jit(jax.value_and_grad(loss_of(learner, OBJECTIVE), has_aux=True))

    views = tuple(rng.normal(size=(N, *shape)).astype(np.float32) for shape in shapes)
    present = np.ones((N, len(shapes)), bool)
    (value, (_, z, _)), gradient = loss(params, statistics, {"views": views, "present": present})
    np.testing.assert_allclose(value, by_hand(nets, views, present.T), rtol=1e-5)
    assert z.shape == (len(shapes), N, 3)  # what the log measures are the views themselves
    assert set(gradient) == {"encoder", "head"} | ({"fusion"} if fusion else set())
    assert all(np.any(g) for g in jax.tree.leaves(gradient))

    present[1, 2] = present[4, 0] = False
    slopes = []
    for fill in (0, 7):
        filled = tuple(np.where(present[:, l, None], v, np.float32(fill)) for l, v in enumerate(views))
        (value, _), gradient = loss(params, statistics, {"views": filled, "present": present})
        np.testing.assert_allclose(value, by_hand(nets, views, present.T), rtol=1e-5)
        slopes.append(gradient)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7), *slopes)


def test_chance_level_is_that_of_views_without_information():
    learner, of_views = methods.MultiEncoder(fusion=FUSION).build(of_tables()), losses.of_views(OBJECTIVE)
    chance = jax.jit(lambda: methods.chance_level(lambda z: learner.level(of_views, z), 3, N, 3))()
    np.testing.assert_allclose(chance, np.log(N) / 2, rtol=1e-5)
