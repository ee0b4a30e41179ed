"""Values against loops in float64 over (k, n, d, temperature, mask), with extra negatives and blocks; higher-order
functions of every pair loss; values known by hand.
"""

import functools

import brute_force
import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import every

from mvcl import losses


@every(cases.EVERY_OPTION)
def test_equals_the_formula(x64, rng, case):
    """Masked with a queue in blocks and whole; at a small temperature; without projection."""
    takes = case.takes
    heat = (lambda t: {"temperature": t}) if "temperature" in takes.options else lambda t: {}
    z = case.draw(rng, 6, 3)
    if takes.mask or takes.queue or takes.block_size:
        mask = cases.some_missing(rng, z.shape[:2]) if takes.mask else np.ones(z.shape[:2], bool)
        extra = rng.normal(size=(3, 3))
        given, more = {"mask": mask} if takes.mask else {}, {}
        if takes.queue and takes.queue_rows is losses.QueueRows.GROUP_MEAN:
            extra /= 1 + np.linalg.norm(extra, axis=1, keepdims=True)  # means of unit vectors
            given[takes.queue] = more["extra"] = extra
        elif takes.queue:
            given[takes.queue], more["extra"] = extra, case.prepared(extra[None])[0]
        expected = case.by_hand(z, mask, **heat(0.05), **more)
        holes = np.where(mask[:, :, None], z, np.nan)
        for blocks in ({}, {"block_size": 2}) if takes.block_size else ({},):
            found = jax.jit(functools.partial(case.run, **heat(0.05), **blocks))(holes, **given)
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    z = case.draw(rng, 5, 3, views=4)
    found = jax.jit(functools.partial(case.run, **heat(0.002)))(z)
    np.testing.assert_allclose(found, case.by_hand(z, **heat(0.002)), rtol=1e-11)
    if takes.normalize:
        z = case.draw(rng, 2, 2, views=2)
        z *= case.reference.longest * 0.9 / np.linalg.norm(z, axis=-1).max()
        found = jax.jit(functools.partial(case.run, **heat(3.0), normalize=False))(z)
        expected = case.loops(z, np.ones(z.shape[:2], bool), **heat(3.0))
        np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("pair", cases.PAIRS)
def test_all_pairs(x64, rng, pair):
    """Every order, reduction and kind of weights, in one program; and as a function that declares nothing."""
    z, w, by_instance = rng.normal(size=(3, 6, 3)), rng.random((3, 3)), rng.random((3, 3, 6))
    mask = cases.some_missing(rng, z.shape[:2])
    weighted = [w, by_instance] if losses.takes(OBJECTIVES[pair]).terms else [w]
    options = [{}, {"pairs": "ordered"}] + [
        {"weights": factors, "pairs": pairs, "reduction": reduction}
        for factors in weighted
        for pairs, reduction in (("unordered", "mean"), ("all", "sum"))
    ]
    several = [cases.of_pairs("all_pairs", pair, **o) for o in options]
    for there in (None, mask) if several[0].takes.mask else (None,):
        given = {} if there is None else {"mask": there}
        found = jax.jit(lambda z, given=given: [c.objective(z, **given) for c in several])(z)
        expected = [c.by_hand(z, there) for c in several]
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    opaque = losses.all_pairs(lambda x, y, **o: several[0].objective.keywords["pair"](x, y, **o))
    np.testing.assert_allclose(jax.jit(opaque)(z, **given), expected[0], rtol=1e-11, atol=1e-11)


OBJECTIVES = cases.OBJECTIVES


@pytest.mark.parametrize("pair", cases.PAIRS)
def test_one_vs_rest(x64, rng, pair):
    z = rng.normal(size=(4, 5, 3))
    mask = cases.some_missing(rng, z.shape[:2])
    several = [cases.of_pairs("one_vs_rest", pair, normalize_rest=flag) for flag in (False, True)]
    blocks = {"block_size": 2} if several[0].takes.block_size else {}
    units = brute_force.unit(z)
    for there in (None, mask) if several[0].takes.mask else (None,):
        given = {} if there is None else {"mask": there}
        found = jax.jit(
            lambda z, given=given: [c.objective(z, **given, **o) for c in several for o in ({}, blocks)]
        )(z)
        full = np.ones(z.shape[:2], bool) if there is None else there
        expected = [c.loops(units, full) for c in several for _ in range(2)]
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_weights_by_instance(x64, rng):
    """Nested tuples; blocks; split over devices; the derivative; and the loops of SEM's sample weights."""
    z, w = rng.normal(size=(3, 8, 4)), rng.random((3, 3, 8))
    mask = cases.some_missing(rng, z.shape[:2])
    for pair in ("nt_xent", "info_nce", "spectral"):
        case = cases.of_pairs("all_pairs", pair, pairs="all", reduction="sum")
        expected = case.by_hand(z, mask, weights=w)
        nested = tuple(tuple(tuple(float(v) for v in row) for row in rows) for rows in w)
        whole = jax.jit(lambda z, case=case, w=nested: case.objective(z, weights=w, mask=mask))
        np.testing.assert_allclose(whole(z), expected, rtol=1e-11)
        if pair != "nt_xent":  # the reduction over devices is the same code
            continue
        mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
        rows = jax.P(None, "data")

        def local(z, w, m, case=case):
            return case.objective(z, weights=w, mask=m, axis_name="data", block_size=1)

        specs = (rows, jax.P(None, None, "data"), rows)
        split = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=jax.P())
        found, slope = jax.jit(jax.value_and_grad(split))(z, w, mask)
        np.testing.assert_allclose(found, expected, rtol=1e-11)
        np.testing.assert_allclose(slope, jax.jit(jax.grad(whole))(z), atol=1e-11)
    assert losses.takes(case.objective).pair_weights
    with pytest.raises(
        ValueError, match=r"weights must have shape \(3, 3\) for <lambda>, which does not declare"
    ):
        losses.all_pairs(lambda x, y: losses.byol(x, y))(z, weights=w)


def test_integer_weights_in_tuples(rng):
    z = rng.normal(size=(2, 5, 3)).astype(np.float32)
    found = losses.all_pairs(losses.byol, weights=((0, 3), (5, 0)))(z)
    np.testing.assert_allclose(found, 3 * losses.byol(*z), rtol=1e-6)


def test_one_vs_rest_in_blocks_with_a_learned_temperature(x64, rng):
    """Bound into the pair loss, closed over by it, or an option: its derivative and a sweep are the whole blocks'."""
    z, temperatures = rng.normal(size=(3, 5, 4)), jnp.asarray([0.01, 0.5])
    bound = lambda z, t, b: losses.one_vs_rest(functools.partial(losses.info_nce, temperature=t))(  # noqa: E731
        z, block_size=b
    )
    declared = losses.declare(operands=losses.Operands.PAIR, normalize=True, block_size=True)
    closed = lambda z, t, b: losses.one_vs_rest(declared(lambda x, y, **o: losses.info_nce(x, y, t, **o)))(  # noqa: E731
        z, block_size=b
    )
    option = lambda z, t, b: losses.one_vs_rest(losses.info_nce)(z, temperature=t, block_size=b)  # noqa: E731
    slopes = jax.value_and_grad(option, (0, 1))
    expected = jax.jit(jax.vmap(lambda t: slopes(z, t, None)))(temperatures)
    for loss in (bound, closed, option):
        slopes = jax.value_and_grad(loss, (0, 1))
        found = jax.jit(jax.vmap(lambda t, slopes=slopes: slopes(z, t, 2)))(temperatures)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12), found, expected)


@pytest.mark.parametrize(
    ("function", "options"), [("cross_pairs", {}), ("mean_pair", {}), ("mean_pair", {"renormalize": False})]
)
def test_groups_of_views(x64, rng, function, options):
    case = cases.of_pairs(function, "info_nce", **options)
    z = rng.normal(size=(4, 5, 3))
    mask = cases.some_missing(rng, z.shape[:2])
    for there in (None, mask):
        given = {} if there is None else {"mask": there}
        holes = z if there is None else np.where(there[:, :, None], z, np.nan)
        np.testing.assert_allclose(jax.jit(case.run)(holes, **given), case.by_hand(z, there), rtol=1e-12)


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("renormalize", [True, False])
def test_mean_pair_with_a_queue_of_means(x64, rng, renormalize, declared):
    """Rows of the queue are projected as the means are, also for a pair loss that does not declare its terms."""
    pair = functools.partial(losses.info_nce, temperature=0.5, in_batch_negatives=False)
    if not declared:
        told = losses.declare(operands=losses.Operands.PAIR, normalize=True, queue="extra_negatives")
        pair = told(lambda x, y, pair=pair, **options: pair(x, y, **options))
    q, k = brute_force.unit(rng.normal(size=(2, 2, 5, 4)))
    queue = brute_force.unit(rng.normal(size=(3, 2, 4))).mean(1)
    x, y, far = q.mean(0), k.mean(0), queue
    if renormalize:
        x, y, far = brute_force.unit(x), brute_force.unit(y), brute_force.unit(far)
    own, others = (x * y).sum(1) / 0.5, x @ far.T / 0.5
    expected = np.mean(np.log(np.exp(own) + np.exp(others).sum(1)) - own)
    found = losses.mean_pair(pair, renormalize=renormalize)(q, k, extra_negatives=queue)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@every(cases.PLAIN, lambda case: case.reference.coinciding)
def test_coinciding_vectors(x64, case):
    """Values known by hand."""
    t = {"temperature": 0.25} if "temperature" in case.takes.options else {}
    k, n, d = cases.VIEWS[case.takes.operands], 7, 3
    z = np.ones((k, n, d))
    expected = case.reference.coinciding(k, n, d, 0.25)
    found = jax.jit(functools.partial(case.run, **t))(z)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@every(cases.PLAIN)
def test_pinned(x64, case):
    """The loops give what they gave when they were written: a change of both is seen."""
    z = brute_force.fixed_input(cases.VIEWS[case.takes.operands])
    np.testing.assert_allclose(case.by_hand(z), case.reference.pinned, rtol=1e-11)


def test_a_temperature_may_be_traced_and_swept(x64, rng):
    z = rng.normal(size=(3, 5, 4))
    temperatures = jnp.asarray([0.01, 0.1, 1.0])  # on both sides of the switch to row maxima
    for loss in (losses.mv_infonce, losses.mv_dhel, losses.poly_view, losses.all_pairs(losses.nt_xent)):
        swept = jax.jit(jax.vmap(lambda t, loss=loss: loss(z, temperature=t)))(temperatures)
        fixed = [jax.jit(functools.partial(loss, temperature=float(t)))(z) for t in temperatures[::2]]
        np.testing.assert_allclose(swept[::2], fixed, rtol=1e-12)
        traced = jax.jit(lambda t, loss=loss: loss(z, temperature=t))
        slope = jax.jit(jax.grad(traced))(0.1)
        np.testing.assert_allclose(slope, (traced(0.1 + 1e-6) - traced(0.1 - 1e-6)) / 2e-6, rtol=1e-7)
