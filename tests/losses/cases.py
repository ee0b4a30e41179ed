"""The objectives as the tests call them: everything follows from what they declare and from their references."""

import dataclasses
import functools
from collections.abc import Callable

import brute_force
import jax
import numpy as np
import pytest

from mvcl import losses

VIEWS = {losses.Operands.PAIR: 2, losses.Operands.VIEWS: 3, losses.Operands.GROUPS: 4}
HIGHER_ORDER = losses.higher_order_functions()
OBJECTIVES = {name: f for name, f in losses.objectives().items() if name not in HIGHER_ORDER}
PAIRS = [name for name, f in OBJECTIVES.items() if losses.takes(f).operands is losses.Operands.PAIR]


@dataclasses.dataclass(frozen=True)
class Case:
    """An objective with some options.

    Attributes:
      objective: with the options, and a key where it draws.
      loops: its reference with the same options, `loops(z, mask)`.
      reference: of the objective, or of the pair loss that a higher-order function was given.
    """

    name: str
    objective: Callable[..., jax.Array]
    loops: Callable[..., float]
    reference: brute_force.Reference

    @property
    def takes(self):
        return losses.takes(self.objective)

    @property
    def run(self):
        """A function of one (k, n, d) array."""
        return losses.on_views(self.objective)

    def draw(self, rng, n, d, views=None):
        """(k, n, d) normal numbers; only objectives of views take another k than their usual one."""
        several = self.takes.operands is losses.Operands.VIEWS and self.takes.views is None
        usual = self.takes.views or VIEWS[self.takes.operands]
        return rng.normal(size=(views if several and views is not None else usual, n, d))

    def prepared(self, z, mask=None):
        """What the loops take: unit vectors where the objective projects, zeros where nothing is."""
        z = z if mask is None else np.where(mask[:, :, None], z, 0)
        return brute_force.unit(z) if self.takes.normalize else z

    def by_hand(self, z, mask=None, **options):
        mask = np.ones(z.shape[:2], bool) if mask is None else mask
        return self.loops(self.prepared(z, mask), mask, **options)


def case(name, options=None):
    """An objective with a set of options, by default the first of its reference."""
    reference = brute_force.REFERENCES[name]
    options = reference.options[0] if options is None else options
    key = {"key": jax.random.key(0)} if losses.takes(OBJECTIVES[name]).key else {}
    title = f"{name}({', '.join(f'{o}={v!r}' for o, v in options.items())})" if options else name
    objective = functools.partial(OBJECTIVES[name], **options, **key)
    return Case(title, objective, functools.partial(reference.loops, **options, **key), reference)


def of_pairs(function, pair, **options):
    """A higher-order function of a pair loss."""
    of = case(pair)
    loops = functools.partial(brute_force.OF_PAIRS[function], of.loops, **options)
    objective = HIGHER_ORDER[function](of.objective, **options)
    return Case(losses.name(objective), objective, loops, of.reference)


# An objective without a reference fails `test_every_objective_has_a_reference`, not the collection of all tests.
PLAIN = [case(name) for name in OBJECTIVES if name in brute_force.REFERENCES]
EVERY_OPTION = [
    case(name, options)
    for name in OBJECTIVES
    if name in brute_force.REFERENCES
    for options in brute_force.REFERENCES[name].options
]
ALL = PLAIN + [of_pairs(name, "nt_xent") for name in HIGHER_ORDER if name in brute_force.OF_PAIRS]


def every(cases, where=lambda case: True):
    """Parametrises a test by the cases that satisfy a condition."""
    return pytest.mark.parametrize("case", [pytest.param(c, id=c.name) for c in cases if where(c)])


def some_missing(rng, shape):
    """A (k, n) mask; the first instance has all views."""
    mask = rng.random(shape) < 0.7
    mask[:, 0] = True
    mask[0, 1], mask[-1, 2] = False, True
    return mask
