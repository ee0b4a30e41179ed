"""Steps of a config, without the loop of a run."""

import itertools

import jax
import numpy as np

from mvcl import training
from mvcl.training import _cost, _run


def batches(run, first=0):
    """The batches of a run from a step on, on its devices."""
    return _run.batches(run, first)


def taken(config, count):
    """Values of the first steps by name, and the state after them."""
    run = training.prepare(config)
    state, found = run.program.init(), []
    for batch in itertools.islice(batches(run), count):
        state, values = run.program.step(state, batch)
        found.append(jax.device_get(values))
    return jax.tree.map(lambda *of_steps: np.array(of_steps), *found), jax.device_get(state)


def lowered(config):
    """The step of a config, traced for its devices."""
    run = training.prepare(config)
    batch = _cost.abstract_batch(run.program, run.config, run.outline)
    return run.program.step.lower(run.program.abstract_state, batch)
