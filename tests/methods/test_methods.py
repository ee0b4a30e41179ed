"""Each method against its definition, written by hand with the same weights; and which objectives it takes."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from parametrize import some

from mvcl import losses, methods, models
from mvcl.losses import Operands
from mvcl.models import _norms

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


def started(learner, rng=None):
    """Parameters, randomly changed, and statistics; compiled, as operation by operation takes ten times as long."""
    params, statistics = jax.jit(learner.init)(jax.random.key(1))
    if rng is not None:
        params = jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape).astype(np.float32), params)
    return params, statistics


def loss_of(learner, objective=None):
    """(parameters, statistics, inputs) -> what the learner's loss returns, compiled."""
    of_views = None if objective is None else partial(losses.of_views(objective), **learner.objective_options)
    return jax.jit(lambda p, s, inputs: learner.loss(p, s, methods.Batch(inputs, draw), of_views))


def features_of(learner, output):
    return jax.jit(lambda p, s, inputs: learner.features(p, s, inputs, output))


def perceptron(weights, x):
    for index, layer in sorted(weights["linears"].items()):
        x = (jax.nn.relu(x) if index else x) @ layer["kernel"]
        x = x + jnp.broadcast_to(layer["bias"], x.shape)
    return x


def embedded(weights, views):
    """(k, n, 3) embeddings by ENCODER and HEAD."""
    net = nnx.to_pure_dict(weights)
    return perceptron(net["head"], perceptron(net["encoder"], jnp.stack(views)))


def by_place(z):
    """An objective that depends on the places of the views."""
    return sum((place + 1) * (view**2).mean() for place, view in enumerate(z))


@losses.declare(successive=lambda z: (sum(map(by_place, z)), {"problems": jnp.float32(len(z))}))
def by_place_of_several(z):
    """The same, of several problems too."""
    return by_place(z)


def moco_v2(s, t, predict):
    return by_place([*s[:2], *t[2:]])


def moco_v3(s, t, predict):
    q = predict(s)
    return by_place([*q[:2], *t[2:]]) + by_place([*q[2:], *t[:2]])


def student_teacher(s, t, predict):
    q = predict(s)
    return sum(by_place([t[l] if l == i else q[l] for l in range(K)]) for i in range(K))


@pytest.mark.parametrize(
    ("method", "objective", "by_hand"),
    [
        (methods.MocoV2(queue=0), by_place, moco_v2),
        (methods.MocoV3(predictor=PREDICTOR), by_place, moco_v3),
        (methods.StudentTeacher(predictor=PREDICTOR), by_place, student_teacher),
        (methods.StudentTeacher(predictor=PREDICTOR), by_place_of_several, student_teacher),
    ],
)
def test_momentum_methods_by_hand(inputs, rng, method, objective, by_hand):
    """The value; the momentum encoder has no gradient, all parameters have one."""
    learner, of_views = method.build(setting(objective)), losses.of_views(objective)
    params, statistics = started(learner, rng)

    @jax.jit
    @partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
    def step(params, momentum):
        batch = methods.Batch(inputs, draw)
        return learner.loss(params, statistics | {"momentum": momentum}, batch, of_views)

    (value, (_, _, measures)), (own, slow) = step(params, statistics["momentum"])
    s, t = (embedded(w, inputs["views"]) for w in (params["network"], statistics["momentum"]))
    predictor = nnx.to_pure_dict(params["predictor"])
    np.testing.assert_allclose(value, by_hand(s, t, lambda z: perceptron(predictor, z)), rtol=1e-5)
    assert measures == ({} if objective is by_place else {"problems": K})
    assert all(not np.any(g) for g in jax.tree.leaves(slow))
    assert all(np.any(g) for g in jax.tree.leaves(own))


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
    objective = partial(losses.dsf, in_batch_negatives=False)
    if name != "dsf":
        pair = partial(losses.info_nce, temperature=0.2, in_batch_negatives=False)
        objective = getattr(losses, name)(pair)
    learner = methods.MocoV2(queue=10, queue_keys=queue_keys).build(setting(objective))
    params, statistics = started(learner, rng)
    np.testing.assert_allclose(np.linalg.norm(statistics["queue"], axis=1), 1, rtol=1e-6)
    if name != "cross_pairs":  # means of earlier keys, shorter than 1
        statistics["queue"] = statistics["queue"] * rng.uniform(0.3, 1, size=(10, 1)).astype(np.float32)
    loss, (new, _, measures) = loss_of(learner, objective)(params, statistics, inputs)

    queue, queries = statistics["queue"], embedded(params["network"], inputs["views"][:2])
    keys = embedded(statistics["momentum"], inputs["views"][2:])
    of_views = jax.jit(losses.of_views(objective))
    expected = of_views(jnp.float32(np.concatenate([queries, keys])), queue=queue)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-5), (loss, measures), expected)
    k = keys / np.linalg.norm(keys, axis=-1, keepdims=True)
    of_keys = k.reshape(-1, 3) if queue_keys == "all" else k[0]
    fresh = of_keys if name == "cross_pairs" else k.mean(0)
    np.testing.assert_allclose(new["queue"], np.concatenate([fresh, queue])[:10], rtol=1e-5, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class SplitNorm:
    """An encoder that is BatchNorm over groups of the batch."""

    groups: int

    def build(self, input_shape, *, dtype, rngs):
        module = _norms.norm("batch", *input_shape, groups=self.groups, strided=False, rngs=rngs)
        module.features = input_shape[0]
        return module


def test_shuffled_keys_meet_other_images_in_batch_norm(inputs):
    """The keys' groups are a random split, and the keys return to the order of the queries."""
    spec = setting(by_product, encoder=SplitNorm(3), head=models.IdentityHead())
    learner = methods.MocoV2(queue=0, shuffle_keys=True).build(spec)
    loss = loss_of(learner, by_product)(*started(learner), inputs)[0]

    def normalised(x):
        groups = x.reshape(3, -1, 5)
        unit = (groups - groups.mean(1, keepdims=True)) / np.sqrt(groups.var(1, keepdims=True) + 1e-5)
        return unit.reshape(x.shape)

    x = np.stack(inputs["views"], axis=1).astype(np.float64)  # (n, k, d)
    queries, keys = x[:, :2].reshape(-1, 5), x[:, 2:].reshape(-1, 5)
    order = np.random.default_rng(0).permutation(len(keys))
    assert len(set(order[:4] // 2) - {0, 1}) > 0  # the first group has other instances than the first two
    shuffled = np.empty_like(keys)
    shuffled[order] = normalised(keys[order])
    q, k = (z.reshape(N, 2, 5).swapaxes(0, 1) for z in (normalised(queries), shuffled))
    np.testing.assert_allclose(loss, by_product([*q, *k]), rtol=1e-4)


def by_product(z):
    """An objective that depends on which query belongs to which key."""
    return (z[0] * z[2]).mean() + 2 * (z[1] * z[3]).mean()


def test_m3g_from_the_solution_before_is_that_from_zeros_within_the_tolerance(rng):
    options = {"epsilon": 0.05, "threshold": 1e-4, "max_iterations": 1000}
    student = rng.normal(size=(1, 8, 5)) + rng.normal(size=(3, 8, 5))
    teacher = student + 0.1 * rng.normal(size=(3, 8, 5))  # each problem has one view of the teacher
    z = np.stack([np.where(np.arange(3)[:, None, None] == i, teacher, student) for i in range(2)])
    z, objective = jnp.asarray(z, jnp.float32), losses.of_views(partial(losses.m3g, **options))
    (value, measures), gradient = jax.jit(jax.value_and_grad(objective, has_aux=True))(z)

    @jax.jit
    @partial(jax.value_and_grad, has_aux=True)
    def solve(z, init):
        return losses.m3g_with_status(z, init=init, **options)

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


def of_pair(x, y):
    """A pair loss that depends on which view is first."""
    return (x * y).mean() + (x**2).mean()


def of_teacher(s, t):
    """Piran 2024, Section 4: of each teacher's view, its mean over the student's other views."""
    ordered = [(t[i], s[m]) if i < m else (s[m], t[i]) for i, m in itertools.permutations(range(K), 2)]
    return sum(of_pair(*pair) for pair in ordered) / (K - 1)


def of_all(s, t):
    """All pairs of the student's views, of which the teacher replaces one."""
    mixed = [[t[l] if l == i else s[l] for l in range(K)] for i in range(K)]
    pairs = list(itertools.combinations(range(K), 2))
    return sum(sum(of_pair(z[l], z[m]) for l, m in pairs) / len(pairs) for z in mixed)


def of_rest(s, t):
    """Of each teacher's view and the mean of the student's other views, unit vectors."""
    s, t = (z / jnp.linalg.norm(z, axis=-1, keepdims=True) for z in (s, t))
    return sum(of_pair(t[i], sum(s[m] for m in range(K) if m != i) / (K - 1)) for i in range(K))


def of_means(s, t):
    """Of each view of the student and the mean of the teacher's other views, unit vectors."""
    t = t / jnp.linalg.norm(t, axis=-1, keepdims=True)
    others = [sum(t[m] for m in range(K) if m != i) for i in range(K)]
    return sum(of_pair(s[i], z / jnp.linalg.norm(z, axis=-1, keepdims=True)) for i, z in enumerate(others))


@pytest.mark.parametrize(
    ("maker", "options", "by_hand"),
    [
        (losses.all_pairs, {"pairs": "teacher"}, of_teacher),
        (losses.all_pairs, {"pairs": "all"}, of_all),
        (losses.one_vs_rest, {"pairs": "teacher"}, of_rest),
        (losses.all_pairs, {"targets": "mean_of_others"}, of_means),
    ],
)
def test_pairs_of_student_and_teacher(x64, inputs, rng, maker, options, by_hand):
    """Value and gradient; with `teacher`, no pair has two views of the student."""
    objective = maker(of_pair)
    learner = methods.StudentTeacher(predictor=models.IdentityHead(), **options).build(setting(objective))
    params, statistics = started(learner, rng)
    loss = loss_of(learner, objective)

    def by_method(params):
        return loss(params, statistics, inputs)[0]

    def expected(params):
        return by_hand(*(embedded(w, inputs["views"]) for w in (params["network"], statistics["momentum"])))

    found, wanted = (jax.jit(jax.value_and_grad(f))(params) for f in (by_method, expected))
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), found[1], wanted[1])


def test_moco_v3_encodes_each_half_on_its_own(rng):
    """BatchNorm sees one half at a time: other first views do not change what the second ones become."""
    learner = methods.MocoV3(predictor=models.IdentityHead(), momentum=1.0).build(setting(encoder=BATCH_NORM))
    params, statistics = started(learner)
    views = rng.normal(size=(K, N, *SHAPE)).astype(np.float32)
    other = np.concatenate([np.exp(views[:2]), views[2:]])

    @jax.jit
    def shown(views):
        batch = methods.Batch({"views": tuple(views)}, draw)
        return learner.loss(params, statistics, batch, lambda z: ((z**2).mean(), {}))[1][1]

    z, w = shown(views), shown(other)
    np.testing.assert_array_equal(z[2:], w[2:])
    assert np.abs(z[:2] - w[:2]).max() > 1e-3


def test_teacher_follows_its_schedule(rng):
    learner = methods.StudentTeacher(momentum=0.9, end_momentum=1.0, predictor=PREDICTOR).build(setting())
    params, statistics = started(learner, rng)
    for progress in (0.0, 0.25, 1.0):
        m = 1.0 - 0.1 * (np.cos(np.pi * progress) + 1) / 2
        new = learner.after(params, statistics, jnp.float32(progress))
        moved = lambda old, target, m=m: m * old + (1 - m) * target  # noqa: E731
        expected = jax.tree.map(moved, statistics["momentum"], params["network"])
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-5), new["momentum"], expected)


@pytest.mark.parametrize(
    "method",
    [
        methods.Simclr(),
        methods.MocoV2(queue=0, evaluate="online"),
        methods.MocoV2(queue=0, evaluate="momentum"),
        methods.MultiEncoder(),
    ],
)
def test_features_of_the_evaluated_network(inputs, rng, method):
    """Of single views side by side, (n, k d), zeros for missing ones; of one encoder the mean over those present."""
    learner, present = method.build(setting()), rng.random((N, K)) < 0.7
    params, statistics = started(learner, rng)
    momentum = method == methods.MocoV2(queue=0, evaluate="momentum")
    net = nnx.to_pure_dict(statistics["momentum"] if momentum else params.get("network", params))

    def features(output, views):
        given = {"views": inputs["views"][:views], "present": present[:, :views]}
        return features_of(learner, output)(params, statistics, given)

    expected = {"views": [], "head_views": []}
    for l, view in enumerate(inputs["views"]):
        encoder, head = (net[part] if learner.one_encoder else net[part][l] for part in ("encoder", "head"))
        z = perceptron(encoder, view)
        for output, found in (("views", z), ("head_views", perceptron(head, z))):
            expected[output].append(np.where(present[:, l, None], found, 0))
    for output, parts in expected.items():
        np.testing.assert_allclose(features(output, K), np.hstack(parts), rtol=1e-5, atol=1e-6)
    if learner.one_encoder:  # a second data set may have fewer views: the encoder is the same
        mean = np.sum(expected["views"][:2], axis=0) / np.maximum(present[:, :2].sum(1, keepdims=True), 1)
        np.testing.assert_allclose(features("encoder", 2), mean, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("classes", "regression"), [(3, "squared"), (0, "squared"), (0, "absolute")])
def test_supervised_learns_the_label(inputs, classes, regression):
    method = methods.Supervised(regression=regression, label_smoothing=0.1)
    learner = method.build(setting(classes=classes))
    labels = inputs["labels"] if classes else np.linspace(-1, 1, N, dtype=np.float32)
    params, statistics = started(learner)
    loss, _ = loss_of(learner)(params, statistics, inputs | {"labels": labels})
    views = {"views": inputs["views"]}
    found = np.asarray(features_of(learner, "head")(params, statistics, views), np.float64)
    if classes:
        targets = 0.9 * np.eye(3)[labels] + 0.1 / 3
        log_p = found - np.log(np.exp(found).sum(1, keepdims=True))
        expected = -(targets * log_p).sum(1).mean()
    else:
        assert found.shape == (N, 1)
        expected = np.mean(np.abs(found[:, 0] - labels) ** (2 if regression == "squared" else 1))
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


PAIRS = {"objective": losses.all_pairs(losses.info_nce)}
FUSES = methods.MultiEncoder(fusion=HEAD)


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        (
            methods.MocoV2(queue_keys="two"),
            {"objective": losses.dsf},
            "queue_keys must be one of 'all', 'one', got 'two'",
        ),
        (methods.MocoV2(shuffle_keys=True, queue=0), {"microbatch": 2}, "shuffle_keys does not support"),
        (methods.MocoV2(momentum=1.5), {"objective": losses.dsf}, r"in \[0, 1\]"),
        (methods.MultiEncoder(), {"microbatch": 2}, "microbatch"),
        (methods.MultiEncoder(encoders=(ENCODER,)), {}, "each of 4 views"),
        (methods.MocoV3(predictor=models.MLPHead(out=4)), {}, r"--method\.predictor\.out 3"),
        (methods.Simclr(), {"shapes": ((5,), (3,))}, "method:multi_encoder"),
        (methods.Simclr(), {"microbatch": 2, "encoder": BATCH_NORM}, "without batch statistics"),
        (FUSES, PAIRS | {"shapes": (SHAPE,) * 2}, "at least 3, got 2"),
        (FUSES, {}, "needs objective all_pairs, got mv_infonce"),
        (methods.MultiEncoder(fusion=models.MLPHead(out=4)), PAIRS, r"features, got 4; .* --method\.fusion"),
        (methods.MultiEncoder(fusion=HEAD, fusion_weight=1.5), PAIRS, r"must be in \[0, 1\], got 1\.5"),
        (methods.Sem(), {}, "needs objective all_pairs, got mv_infonce"),
        (methods.Sem(), PAIRS | {"microbatch": 4}, r"train\.microbatch must be None"),
        (methods.Sem(update_epochs=0), PAIRS, "method.update_epochs must be at least 1, got 0"),
        (methods.Sem(), PAIRS | {"classes": 1}, "must be at least 2 for data without classes, got 1"),
        (methods.Sem(hidden=()), PAIRS, "method.hidden must be numbers at least 1"),
        (methods.Sem(paper=True, as_released=True), PAIRS, "paper and method.as_released exclude each other"),
    ],
)
def test_raises_on_incompatible_options(method, change, message):
    with pytest.raises(ValueError, match=message):
        method.build(setting(**change))


OF_VIEWS = (Operands.PAIR, Operands.VIEWS)
PLAIN = [f for name, f in losses.objectives().items() if name not in losses.higher_order_functions()]
OBJECTIVES = [f for f in PLAIN if losses.takes(f).operands in OF_VIEWS and not losses.takes(f).queue]
METHODS = {
    "moco_v2": methods.MocoV2(queue=8),
    "moco_v2 without a queue": methods.MocoV2(queue=0),
    "moco_v3": methods.MocoV3(predictor=PREDICTOR),
    "student_teacher": methods.StudentTeacher(predictor=PREDICTOR),
    "multi_encoder": methods.MultiEncoder(),
}


@pytest.mark.parametrize("objective", some(OBJECTIVES, fast=[losses.symile, losses.vicreg]), ids=losses.name)
@pytest.mark.parametrize("method", METHODS)
def test_methods_and_objectives(method, objective):
    takes, of_views = losses.takes(objective), losses.of_views(objective)
    k = takes.views or (2 if takes.operands is Operands.PAIR else 4)
    of_views = partial(of_views, key=jax.random.key(7)) if takes.key else of_views
    spec = setting(objective, (SHAPE,) * k)
    if (method.startswith("moco") and k % 2) or method == "moco_v2":
        with pytest.raises(ValueError, match="must be even, got 3" if k % 2 else "does not take a queue"):
            METHODS[method].build(spec)
        return
    learner = METHODS[method].build(spec)

    def step(key):
        params, statistics = learner.init(key)
        batch = methods.Batch({"views": (jnp.ones((N, *SHAPE)),) * k}, lambda given: given["views"])
        loss = jax.value_and_grad(learner.loss, has_aux=True)
        (value, (after, _, _)), gradient = loss(params, statistics, batch, of_views)
        level = methods.chance_level(lambda z: learner.level(of_views, z), k, N, learner.dimension)
        return value, level, gradient, after, params, statistics

    value, level, gradient, after, params, statistics = jax.eval_shape(step, jax.random.key(0))
    assert (value.shape, value.dtype, level.shape) == ((), jnp.float32, ())
    assert gradient == params
    assert jax.tree.structure(after) == jax.tree.structure(statistics)
