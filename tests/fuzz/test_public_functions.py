"""Every public function of losses, metrics and transport, given what no caller should give it.

An answer is finite, or NaN where the input had one in a place that counts, or a `ValueError` that says what was
wrong; never another exception, another shape, or a number that hides a NaN.
"""

import functools
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mvcl import losses, metrics, transport

SETTINGS = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],  # a failing example is small enough as it comes
    "suppress_health_check": list(HealthCheck),
}
SHAPE = (3, 4, 2)  # one of each array, so that compiled programs are used again
SHAPES = [SHAPE, (2, 2, 2), (4, 3, 5)]  # of the slow run
DTYPES = [np.float32, jnp.bfloat16, np.float16]


def of_array(objective):
    """An objective as a function of (k, n, d) views, with a key if it draws; a pair loss reads its views' mask."""
    takes = losses.takes(objective)
    if takes.key:
        objective = functools.partial(objective, key=jax.random.key(0))

    def of_views(z, **options):
        if takes.operands is losses.Operands.PAIR and getattr(options.get("mask"), "ndim", 0):
            options["mask"] = options["mask"][:2]
        return losses.on_views(objective)(z, **options)

    return of_views


HIGHER_ORDER = losses.higher_order_functions()
OBJECTIVES = {
    name: f(losses.nt_xent) if name in HIGHER_ORDER else f for name, f in losses.objectives().items()
}
TAKES = {name: losses.takes(objective) for name, objective in OBJECTIVES.items()}
# (function of (k, n, d) views, does it take a mask)
LOSSES = {name: (of_array(objective), TAKES[name].mask) for name, objective in OBJECTIVES.items()}
LOSSES |= {"jsd_weights": (losses.jsd_weights, False), "mmd_weights": (losses.mmd_weights, False)}
LOSSES |= {
    "m3g_with_status": (lambda z, **o: losses.m3g_with_status(z, **o)[0], False),
    "m3g_pairwise_excess": (losses.m3g_pairwise_excess, False),
    "log_bessel_i": (lambda z: losses.log_bessel_i(1.5, jnp.abs(z)), False),
    "corrupted": (lambda z: losses.corrupted(jax.random.key(0), z, "noise"), False),
    "reconstruction_error": (lambda z: losses.reconstruction_error(z, 0 * z), False),
    "alignment": (lambda z, **o: metrics.alignment(z[0], z[1], **o), False),
    "uniformity": (lambda z, **o: metrics.uniformity(z[0], **o), False),
    "mean_cosines": (lambda z: jnp.stack(metrics.mean_cosines(z[0], z[1])), False),
    "effective_rank": (lambda z: metrics.effective_rank(z[0]), False),
    "lidar": (metrics.lidar, False),
    "nwj_bound": (lambda z: metrics.nwj_bound(z[0], z[1]), False),
    "multimarginal_sinkhorn": (lambda z, **o: transport.multimarginal_sinkhorn(z, **o).dual, False),
}
# Not projected onto the sphere: what overflows in a square or an exponential is no fault.
NOT_PROJECTED = {
    "mmd_weights", "reconstruction_error", "nwj_bound", "multimarginal_sinkhorn", "jsd_weights", "corrupted",
    "log_bessel_i", "effective_rank", "lidar",
} | {name for name, takes in TAKES.items() if not takes.normalize}  # fmt: skip
OF_ENTRIES = {"corrupted": lambda k, n, d: (k, n, d), "log_bessel_i": lambda k, n, d: (k, n, d),
              "jsd_weights": lambda k, n, d: (k, k), "mmd_weights": lambda k, n, d: (k, k),
              "mean_cosines": lambda k, n, d: (2,)}  # fmt: skip
ONLY_FIRST = {"uniformity": 1, "effective_rank": 1}  # how many of the views are read
ONLY_FIRST |= dict.fromkeys(["alignment", "mean_cosines", "nwj_bound"], 2)
ONLY_FIRST |= {name: 2 for name, takes in TAKES.items() if takes.operands is losses.Operands.PAIR}

NUMBERS = st.sampled_from(
    [0.0, -1.0, math.nan, math.inf, -math.inf, "x", None, True, [0.1, 0.2], 1e-60, 1e60, 1j]
)
WHOLE = st.sampled_from([0, -1, 1.5, math.nan, math.inf, "x", None, True, [2]])
OTHERS = {"alignment": metrics.alignment, "uniformity": metrics.uniformity, "lidar": metrics.lidar,
          "mmd_weights": losses.mmd_weights, "multimarginal_sinkhorn": transport.multimarginal_sinkhorn}  # fmt: skip
DEFAULTS = {name: takes.options for name, takes in TAKES.items()}
DEFAULTS |= {
    name: {
        p.name: p.default
        for p in inspect.signature(f).parameters.values()
        if p.default not in (p.empty, None) or p.name == "block_size"
    }
    for name, f in OTHERS.items()
}


def values_of(option, default):
    """What to try for an option; None where there is nothing to refuse, or no mesh."""
    if isinstance(default, bool) or option == "axis_name":
        return None
    if option == "block_size":
        return WHOLE.filter(lambda v: v is not None)
    if default is None:
        return NUMBERS.filter(lambda v: v is not None)
    return WHOLE if isinstance(default, int) else NUMBERS


OPTIONS = {
    name: {o: values_of(o, default) for o, default in options.items() if values_of(o, default) is not None}
    for name, options in DEFAULTS.items()
}


@functools.cache
def program(name, masked):
    function = LOSSES[name][0]

    def run(z, mask):
        options = {"mask": mask} if masked else {}
        return function(z, **options)

    if name in OF_ENTRIES or name in ("effective_rank", "lidar", "uniformity", "nwj_bound"):
        return jax.jit(lambda z, mask: (run(z, mask), None))
    return jax.jit(jax.value_and_grad(run))


def numbers_for(name):
    ordinary = st.floats(-2, 2, width=16)
    if name in NOT_PROJECTED:
        return ordinary
    return st.one_of(ordinary, st.sampled_from([0.0, 1e-30, -1e-30, 3e38, -3e38, 1e-45]))


@st.composite
def good_views(draw, name, shapes, dtypes):
    shape = draw(st.sampled_from(shapes))
    if name in TAKES and TAKES[name].views is not None:
        shape = (TAKES[name].views, *shape[1:])
    dtype = draw(st.sampled_from(dtypes))
    size = math.prod(shape)
    values = draw(st.lists(numbers_for(name), min_size=size, max_size=size))
    with np.errstate(over="ignore"):
        z = np.asarray(values, np.float32).reshape(shape)
        limit = float(jnp.finfo(dtype).max)
        return np.clip(z, -limit, limit).astype(dtype)


def check_values(data, shapes, dtypes):
    name = data.draw(st.sampled_from(sorted(LOSSES)))
    z = data.draw(good_views(name, shapes, dtypes))
    masked = LOSSES[name][1] and data.draw(st.booleans())
    k, n, d = z.shape
    mask = np.ones((k, n), bool)
    if masked:
        mask = np.asarray(data.draw(st.lists(st.booleans(), min_size=k * n, max_size=k * n))).reshape(k, n)
    bad = data.draw(st.sampled_from([None, None, math.nan, math.inf, -math.inf]))
    at = tuple(data.draw(st.integers(0, size - 1)) for size in z.shape)
    if bad is not None:
        z[at] = bad
    counts = bad is not None and mask[at[:2]] and at[0] < ONLY_FIRST.get(name, k)
    if name == "nwj_bound" and bad == -math.inf and at[0] == 1:
        counts = False  # a score of the second kind, of which exp(-inf) = 0 is taken
    value, slope = program(name, bool(masked))(jnp.asarray(z), jnp.asarray(mask))
    expected = OF_ENTRIES.get(name, lambda k, n, d: ())(k, n, d)
    assert value.shape == expected, (name, value.shape)
    assert jnp.issubdtype(value.dtype, jnp.floating)
    if not counts:
        finite = np.isfinite(np.asarray(value, np.float32))
        if name == "log_bessel_i":
            finite |= np.asarray(z, np.float32) == 0  # log 0
        assert finite.all(), (name, value, z.tolist(), mask.tolist())
        if slope is not None:
            seen = np.asarray(slope, np.float32)
            assert seen.shape == z.shape
            fits = np.isfinite(seen)
            if z.dtype == np.float16 and not fits.all():
                # 1 / |z| of a short vector may be more than a half holds: infinite there, and only there.
                wide = program(name, bool(masked))(jnp.asarray(z, jnp.float32), jnp.asarray(mask))[1]
                with np.errstate(over="ignore"):
                    fits |= seen == np.asarray(wide).astype(np.float16)
            assert fits.all(), (name, z.tolist(), mask.tolist(), seen.tolist())
    elif not masked:
        assert not np.isfinite(np.asarray(value, np.float32)).all(), (name, bad, at, value)


def refuses(call, *, why):
    try:
        call()
    except ValueError:
        return
    raise AssertionError(f"accepted {why}")


def check_arguments(data):
    """Shapes, dtypes and options that are wrong: a `ValueError`, before anything is compiled."""
    name = data.draw(st.sampled_from(sorted(LOSSES)))
    function = LOSSES[name][0]
    z = np.ones(SHAPE, np.float32)
    kind = data.draw(st.sampled_from(["shape", "dtype", "option", "option"]))
    if kind == "shape" and name not in ("corrupted", "log_bessel_i", "reconstruction_error", "nwj_bound"):
        shape = data.draw(st.sampled_from([(3, 0, 2), (3, 4, 0), (3, 4), (3, 4, 2, 1), (3, 1, 2)]))
        if name in ("effective_rank", "multimarginal_sinkhorn") and shape == (3, 1, 2):
            return
        refuses(lambda: function(np.ones(shape, np.float32)), why=(name, shape))
    elif kind == "dtype":
        dtype = data.draw(st.sampled_from([np.int32, np.bool_, np.complex64]))
        if name == "reconstruction_error" or name == "log_bessel_i":
            return
        refuses(lambda: function(z.astype(dtype)), why=(name, dtype))
    elif kind == "option" and OPTIONS.get(name):
        option = data.draw(st.sampled_from(sorted(OPTIONS[name])))
        value = data.draw(OPTIONS[name][option])
        try:
            out = function(z, **{option: value})
        except ValueError:
            return
        assert np.isfinite(np.asarray(out, np.float32)).all(), (name, option, value, out)


def labels(data, size):
    return np.asarray(data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size)))


def check_host(data):
    """Functions that are not compiled: labels, counts, numbers."""
    count = data.draw(WHOLE | st.integers(0, 9))
    number = data.draw(NUMBERS | st.floats(1e-3, 1e3))
    a, b = labels(data, data.draw(st.integers(0, 5))), labels(data, data.draw(st.integers(0, 5)))
    a = data.draw(st.sampled_from([a, a, a.astype(float), a[None], [], None, "x", a.tolist()]))
    rows = np.asarray([0, 1, 1, 0])
    x = data.draw(good_views("alignment", [SHAPE], [np.float32]))[0]
    x = data.draw(
        st.sampled_from([x, x, np.where(x > 0, np.nan, x), np.where(x > 0, np.inf, x), x[0], rows[:, None]])
    )
    calls = {
        "clustering_accuracy": lambda: metrics.clustering_accuracy(a, b),
        "purity": lambda: metrics.purity(a, b),
        "normalized_mutual_information": lambda: metrics.normalized_mutual_information(a, b),
        "adjusted_rand_index": lambda: metrics.adjusted_rand_index(a, b),
        "gaussian_information": lambda: metrics.gaussian_information(count, number),
        "information_gap": lambda: metrics.information_gap(1.0, count, number),
        "optimal_multiplicity": lambda: metrics.optimal_multiplicity(count, number),
        "relative_compute": lambda: metrics.relative_compute(count, number),
        "printed_poly_view_bound": lambda: metrics.printed_poly_view_bound(1.0, count, 3),
        "expected_info_nce": lambda: metrics.expected_info_nce(count, number, draws=10),
        "best_gaussian_multiplicity": lambda: metrics.best_gaussian_multiplicity(16, number, (count,)),
        "multi_crop_bound": lambda: metrics.multi_crop_bound(1.0, count),
        "k_means": lambda: metrics.k_means(x, count)[1],
        "weighted_knn": lambda: metrics.weighted_knn(x, rows, x, num_classes=2, k=count),
        "weighted_knn classes": lambda: metrics.weighted_knn(x, rows, x, num_classes=count),
        "weighted_knn temperature": lambda: metrics.weighted_knn(x, rows, x, num_classes=2, temperature=number),
        "matrix_rank": lambda: metrics.matrix_rank(x, tolerance=number),
        "wasserstein_uniformity": lambda: metrics.wasserstein_uniformity(x),
        "recall_at": lambda: metrics.recall_at(x, x, (count,)),
        "volume_recall_at": lambda: metrics.volume_recall_at(x[None], x, (1, count)),
        "cmi_weights": lambda: losses.cmi_weights(np.stack([rows, rows[::-1]]) if count == 1 else a),
        "all_pairs weights": lambda: losses.all_pairs(losses.byol, weights=number)(np.ones(SHAPE, np.float32)),
        "log_bessel_i": lambda: losses.log_bessel_i(number, np.ones(2, np.float32)),
        "corrupted": lambda: losses.corrupted(jax.random.key(0), np.ones(2, np.float32), number),
    }  # fmt: skip
    name = data.draw(st.sampled_from(sorted(calls)))
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(calls[name]())
    except ValueError:
        return
    spoiled = name == "wasserstein_uniformity" and not np.isfinite(np.asarray(x, float)).all()
    hides = name.split()[0] in ("k_means", "weighted_knn", "matrix_rank", "recall_at", "volume_recall_at")
    assert not (hides and not np.isfinite(np.asarray(x, float)).all()), f"{name} hides what is not finite"
    assert np.isfinite(found).all() != spoiled, (name, found, x)


def campaign(data, shapes, dtypes):
    kind = data.draw(st.sampled_from(["values", "values", "arguments", "host"]))
    if kind == "values":
        check_values(data, shapes, dtypes)
    elif kind == "arguments":
        check_arguments(data)
    else:
        check_host(data)


@settings(max_examples=200, **SETTINGS)
@given(st.data())
def test_a_number_a_nan_or_a_value_error(data):
    campaign(data, [SHAPE], [np.float32])


@pytest.mark.slow
@settings(max_examples=10_000, **SETTINGS)
@given(st.data())
def test_ten_thousand_times(data):
    campaign(data, SHAPES, DTYPES)
