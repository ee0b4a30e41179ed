"""The state that a training starts from."""

from pathlib import Path

import jax
import jax.numpy as jnp

from mvcl.training import _program
from mvcl.training._encoding import one_encoder
from mvcl.training._run import Run, open_run


def initial_state(run: Run) -> _program.State:
    """A fresh state, with the encoder of another run where train.initial names one.

    Raises:
      ValueError: train.initial is no run, its encoder is another, or the method cannot start from one.
    """
    program, config = run.program, run.config
    state = program.init()
    if config.train.initial is None:
        return state
    start_from = program.learner.start_from
    if start_from is None:
        raise ValueError(
            f"train.initial needs method simclr or supervised, got {type(config.method).__name__}"
        )
    encoder = one_encoder(*open_run(Path(config.train.initial), reference=config))
    params, statistics = start_from(state["params"], state["statistics"], encoder)
    new = {**state, "params": params, "statistics": statistics}
    new |= {"ema": jax.tree.map(jnp.copy, params)} if "ema" in state else {}
    return jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), new, program.abstract_state())
