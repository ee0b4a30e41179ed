"""Bad input names the argument, what it must be and what came."""

from functools import partial

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import every
from flax import nnx

from mvcl import losses

Z = np.ones((4, 4, 2), np.float32)
SHAPES = dict.fromkeys(losses.Operands, r"z must have shape \(k, n, d\)")
SHAPES[losses.Operands.PAIR] = r"x must have shape \(n, d\)"
SHAPES[losses.Operands.GROUPS] = r"queries must have shape \(m, n, d\)"


@every(cases.ALL)
def test_shapes_dtypes_and_options(case):
    takes = case.takes
    z = np.ones((cases.VIEWS[takes.operands], 4, 2), np.float32)

    def raises(match, z=z, error=ValueError, **options):  # only traced: nothing is compiled
        with pytest.raises(error, match=match):
            jax.eval_shape(lambda z: case.run(z, **options), z)

    raises(SHAPES[takes.operands] + r" with .*n >= 2.* got \(.*1, 2\)", z[:, :1])
    raises(r" must have a floating dtype, got int32", z.astype(np.int32))
    raises(SHAPES[takes.operands], z[..., 0])
    raises(r"mask must |takes no mask", mask=np.ones((4, 3), bool))
    raises("tempreature", error=TypeError, tempreature=0.1)
    if takes.mask:
        raises(r"mask must have shape \(\d+, 4\), got \(4, 3\)", mask=np.ones((4, 3), bool))
        raises(r"mask must be boolean, got float32", mask=np.ones(z.shape[:2], np.float32))
    if takes.block_size:
        raises(r"block_size must be a whole number >= 1, got 0", block_size=0)
    for option in (o for o, default in takes.options.items() if type(default) in (int, float, str)):
        raises(f"{option} must be", **{option: "x"})
    if "temperature" in takes.options:
        for bad in (0, -1.0, float("nan")):
            raises(rf"temperature must be positive, got {bad}", temperature=bad)
        raises(r"temperature must be a scalar, got shape \(2,\)", temperature=np.ones(2, np.float32))
    if takes.queue:
        far = {takes.queue: np.ones((5, 3), np.float32)}
        raises(rf"{takes.queue} must have shape \(q, 2\), got \(5, 3\)", **far)
    if takes.operands is losses.Operands.VIEWS and case in cases.PLAIN:
        raises(r"z must .* k >= 2 .* got \(1, 4, 2\)", z[:1])


@every(cases.PLAIN, lambda case: case.takes.operands is losses.Operands.PAIR)
def test_two_views_that_differ(case):
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(4, 2\), got \(3, 2\)"):
        case.objective(Z[0], Z[0, :3])
    with pytest.raises(ValueError, match=r"y must have the dtype of x, float32, got float16"):
        case.objective(Z[0], Z[0].astype(np.float16))


KEY = jax.random.key(0)


def of_groups(z, keys=Z[2:], **options):
    return losses.dsf(z[:2], keys, **options)


def of_pairs(z, **options):
    return losses.all_pairs(losses.byol, **options)(z)


def of_dict(loss):
    """Of views by name."""
    return lambda z: loss({"text": z[0], "image": z[1]})


AGGREGATIONS = "aggregation must be one of 'geometric', 'arithmetic', 'harmonic' or a number, got "
MASK = np.ones((4, 4), bool)
by_sum = lambda s: s.sum()  # noqa: E731
undeclared = lambda x, y: losses.byol(x, y)  # noqa: E731
row, wide = (lambda x, y: x @ y[0]), (lambda values: values)
CRITICS = [
    ({"critic": "x"}, r"critic must be a function of \(m, d\) and \(n, d\) vectors, got 'x'"),
    ({"critic": row}, r"critic must make \(m, n\) scores of .*, got \(\d+,\)"),
    ({"critic": jnp.inner, "temperature": 0.2}, r"temperature is not used with a critic, .* got 0.2"),
    ({"aggregation": wide}, r"aggregation must make \(\.\.\.\) of \(j, \.\.\.\), .*, got \(3, 4, 4"),
]
WRONG = [
    *((losses.poly_view, *wrong) for wrong in CRITICS),
    *((losses.sufficient_statistics, *wrong) for wrong in CRITICS),
    (losses.poly_siglip, {"aggregation": wide}, "aggregation must make"),
    (losses.mv_infonce, {"negatives": "none"}, r"negatives must be one of 'cross_view', 'all', got 'none'"),
    (losses.mv_cl2, {"energy": "max"}, r"energy must be one of 'mean', 'sum', got 'max'"),
    *((losses.poly_view, {"aggregation": wrong}, AGGREGATIONS) for wrong in ("x", True, np.inf)),
    (losses.poly_view, {"negatives_of": "x"}, r"negatives_of must be one of 'other', 'anchor', got 'x'"),
    (losses.gram, {"anchor": 4}, r"anchor must be a view, 0 to 3, got 4"),
    (losses.gram, {"anchor": -1}, r"anchor must be a whole number >= 0, got -1"),
    (losses.gram, {"label_smoothing": 1.5}, r"label_smoothing must be in \[0, 1\], got 1.5"),
    (losses.gram, {"eps": 0}, r"eps must be positive, got 0"),
    (losses.triangle, {}, r"z must have shape \(3, n, d\), got \(4, 4, 2\)"),
    (losses.symile, {"negatives": "n"}, r"negatives must be one of 'all', 'shuffled', got 'n'"),
    (losses.symile, {"negatives": "shuffled"}, r'key must be a .* for negatives="shuffled", got None'),
    (losses.pmrl, {"instance_temperature": 0}, r"instance_temperature must be positive, got 0"),
    (losses.frossl, {"mask": MASK}, r"mask must be None: frossl divides"),
    (losses.lejepa, {"key": None}, r"key must be one key, as .*, got NoneType"),
    (losses.visreg, {"key": jax.random.split(KEY)}, r"key must be one key, as .*, got .* of shape \(2,\)"),
    (losses.lejepa, {"key": KEY, "global_views": 0}, r"global_views must be a whole number >= 1, got 0"),
    (losses.visreg, {"key": KEY, "global_views": 5}, r"global_views must be at most .* views, 4, got 5"),
    (losses.all_pairs(losses.byol, Z[:2, :2, 0]), {}, r"weights .* \(4, 4\) or \(4, 4, 4\), got \(2"),
    (losses.all_pairs(undeclared, np.ones((4, 4, 4))), {}, r"weights .* \(4, 4\) for <lambda>, which does"),
    (losses.m3g, {"mask": MASK[:, :3]}, r"mask must have shape \(4, 4\), got \(4, 3\)"),
    (losses.m3g, {"cost": "cosine"}, "cost must be one of 'circular_variance', 'circular_stand"),
    (losses.m3g, {"cost": by_sum, "mask": MASK}, "mask of m3g, must be None for a cost"),
    (losses.m3g, {"max_iterations": 0}, "max_iterations must be a whole number >= 1, got 0"),
    (losses.m3g, {"epsilon_init": 0.5}, "epsilon_init must be >= 1"),
    (losses.m3g, {"epsilon_init": 5.0}, "epsilon_decay must be < 1"),
    (losses.m3g, {"cost_scale": 0.0}, "cost_scale must be positive"),
    (losses.m3g, {"max_operations": 1e2}, r"256 tuples.*operations.*n <= \d with 4 views"),
    (losses.m3g, {"epsilon": 0.0}, "epsilon must be positive"),
    (losses.factor_cl, {}, r"z must have shape \(8, n, d\), got \(4, 4, 2\)"),
    (losses.comm, {"weights": [1.0]}, r"weights must have shape \(2,\), got \(1,\)"),
    (lambda z, **_: losses.comm(z[:3]), {}, r"z must have shape \(2 \(m \+ 1\), n, d\), .*, got \(3, 4, 2\)"),
    (losses.inf_masking, {"masked": Z[None, :, :3]}, r"masked must have shape \(2, T, 4, 2\), got \(1, 4, 3"),
    (of_groups, {"in_batch_negatives": False}, "queue must be given with in_batch_negatives=False, got"),
    (of_groups, {"queue_concentration": "x"}, r"queue_concentration must be one of 'own', 'batch_mean', got"),
    (of_groups, {"mean_resultant": "A"}, r"mean_resultant must be one of 'estimate', 'exact', got 'A'"),
    (of_groups, {"keys": Z[2:, :3]}, r"keys must have the instances.*got \(2, 3, 2\)"),
    (of_pairs, {"pairs": "x"}, "pairs must be one of .*, got 'x'"),
    (of_pairs, {"reduction": "max"}, "reduction must be one of .*, got 'max'"),
    (of_dict(losses.info_nce), {}, r"info_nce compares x and y; .* losses.all_pairs\(losses.info_nce\)\(z\)"),
    (of_dict(losses.dsf), {}, r"dsf compares queries and keys; .* losses.dsf\(z\[:1\], z\[1:\]\)"),
    (of_dict(losses.cross_pairs(losses.byol)), {}, r"the loss .* keys, .* loss\(z\[:1\], z\[1:\]\)"),
    (of_dict(losses.mv_dhel), {}, r"z must be an array of numbers, got dict: .* stack the views"),
]


@pytest.mark.parametrize(("objective", "options", "message"), WRONG)
def test_options_of_one_objective(objective, options, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(partial(objective, **options), Z)  # nothing is compiled


def test_options_are_bound_by_keyword_and_known():
    with pytest.raises(ValueError, match=r"of nt_xent must be bound by keyword, got \(1,\) by position"):
        losses.takes(partial(losses.nt_xent, 1))
    with pytest.raises(TypeError, match="m3g has no option 'x'; it has epsilon"):
        losses.m3g_with_status(Z, x=1)


@pytest.mark.parametrize("size", [3, 99])  # 7 rows: parts that fill up, or one
def test_value_and_gradient_are_those_of_the_whole_batch(x64, rng, size):
    views = [rng.normal(size=(7, 5)), rng.normal(size=(7, 4))]
    params = [rng.normal(size=(5, 3)), rng.normal(size=(4, 3))]

    def whole(params):
        return losses.mv_dhel(jnp.stack([jnp.tanh(x @ w) for x, w in zip(views, params)]))

    def parts(params):
        encode = [lambda x, w=w: jnp.tanh(x @ w) for w in params]
        return losses.microbatched(losses.mv_dhel, encode, views, size=size)

    found, expected = (jax.jit(jax.value_and_grad(f))(params) for f in (parts, whole))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), found, expected)


def test_an_nnx_module_takes_the_memory_of_a_part(rng):
    rngs = nnx.Rngs(0)
    net = nnx.Sequential(nnx.Linear(4, 4096, rngs=rngs), jnp.tanh, nnx.Linear(4096, 4, rngs=rngs))
    x = jnp.asarray(rng.normal(size=(2, 256, 4)), jnp.float32)
    graph, state = nnx.split(net)

    def memory(size):
        def loss(state):
            return losses.microbatched(losses.mv_dhel, nnx.merge(graph, state), x, size=size)

        return jax.jit(jax.grad(loss)).lower(state).compile().memory_analysis().temp_size_in_bytes

    assert memory(16) < memory(256) / 2
    slopes = lambda loss: nnx.jit(nnx.value_and_grad(loss))(net)  # noqa: E731
    whole = slopes(lambda net: losses.mv_dhel(jax.vmap(net)(x)))
    found = slopes(lambda net: losses.microbatched(losses.mv_dhel, net, x, size=50))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, whole)
    with pytest.raises(ValueError, match="one of each of 2 views, got 1"):
        losses.microbatched(losses.mv_dhel, [net], x, size=4)
