"""Public functions of losses, metrics and transport, given what no caller should give them.

An answer is finite, or NaN where the input had one in a place that counts, or a `ValueError` that says what was
wrong; never another exception, another shape, or a number that hides a NaN.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mvcl import losses, metrics, transport

SETTINGS = {"deadline": None, "derandomize": True, "database": None, "max_examples": 10_000}
SETTINGS |= {"suppress_health_check": list(HealthCheck)}
SETTINGS |= {"phases": [Phase.generate]}  # a failing example is small enough as it comes
SHAPE = (3, 4, 2)  # one of each array, so that compiled programs are used again
Z = np.ones(SHAPE, np.float32)
MADE = losses.higher_order_functions()
OBJECTIVES = {name: f(losses.nt_xent) if name in MADE else f for name, f in losses.objectives().items()}
TAKES = {name: losses.takes(objective) for name, objective in OBJECTIVES.items()}


def of_array(name):
    """An objective as a function of (k, n, d) views, with a key if it draws; a pair loss reads its views' mask."""
    objective, takes = OBJECTIVES[name], TAKES[name]
    if takes.key:
        objective = functools.partial(objective, key=jax.random.key(0))

    def of_views(z, **options):
        if takes.operands is losses.Operands.PAIR and getattr(options.get("mask"), "ndim", 0):
            options["mask"] = options["mask"][:2]
        return losses.on_views(objective)(z, **options)

    return of_views


# Scalars of (k, n, d) views; how many of the views are read.
SCALARS = {
    name: (of_array(name), 2 if TAKES[name].operands is losses.Operands.PAIR else 3) for name in OBJECTIVES
}
SCALARS |= {
    "alignment": (lambda z, **o: metrics.alignment(z[0], z[1], **o), 2),
    "uniformity": (lambda z, **o: metrics.uniformity(z[0], **o), 1),
    "multimarginal_sinkhorn": (lambda z, **o: transport.multimarginal_sinkhorn(z, **o).dual, 3),
}
PROJECTED = {name for name, takes in TAKES.items() if takes.normalize} | {"alignment", "uniformity"}
NUMBERS = st.sampled_from([0.0, -1.0, math.nan, math.inf, "x", None, True, [0.1, 0.2], 1e-60, 1e60, 1j])
WHOLE = st.sampled_from([0, -1, 1.5, math.nan, math.inf, "x", None, True, [2]])


def options_of(name):
    """The options of an objective that can be wrong, with what to try."""
    defaults = TAKES[name].options if name in TAKES else {}
    tried = {o: v for o, v in defaults.items() if not isinstance(v, bool) and o != "axis_name"}
    whole = {o for o, v in tried.items() if isinstance(v, int) or o == "block_size"}
    return {
        o: (WHOLE if o in whole else NUMBERS).filter(lambda v, d=v: (v, d) != (None, None))
        for o, v in tried.items()
    }


@functools.cache
def program(name, masked):
    run = SCALARS[name][0]
    return jax.jit(jax.value_and_grad(lambda z, mask: run(z, mask=mask) if masked else run(z)))


def check_values(data, name):
    """Extreme numbers, masks, and one that is not finite; of what is not projected a square may overflow."""
    extremes = st.sampled_from([0.0, 1e-30, -1e-30, 3e38, -3e38, 1e-45])
    numbers = st.floats(-2, 2, width=16)
    numbers = numbers | extremes if name in PROJECTED else numbers
    z = np.asarray(data.draw(st.lists(numbers, min_size=24, max_size=24)), np.float32).reshape(SHAPE)
    mask = np.ones(SHAPE[:2], bool)
    masked = name in TAKES and TAKES[name].mask and data.draw(st.booleans())
    if masked:
        mask = np.asarray(data.draw(st.lists(st.booleans(), min_size=12, max_size=12))).reshape(SHAPE[:2])
    bad = data.draw(st.sampled_from([None, math.nan, math.inf, -math.inf]))
    at = tuple(data.draw(st.integers(0, size - 1)) for size in SHAPE)
    z[at] = z[at] if bad is None else bad
    value, slope = program(name, masked)(jnp.asarray(z), jnp.asarray(mask))
    assert value.shape == ()
    assert slope.shape == z.shape
    if bad is None or not mask[at[:2]] or at[0] >= SCALARS[name][1]:
        assert np.isfinite(value), (name, value, z.tolist(), mask.tolist())
        assert name == "uniformity" or np.isfinite(slope).all(), (name, z.tolist(), mask.tolist())
    elif not masked:
        assert not np.isfinite(value), (name, bad, at, value)


def check_option(data, name):
    """A wrong option: a `ValueError`, or an answer that is finite."""
    tried = options_of(name)
    if not tried:
        return
    option = data.draw(st.sampled_from(sorted(tried)))
    value = data.draw(tried[option])
    try:
        out = SCALARS[name][0](Z, **{option: value})
    except ValueError:
        return
    assert np.isfinite(np.asarray(out, np.float32)).all(), (name, option, value, out)


COUNT, NUMBER = WHOLE | st.integers(0, 9), NUMBERS | st.floats(1e-3, 1e3)
LABELS = st.sampled_from(
    [np.array([0, 1, -3]), np.zeros(0, int), np.zeros(3), np.zeros((1, 3), int), [], None, "x"]
)
ROWS = np.asarray([0, 1, 1, 0])
POINTS = st.sampled_from(
    [Z[0], np.where(np.eye(4, 2), np.nan, Z[0]), np.where(np.eye(4, 2), np.inf, Z[0]), Z[0, 0]]
)
# Functions that are not compiled: of labels, counts, numbers, points.
HOST = {
    "clustering_accuracy": (metrics.clustering_accuracy, LABELS, LABELS),
    "normalized_mutual_information": (metrics.normalized_mutual_information, LABELS, LABELS),
    "gaussian_information": (metrics.gaussian_information, COUNT, NUMBER),
    "optimal_multiplicity": (metrics.optimal_multiplicity, COUNT, NUMBER),
    "k_means": (lambda x, count: metrics.k_means(x, count)[1], POINTS, COUNT),
    "weighted_knn": (lambda x, k: metrics.weighted_knn(x, ROWS, x, num_classes=2, k=k), POINTS, COUNT),
    "recall_at": (lambda x, count: metrics.recall_at(x, x, (count,)), POINTS, COUNT),
    "cmi_weights": (losses.cmi_weights, LABELS),
}


def check_host(data, name):
    """A `ValueError`, or an answer that is finite, which hides no point that is not."""
    function, *arguments = HOST[name]
    drawn = [data.draw(a) for a in arguments]
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(function(*drawn))
    except ValueError:
        return
    points = isinstance(drawn[0], np.ndarray) and np.issubdtype(drawn[0].dtype, np.floating)
    assert not points or np.isfinite(drawn[0]).all(), f"{name} hides what is not finite"
    assert np.isfinite(found).all(), (name, drawn, found)


@pytest.mark.slow
@settings(**SETTINGS)
@given(st.data())
def test_a_number_a_nan_or_a_value_error(data):
    check = data.draw(st.sampled_from([check_values, check_values, check_option, check_host]))
    check(data, data.draw(st.sampled_from(sorted(HOST if check is check_host else SCALARS))))
