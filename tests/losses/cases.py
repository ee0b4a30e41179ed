"""The objectives as the tests call them: everything follows from what they declare and from their references."""

import dataclasses
import functools
from collections.abc import Callable

import brute_force
import jax
import numpy as np
import pytest
from jax.sharding import AxisType
from parametrize import some

from mvcl import losses

VIEWS = {losses.Operands.PAIR: 2, losses.Operands.VIEWS: 3, losses.Operands.GROUPS: 4}
VIEWS |= {losses.Operands.FUSED: 6, losses.Operands.MASKED: 12, losses.Operands.FACTORED: 8}
ROWS, WHOLE = jax.P(None, "data"), jax.P()  # of shard_map: instances split over the devices, and not
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

    def draw(self, rng, n=6, d=3, views=None):
        """(k, n, d) normal numbers; only objectives of views take another k than their usual one."""
        several = self.takes.operands is losses.Operands.VIEWS and self.takes.views is None
        usual = self.takes.views or VIEWS[self.takes.operands]
        return rng.normal(size=(views if several and views is not None else usual, n, d))

    def with_holes(self, rng, z):
        """z with NaN for views that are missing, and the mask as an option; z itself where no mask is taken."""
        if not self.takes.mask:
            return z, {}
        mask = some_missing(rng, z.shape[:2])
        if self.takes.operands is losses.Operands.MASKED:  # there where all views together are
            mask[6:] = mask[[2, 2, 2, 5, 5, 5]]
        return np.where(mask[:, :, None], z, np.nan), {"mask": mask}

    def by_hand(self, z, mask=None, **options):
        mask = np.ones(z.shape[:2], bool) if mask is None else mask
        z = np.where(mask[:, :, None], z, 0)
        return self.loops(brute_force.unit(z) if self.takes.normalize else z, mask, **options)


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
REFERRED = [name for name in OBJECTIVES if name in brute_force.REFERENCES]
PLAIN = [case(name) for name in REFERRED]
ALL = PLAIN + [of_pairs(name, "nt_xent") for name in HIGHER_ORDER if name in brute_force.OF_PAIRS]


def every(cases, where=lambda case: True, fast=None):
    """Parametrises a test by the cases that satisfy a condition; `fast` names those that are not only `exhaustive`."""
    chosen = {c.name.partition("(")[0]: c for c in cases if where(c)}
    quick = list(chosen.values()) if fast is None else [chosen[name] for name in fast]
    return pytest.mark.parametrize("case", some(chosen.values(), fast=quick), ids=lambda case: case.name)


def some_missing(rng, shape):
    """A (k, n) mask; the first instance has all views, the last of many none."""
    mask = rng.random(shape) < 0.7
    mask[:, 0] = True
    mask[0, 1], mask[-1, 2] = False, True
    mask[:, 5:] = False
    return mask


def degenerate(z, projected):
    """Zero vectors, vectors that all coincide, views that coincide, a constant feature, a view of zeros.

    Of what is projected, a view so short and one so long that squares leave the range of the numbers.
    """
    constant, one_zero = z.copy(), z.copy()
    constant[:, :, 0], one_zero[0] = 1, 0
    same = [0 * z, np.broadcast_to(z[:1, :1], z.shape), np.broadcast_to(z[:1], z.shape)]
    extreme, limits = z / np.abs(z).max(), np.finfo(z.dtype)
    extreme[0] *= limits.tiny * 100
    extreme[-1] *= limits.max / 2
    return [*same, constant, one_zero, *[extreme] * projected]


def close(found, expected, tolerance=1e-12):
    """Value and gradient."""
    np.testing.assert_allclose(found[0], expected[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found[1], expected[1], rtol=0, atol=tolerance * np.abs(expected[1]).max())


def both(run, **options):
    """Value and gradient, compiled: for one input that takes less time than operation by operation."""
    return jax.jit(jax.value_and_grad(functools.partial(run, **options)))


def together(*functions):
    """All of them as one program, which compiles in less time than one for each."""
    return jax.jit(lambda *arguments: [function(*arguments) for function in functions])


def split(function, *arguments, out=WHOLE, devices=2):
    """On that many devices; of one argument whose instances are split, unless `arguments` says otherwise."""
    specs = arguments or (ROWS,)
    return jax.shard_map(function, mesh=mesh("data", devices=devices), in_specs=specs, out_specs=out)


def agrees_with_differences(run, z, rng, step=1e-6, **tolerance):
    """The gradient, along two random directions."""
    slope = run(z)[1]
    for direction in rng.normal(size=(2, *z.shape)):
        change = (run(z + step * direction)[0] - run(z - step * direction)[0]) / (2 * step)
        np.testing.assert_allclose(np.sum(slope * direction), change, **tolerance)


def mesh(*names, devices=2):
    """A mesh of so many devices along each axis."""
    shape = (devices,) * len(names)
    some = jax.devices()[: devices ** len(names)]
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(shape), devices=some)
