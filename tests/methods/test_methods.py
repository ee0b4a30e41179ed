"""Each method against its definition, written by hand with the same networks."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mvcl import losses, methods, models
from mvcl.models import _layers
from mvcl.models._resnet import SplitBatchNorm
from tests.losses import brute_force

N, K, SHAPE = 6, 4, (5,)
ENCODER = models.MLP(widths=(7,))
HEAD = models.MLPHead(hidden=6, out=3)
BATCH_NORM = models.MLP(widths=(7, 7), norm="batch")
PREDICTOR = models.MLPHead(hidden=4, out=3)


def setting(objective=losses.mv_infonce, shapes=(SHAPE,) * K, **more):
    networks = {"encoder": ENCODER, "head": HEAD, "given": True, "examples": 20, "classes": 3}
    return methods.Specification(objective=objective, shapes=shapes, **{**networks, **more})


@pytest.fixture
def inputs(rng):
    views = tuple(rng.normal(size=(N, *SHAPE)).astype(np.float32) for _ in range(K))
    return {"views": views, "labels": np.arange(N) % 3}


def draw(inputs):
    return inputs["views"]


def loss_of(learner, objective=None):
    """(parameters, statistics, inputs) -> what the learner's loss returns, compiled."""
    of_views = None if objective is None else methods.of_views(objective)
    return jax.jit(lambda p, s, inputs: learner.loss(p, s, methods.Batch(inputs, draw), of_views))


def started(learner):
    """Parameters and statistics, compiled: operation by operation takes ten times as long."""
    return jax.jit(learner.init)(jax.random.key(1))


def moved(tree, rng):
    """Randomly changed parameters."""
    return jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), tree)


def embedded(learner, params, statistics, views):
    @jax.jit
    def embed(params, statistics, views):
        net = learner.merge(params, statistics)
        return jnp.stack([net.head(net.encoder(view)) for view in views])

    return embed(params, statistics, views)


@pytest.mark.parametrize(
    ("name", "queue_keys"),
    [
        ("dsf", "all"),
        ("cross_pairs", "one"),
        pytest.param("cross_pairs", "all", marks=pytest.mark.exhaustive),
        pytest.param("mean_pair", "one", marks=pytest.mark.exhaustive),
    ],
)
def test_moco_v2_is_the_loss_of_queries_keys_and_queue(inputs, rng, name, queue_keys):
    if name == "dsf":
        objective = partial(losses.dsf, in_batch_negatives=False)
    else:
        pair = partial(losses.info_nce, temperature=0.2, in_batch_negatives=False)
        objective = getattr(losses, name)(pair)
    learner = methods.MocoV2(queue=10, queue_keys=queue_keys).build(setting(objective))
    params, statistics = started(learner)
    params = moved(params, rng)
    np.testing.assert_allclose(np.linalg.norm(statistics["queue"], axis=1), 1, rtol=1e-6)
    if name != "cross_pairs":  # means of earlier keys, shorter than 1
        statistics["queue"] = statistics["queue"] * rng.uniform(0.3, 1, size=(10, 1)).astype(np.float32)
    loss, (new, _, _) = loss_of(learner, objective)(params, statistics, inputs)

    queries = embedded(learner, params["network"], statistics["network"], inputs["views"][:2])
    keys = embedded(learner, statistics["momentum"], statistics["momentum_network"], inputs["views"][2:])
    queue = statistics["queue"]
    if name == "dsf":
        z = brute_force.unit(np.concatenate([queries, keys]).astype(np.float64))
        extra = np.asarray(queue, np.float64)
        expected = brute_force.dsf(z, np.ones(z.shape[:2], bool), extra=extra, in_batch_negatives=False)
    else:
        unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
        q, k = unit(np.asarray(queries, np.float64)), unit(np.asarray(keys, np.float64))
        pairs = [(q[a], k[b]) for a in range(2) for b in range(2)]
        if name == "mean_pair":
            pairs = [(unit(q.mean(0)), unit(k.mean(0)))]
        terms = []
        for x, y in pairs:
            own, far = (x * y).sum(1) / 0.2, x @ unit(np.asarray(queue, np.float64)).T / 0.2
            terms.append(np.log(np.exp(own) + np.exp(far).sum(1)) - own)
        expected = np.mean(terms)
    np.testing.assert_allclose(loss, expected, rtol=2e-5)

    k = np.asarray(keys) / np.linalg.norm(keys, axis=-1, keepdims=True)
    of_keys = k.reshape(-1, 3) if queue_keys == "all" else k[0]
    fresh = of_keys if name == "cross_pairs" else k.mean(0)
    np.testing.assert_allclose(new["queue"], np.concatenate([fresh, queue])[:10], rtol=1e-5, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class SplitNorm:
    """An encoder that is BatchNorm over groups of the batch."""

    groups: int

    def build(self, input_shape, *, dtype, rngs):
        batch_norm = partial(SplitBatchNorm, groups=self.groups)
        module = _layers.norm("batch", *input_shape, batch_norm=batch_norm, rngs=rngs)
        module.features = input_shape[0]
        return module


def test_shuffled_keys_meet_other_images_in_batch_norm(inputs, rng):
    """The keys' groups are a random split, and the keys return to the order of the queries."""
    objective = losses.cross_pairs(partial(losses.info_nce, temperature=0.2))
    encoder = SplitNorm(3)
    spec = setting(objective, encoder=encoder, head=models.IdentityHead())
    learner = methods.MocoV2(queue=0, shuffle_keys=True).build(spec)
    loss = loss_of(learner, objective)(*started(learner), inputs)[0]

    def normalised(x):
        groups = x.reshape(3, -1, x.shape[-1])
        return ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, keepdims=True) + 1e-6)).reshape(
            x.shape
        )

    x = np.stack(inputs["views"], axis=1).astype(np.float64)  # (n, k, d)
    queries, keys = x[:, :2].reshape(-1, 5), x[:, 2:].reshape(-1, 5)
    order = np.random.default_rng(0).permutation(len(keys))
    assert len(set(order[:4] // 2) - {0, 1}) > 0  # the first group has other instances than the first two
    shuffled = np.empty_like(keys)
    shuffled[order] = normalised(keys[order])
    q, k = (z.reshape(N, 2, 5).swapaxes(0, 1) for z in (normalised(queries), shuffled))
    np.testing.assert_allclose(loss, jax.jit(objective)(q, k), rtol=1e-4)


def test_moco_v3_contrasts_each_half_with_the_other(inputs, rng):
    objective = losses.cross_pairs(partial(losses.info_nce, temperature=0.2))
    method = methods.MocoV3(predictor=PREDICTOR)
    learner = method.build(setting(objective))
    params, statistics = started(learner)
    params = moved(params, rng)
    loss, _ = loss_of(learner, objective)(params, statistics, inputs)

    z = embedded(learner, params["network"], statistics["network"], inputs["views"])
    predict = learner.predictor.merge(params["predictor"], statistics["predictor"])
    q = jnp.stack([predict(v) for v in z])
    k = embedded(learner, statistics["momentum"], statistics["momentum_network"], inputs["views"])
    info_nce = partial(losses.info_nce, temperature=0.2)
    terms = [info_nce(q[a], k[b]) for a, b in [(0, 2), (0, 3), (1, 2), (1, 3)]]
    back = [info_nce(q[a], k[b]) for a, b in [(2, 0), (2, 1), (3, 0), (3, 1)]]
    np.testing.assert_allclose(loss, np.mean(terms) + np.mean(back), rtol=1e-5)


def test_student_teacher_takes_each_view_from_the_teacher_in_turn(inputs, rng):
    objective = losses.one_vs_rest(losses.byol)
    method = methods.StudentTeacher(predictor=models.IdentityHead())
    learner = method.build(setting(objective))
    params, statistics = started(learner)
    params = moved(params, rng)
    loss, _ = loss_of(learner, objective)(params, statistics, inputs)

    s = np.asarray(embedded(learner, params["network"], statistics["network"], inputs["views"]), np.float64)
    t = embedded(learner, statistics["momentum"], statistics["momentum_network"], inputs["views"])
    s, t = (np.asarray(z) / np.linalg.norm(z, axis=-1, keepdims=True) for z in (s, t))
    expected = 0.0
    for i in range(K):
        z = s.copy()
        z[i] = t[i]
        total = z.sum(0)
        expected += np.mean([2 - 2 * (z[l] * (total - z[l]) / (K - 1)).sum(1).mean() for l in range(K)])
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def by_place(z):
    """An objective that depends on the places of the views."""
    return jnp.sum(jnp.arange(1.0, 1 + len(z)) * jnp.mean(z**2, axis=(1, 2)))


@losses.declare(successive=lambda z: (jnp.sum(jax.vmap(by_place)(z)), {"problems": jnp.float32(len(z))}))
def by_place_of_several(z):
    """The same, of several problems too."""
    return by_place(z)


def test_student_teacher_passes_its_problems_together_to_objectives_that_declare_it(inputs, rng):
    found = []
    for objective in (by_place, by_place_of_several):
        learner = methods.StudentTeacher(predictor=models.IdentityHead()).build(setting(objective))
        params, statistics = started(learner)
        params = moved(params, np.random.default_rng(1))
        found.append(loss_of(learner, objective)(params, statistics, inputs))
    (one_by_one, (_, _, none)), (together, (_, _, measures)) = found
    np.testing.assert_allclose(together, one_by_one, rtol=1e-6)
    assert none == {}
    assert measures == {"problems": K}


def test_m3g_from_the_solution_before_is_that_from_zeros_within_the_tolerance(rng):
    options = {"epsilon": 0.05, "tolerance": 1e-4, "max_iterations": 1000}
    student = rng.normal(size=(1, 8, 5)) + rng.normal(size=(3, 8, 5))
    teacher = student + 0.1 * rng.normal(size=(3, 8, 5))  # each problem has one view of the teacher
    z = np.stack([np.where(np.arange(3)[:, None, None] == i, teacher, student) for i in range(2)])
    z, objective = jnp.asarray(z, jnp.float32), methods.of_views(partial(losses.m3g, **options))
    (value, measures), gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))(z)

    def alone(z, init):
        return losses.m3g_with_status(z, init=init, **options)

    solve = jax.jit(jax.value_and_grad(alone, has_aux=True))
    zeros = tuple(jnp.zeros(z.shape[1:3]))
    ((first, out), slope), ((second, other), other_slope) = (solve(problem, zeros) for problem in z)
    # The value is off by the square of the error of the marginals, the gradient by a multiple of it.
    np.testing.assert_allclose(value, first + second, atol=1e-6)
    np.testing.assert_allclose(gradient, np.stack([slope, other_slope]), atol=1e-4)
    assert np.abs(slope).max() > 0.02
    assert measures["solver_error"] < 1e-4
    assert measures["solver_unconverged"] == 0

    (_, warm), _ = solve(z[1], out.potentials)
    assert warm.n_passes < 0.8 * other.n_passes
    assert measures["solver_sweeps_saved"] == (out.n_passes - warm.n_passes) / 2
    assert measures["solver_iterations"] == out.n_iters


@pytest.mark.parametrize(
    "method",
    [
        methods.MocoV2(queue=0),
        methods.MocoV3(predictor=PREDICTOR),
        methods.StudentTeacher(predictor=PREDICTOR),
    ],
)
def test_no_gradient_of_the_momentum_encoder(inputs, method):
    objective = losses.mv_infonce
    learner = method.build(setting(objective))
    params, statistics = started(learner)

    def loss(slow, params):
        whole = statistics | {"momentum": slow}
        return loss_of(learner, objective)(params, whole, inputs)[0]

    gradient, own = jax.jit(jax.grad(loss, argnums=(0, 1)))(statistics["momentum"], params)
    assert all(not np.any(g) for g in jax.tree.leaves(gradient))
    assert all(np.any(g) for g in jax.tree.leaves(own))


def test_teacher_follows_its_schedule(rng):
    method = methods.StudentTeacher(momentum=0.9, end_momentum=1.0, predictor=PREDICTOR)
    learner = method.build(setting())
    params, statistics = started(learner)
    params = moved(params, rng)
    for progress in (0.0, 0.25, 1.0):
        m = 1.0 - 0.1 * (np.cos(np.pi * progress) + 1) / 2
        new = learner.after(params, statistics, jnp.float32(progress))
        jax.tree.map(
            lambda a, old, target, m=m: np.testing.assert_allclose(a, m * old + (1 - m) * target, rtol=1e-5),
            new["momentum"],
            statistics["momentum"],
            params["network"],
        )


def test_either_network_can_be_evaluated(inputs, rng):
    for which, key in (("online", "network"), ("momentum", "momentum")):
        learner = methods.MocoV2(queue=0, evaluate=which).build(setting())
        params, statistics = started(learner)
        params = moved(params, rng)
        weights = params["network"] if which == "online" else statistics[key]
        net = learner.merge(weights, statistics["network"])
        each = [net.encoder(v) for v in inputs["views"]]
        for views in (K, 2):  # a second data set may have fewer channels: the encoder is the same
            found = learner.features(params, statistics, {"views": inputs["views"][:views]}, "encoder")
            np.testing.assert_allclose(found, np.mean(each[:views], axis=0), rtol=1e-5, atol=1e-6)


def test_multi_encoder_masks_missing_views(rng):
    shapes = ((5,), (3,), (4,))
    objective = losses.mv_infonce
    learner = methods.MultiEncoder().build(setting(objective, shapes))
    params, statistics = started(learner)
    views = tuple(rng.normal(size=(N, *s)).astype(np.float32) for s in shapes)
    present = np.ones((N, 3), bool)
    present[1, 2] = present[4, 0] = False
    hidden = tuple(np.where(present[:, l, None], v, 0) for l, v in enumerate(views))
    other = tuple(np.where(present[:, l, None], v, 7) for l, v in enumerate(views))

    def loss(params, views):
        batch = {"views": views, "present": present}
        return loss_of(learner, objective)(params, statistics, batch)[0]

    step = jax.jit(jax.value_and_grad(loss))
    value, gradient = step(params, hidden)
    again, same = step(params, other)
    np.testing.assert_allclose(value, again, rtol=1e-6)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7), gradient, same)
    nets = learner.network(params, statistics)
    z = jnp.stack([h(e(v)) for h, e, v in zip(nets.head, nets.encoder, hidden)])
    np.testing.assert_allclose(value, jax.jit(losses.mv_infonce)(z, mask=present.T), rtol=1e-6)
    found = learner.features(params, statistics, {"views": other, "present": present}, "encoder")
    assert found.shape == (N, 21)
    assert not np.any(found[1, 14:])
    assert not np.any(found[4, :7])
    assert np.any(found[0])


@pytest.mark.parametrize("method", [methods.Simclr(), methods.MocoV2(queue=0), methods.MultiEncoder()])
def test_heads_of_single_views_side_by_side(inputs, rng, method):
    """(n, k d), zeros for missing views; `views` are the encoder's."""
    learner = method.build(setting())
    params, statistics = started(learner)
    params = moved(params, rng)
    net = learner.network(params, statistics)
    each = [(net.encoder, net.head)] * K if learner.one_encoder else zip(net.encoder, net.head)
    present = rng.random((N, K)) < 0.7
    batch = {"views": inputs["views"], "present": present}
    for (encoder, head), l in zip(each, range(K)):
        encoded = encoder(inputs["views"][l])
        for output, z in (("views", encoded), ("head_views", head(encoded))):
            found = learner.features(params, statistics, batch, output).reshape(N, K, -1)
            expected = np.where(present[:, l, None], z, 0)
            np.testing.assert_allclose(found[:, l], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("classes", [3, 0])
def test_supervised_learns_the_label(inputs, classes):
    learner = methods.Supervised(regression="squared").build(setting(classes=classes))
    labels = inputs["labels"] if classes else np.linspace(-1, 1, N, dtype=np.float32)
    batch = inputs | {"labels": labels}
    params, statistics = started(learner)
    loss, _ = loss_of(learner)(params, statistics, batch)
    found = np.asarray(learner.features(params, statistics, {"views": inputs["views"]}, "head"), np.float64)
    if classes:
        log_p = found - np.log(np.exp(found).sum(1, keepdims=True))
        expected = -log_p[np.arange(N), labels].mean()
    else:
        assert found.shape == (N, 1)
        expected = np.mean((found[:, 0] - labels) ** 2)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        (methods.MocoV2(), {"shapes": (SHAPE,) * 3}, "must be even"),
        (methods.MocoV2(), {"objective": losses.m3g}, "m3g does not take a queue"),
        (methods.MocoV2(queue_keys="two"), {"objective": losses.dsf}, "queue_keys must be all or one"),
        (
            methods.MocoV2(shuffle_keys=True, queue=0),
            {"microbatch": 2},
            "shuffle_keys does not support microb",
        ),
        (methods.MocoV2(momentum=1.5), {"objective": losses.dsf}, r"in \[0, 1\]"),
        (methods.MocoV3(), {"shapes": (SHAPE,) * 3}, "must be even"),
        (methods.MultiEncoder(), {"microbatch": 2}, "microbatch"),
        (methods.MultiEncoder(encoders=(ENCODER,)), {}, "each of the 4 views"),
        (methods.MocoV3(predictor=models.MLPHead(out=4)), {}, r"--method\.predictor\.out 3"),
        (methods.Simclr(), {"shapes": ((5,), (3,))}, "method:multi_encoder"),
        (methods.Simclr(), {"microbatch": 2, "encoder": BATCH_NORM}, "without batch statistics"),
    ],
)
def test_raises_on_incompatible_options(method, change, message):
    with pytest.raises(ValueError, match=message):
        method.build(setting(**change))


def test_raises_on_views_that_an_objective_does_not_take():
    with pytest.raises(ValueError, match="must be even, got 3"):
        methods.check(losses.dsf, 3)
    with pytest.raises(ValueError, match=r"objective:all_pairs objective\.pair:nt_xent"):
        methods.check(losses.nt_xent, 4)
    with pytest.raises(ValueError, match=r"mv_infonce declares no `successive`.* got shape \(2, 3, 4, 5\)"):
        methods.of_views(losses.mv_infonce)(jnp.ones((2, 3, 4, 5)))
