"""Student and teacher over k views (Piran 2024, Sections 2.1 and 4)."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from mvcl import losses, models
from mvcl.methods._method import (
    Inputs,
    Learner,
    Measures,
    Microbatches,
    Params,
    Specification,
    Statistics,
    by_view,
    embed,
    missing,
    part_of,
    rows,
)
from mvcl.methods._moco import Predictor
from mvcl.methods._momentum import Followed
from mvcl.methods._objective import OfViews


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudentTeacher:
    """Each view in turn is embedded by the teacher, the other k - 1 by the student; the losses are summed.

        Σ_i L(s(x_1), ..., t(x_i), ..., s(x_k))

    With `views.global_views` only the global views are embedded by the teacher, in turn; the local views always by the
    student.

    The student is encoder, head and predictor; the teacher is the moving average of encoder and head, without
    predictor and without gradient (Piran 2024, Section 2.1). Every view passes each network once.

    An objective that solves a problem, as `m3g` does, and declares `successive` solves the k problems one after the
    other, each from the potentials that the one before ended with; two of them differ in two views. Nothing is kept
    between steps. Measures of the log are the largest of the k problems; `solver_sweeps_saved` is the number of sweeps
    that the later problems took less than the first, which starts from zeros, in all.
    """

    momentum: float = 0.99
    """Decay of the teacher per step, at the start."""
    end_momentum: float = 1.0
    """Decay at the end, reached by a half cosine; Piran 2024 gives the decay at the start only."""
    predictor: models.HeadConfig = dataclasses.field(default_factory=models.piran_head)
    """Predictor after the student's head; must keep the head's length; `none` for no predictor."""
    evaluate: Literal["online", "momentum"] = "online"
    """The encoder that is evaluated and exported: the student's (online) or the teacher's (momentum)."""

    def build(self, spec: Specification) -> Learner:
        """Build the pure functions; given views have one shape."""
        pair = Followed(spec, self, "student_teacher")
        predictor = Predictor(self.predictor, pair.dimension, spec.dtype)
        targeted = len(spec.shapes) if spec.global_views is None else spec.global_views
        in_succession = losses.takes(spec.objective).successive is not None

        def init(key: jax.Array) -> tuple[Params, Statistics]:
            return predictor.init(*pair.init(key), key)

        def loss(
            params: Params,
            statistics: Statistics,
            inputs: Inputs,
            draw: Callable[[Inputs], Any],
            objective: OfViews,
            microbatches: Microbatches | None = None,
        ) -> tuple[jax.Array, tuple[Statistics, jax.Array, Measures]]:
            student, teacher, n = pair.online(params, statistics), pair.momentum(statistics), rows(inputs)
            predict = predictor.module(params, statistics)
            z = by_view(predict(student.head(embed(student.encoder, inputs, draw, microbatches))), n)
            shown = part_of(draw, 0, targeted)
            targets = by_view(teacher.head(embed(teacher.encoder, inputs, shown, microbatches)), n)
            targets = jax.lax.stop_gradient(targets)
            problems = [z.at[i].set(targets[i].astype(z.dtype)) for i in range(targeted)]
            if in_succession:  # each is solved from the solution of the one before
                total, measures = objective(jnp.stack(problems), **missing(inputs))
            else:
                total, measures = _one_by_one(objective, problems, **missing(inputs))
            new = predictor.moved(pair.moved(statistics, student, teacher), predict)
            return total, (new, z, measures)

        def level(objective: OfViews, z: jax.Array) -> jax.Array:
            return targeted * objective(z)[0]

        return pair.learner(init, loss, level)


def _one_by_one(
    objective: OfViews, problems: list[jax.Array], **extra: jax.Array
) -> tuple[jax.Array, Measures]:
    """The sum of the losses, and the largest of the measures, so that any unconverged solver is logged."""
    total, found = jnp.zeros((), jnp.float32), []
    for z in problems:
        value, measures = objective(z, **extra)
        total += value
        found.append(measures)
    return total, jax.tree.map(lambda *values: jnp.max(jnp.stack(values)), *found)
