"""The initial state of a run."""

import jax
import jax.numpy as jnp

from mvcl import _buckets, _progress
from mvcl.training import _program
from mvcl.training._config import Config
from mvcl.training._encode import one_encoder
from mvcl.training._run import Run, open_run


def initial_state(run: Run, reference: Config | None = None) -> _program.State:
    """A new state, with the encoder of the run train.initial if that is set.

    Raises:
      ValueError: train.initial is not a run, its encoder differs, or the method does not support it.
    """
    program, config = run.program, run.config
    with _progress.during("initialising the parameters"):
        state = program.init()
    if config.train.initial is None:
        return state
    encoder = one_encoder(*open_run(_buckets.path(config.train.initial), reference=reference or config))
    params, statistics = program.learner.start_from(state["params"], state["statistics"], encoder)
    new = {**state, "params": params, "statistics": statistics}
    new |= {"ema": jax.tree.map(jnp.copy, params)} if "ema" in state else {}
    return jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), new, program.abstract_state())
