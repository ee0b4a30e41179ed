"""Joint and negative-free objectives in each method: which pairs work, and the message of those that do not."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from parametrize import some

from mvcl import losses, methods, models
from mvcl.losses import Operands

N, SHAPE = 6, (5,)
OBJECTIVES = (
    losses.symile,
    losses.gram,
    losses.triangle,
    losses.pmrl,
    losses.vicreg,
    losses.barlow_twins,
    losses.mmcr,
    losses.frossl,
    losses.emp_ssl,
    losses.lejepa,
    losses.visreg,
)
PREDICTOR = models.MLPHead(hidden=4, out=3)
METHODS = {
    "moco_v2": methods.MocoV2(queue=8),
    "moco_v2 without a queue": methods.MocoV2(queue=0),
    "moco_v3": methods.MocoV3(predictor=PREDICTOR),
    "student_teacher": methods.StudentTeacher(predictor=PREDICTOR),
    "multi_encoder": methods.MultiEncoder(),
}
KEY = jax.random.key(7)


def number_of_views(objective):
    takes = losses.takes(objective)
    return takes.views or (2 if takes.operands is Operands.PAIR else 4)


def message(method, objective):
    """Of the ValueError that a method raises for an objective; None if they go together."""
    if method.startswith("moco") and number_of_views(objective) % 2:
        return "must be even, got 3"
    return f"objective {losses.name(objective)} does not take a queue; use --method.queue 0" * (
        method == "moco_v2"
    )


def learner_of(method, objective):
    return METHODS[method].build(
        methods.Specification(
            encoder=models.MLP(widths=(7,)),
            head=models.MLPHead(layers=1, out=3),
            objective=objective,
            shapes=(SHAPE,) * number_of_views(objective),
            given=True,
            examples=20,
            classes=3,
        )
    )


def of_step(objective):
    """The objective as training passes it: with the step's key if it draws."""
    of_views = methods.of_views(objective)
    return partial(of_views, key=KEY) if losses.takes(objective).key else of_views


@pytest.mark.parametrize("objective", some(OBJECTIVES, fast=[losses.symile, losses.lejepa]), ids=losses.name)
@pytest.mark.parametrize("method", METHODS)
def test_methods_and_objectives(method, objective):
    expected = message(method, objective)
    if expected:
        with pytest.raises(ValueError, match=expected):
            learner_of(method, objective)
        return
    learner, k = learner_of(method, objective), number_of_views(objective)

    def step(key):
        params, statistics = learner.init(key)
        inputs = {"views": (jnp.ones((N, *SHAPE)),) * k}
        batch = methods.Batch(inputs, lambda given: given["views"])
        loss = jax.value_and_grad(learner.loss, has_aux=True)
        (value, (after, _, _)), gradient = loss(params, statistics, batch, of_step(objective))
        return value, gradient, after, params, statistics

    value, gradient, after, params, statistics = jax.eval_shape(step, jax.random.key(0))
    assert (value.shape, value.dtype) == ((), jnp.float32)
    assert gradient == params
    assert jax.tree.structure(after) == jax.tree.structure(statistics)
    level = jax.eval_shape(
        lambda: methods.chance_level(lambda z: learner.level(of_step(objective), z), k, N, learner.dimension)
    )
    assert level.shape == ()


@pytest.mark.parametrize("objective", some(OBJECTIVES, fast=[losses.gram, losses.vicreg]), ids=losses.name)
def test_missing_views_reach_the_objectives_that_take_a_mask(objective):
    of_views, k = of_step(objective), number_of_views(objective)
    z, mask = jnp.ones((k, N, 3)), jnp.ones((k, N), bool)
    if losses.takes(objective).mask:
        assert jax.eval_shape(of_views, z, mask=mask)[0].shape == ()
    else:
        with pytest.raises(ValueError, match=f"objective {losses.name(objective)} takes no mask"):
            of_views(z, mask=mask)
