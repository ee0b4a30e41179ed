"""Joint and negative-free objectives in each method: which go together, and the message of those that do not."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
from parametrize import some
from test_methods import PREDICTOR, SHAPE, N, setting

from mvcl import losses, methods
from mvcl.losses import Operands

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
