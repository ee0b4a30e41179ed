"""Objectives as typed configs, generated from the signatures of the losses: the signature is the schema."""

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import tyro
from jax.typing import ArrayLike

from mvcl import losses


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairObjective:
    """A loss of two views and its options."""

    name: ClassVar[str] = ""
    function: ClassVar[Callable[..., Any]]

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the loss that this config sets."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def loss(self, x: jax.Array, y: jax.Array, **kwargs: Any) -> jax.Array:
        """The loss of (n, d) and (n, d)."""
        return type(self).function(x, y, **self.options(), **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Objective:
    """A loss of k views and its options."""

    scope: Literal["global", "device"] = "global"
    """`global` is the loss of the global batch; `device` the mean over devices of the loss of each one's rows, as
    Piran 2024 trains M3G."""

    name: ClassVar[str] = ""
    function: ClassVar[Callable[..., Any]]

    def options(self) -> dict[str, Any]:
        """The keyword arguments of the loss that this config sets."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "scope"}

    def queue_argument(self) -> str | None:
        """What the loss calls its further negatives; None if it takes none."""
        return _queue_argument(type(self).function)

    def loss(self, z: jax.Array, **kwargs: Any) -> jax.Array:
        """The loss of (k, n, d) embeddings; `axis_name`, `mask` and a queue's name as in `mvcl.losses`."""
        return type(self).function(z, **self.options(), **kwargs)

    def measured(self, z: jax.Array, **kwargs: Any) -> tuple[jax.Array, dict[str, jax.Array]]:
        """The loss, and what the log shows beside it: how a solver ended, where there is one."""
        if self.name not in losses.WITH_STATUS:
            return self.loss(z, **kwargs), {}
        loss, out = losses.WITH_STATUS[self.name](z, **self.options(), **kwargs)
        measures = {
            "solver_error": out.error,
            "solver_iterations": out.n_iters.astype(jnp.float32),
            "solver_unconverged": 1.0 - out.converged.astype(jnp.float32),
        }
        return loss, measures


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfTwoViews(Objective):
    """A pair loss of exactly two views."""

    def loss(self, z: jax.Array, **kwargs: Any) -> jax.Array:
        """The pair loss of the first view and the second."""
        return type(self).function(z[0], z[1], **self.options(), **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfPairs(Objective):
    """A higher-order function of a pair loss."""

    pair: PairObjective

    def queue_argument(self) -> str | None:
        """What the pair loss calls its further negatives; None if it takes none."""
        return _queue_argument(type(self.pair).function)

    def of_views(self, **kwargs: Any) -> Callable[..., jax.Array]:
        """The pair loss, carried over to many views; `weights` of the pairs are given here."""
        options = {name: value for name, value in self.options().items() if name != "pair"}
        # A partial of the loss itself, so that one Gram matrix of all views can serve all pairs.
        return type(self).function(_partial(self.pair), **options, **kwargs)

    def loss(self, z: jax.Array, *, weights: jax.Array | None = None, **kwargs: Any) -> jax.Array:
        """The pair loss of (k, n, d) embeddings; (k, k) weights of the pairs where the function has them."""
        bound = {} if weights is None else {"weights": weights}
        return self.of_views(**bound)(z, **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfGroups(Objective):
    """A loss of two groups of views: the first half of the views, the queries, and the second, the keys."""

    def loss(self, z: jax.Array, **kwargs: Any) -> jax.Array:
        """The loss of the first k/2 views and the last."""
        half = len(z) // 2
        return type(self).function(z[:half], z[half:], **self.options(), **kwargs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfGroupPairs(OfPairs):
    """A higher-order function of a pair loss, from two groups of views."""

    def loss(self, z: jax.Array, *, weights: jax.Array | None = None, **kwargs: Any) -> jax.Array:
        """The loss of the first k/2 views and the last."""
        half = len(z) // 2
        bound = {} if weights is None else {"weights": weights}
        return self.of_views(**bound)(z[:half], z[half:], **kwargs)


def _queue_argument(function: Callable[..., Any]) -> str | None:
    names = inspect.signature(function).parameters
    return next((name for name in ("queue", "extra_negatives") if name in names), None)


def _partial(pair: PairObjective) -> Callable[..., Any]:
    return partial(type(pair).function, **pair.options())


def _fields(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """(name, type, default) of each parameter that a config can hold: plain default, plain type."""
    hints = typing.get_type_hints(function)
    help_ = _argument_help(function)
    fields: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        default, hint = parameter.default, hints.get(name)
        if name in ("mask", "axis_name", "extra_negatives", "weights", "queue"):
            continue  # arrays and mesh axes: the method's business
        kind: Any
        if default is inspect.Parameter.empty:
            continue
        if typing.get_origin(hint) is Literal:
            kind = hint
        elif isinstance(default, bool):
            kind = bool
        elif default is None:
            plain = [t for t in typing.get_args(hint) if t in (int, float, str, bool)]
            if not plain:
                continue
            kind = plain[0] | None
        elif isinstance(default, int) and hint is int:
            kind = int
        elif isinstance(default, (int, float)):
            kind, default = float, float(default)
        else:
            literal = [t for t in typing.get_args(hint) if typing.get_origin(t) is Literal]
            kind = literal[0] if literal else str
        fields.append((name, Annotated[kind, tyro.conf.arg(help=help_.get(name, ""))], default))
    return fields


def _argument_help(function: Callable[..., Any]) -> dict[str, str]:
    """The Args section of a docstring: name -> text."""
    lines = inspect.getdoc(function) or ""
    if "Args:" not in lines:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in lines.split("Args:", 1)[1].splitlines()[1:]:
        if line and not line.startswith(" "):
            break
        head, _, text = line.strip().partition(":")
        if line.startswith("  ") and not line.startswith("   ") and text:
            name = head.strip()
            found[name] = text.strip()
        elif name and line.strip():
            found[name] += " " + line.strip()
    return found


def _generate(
    name: str, function: Callable[..., Any], base: type, fields: list[tuple[str, Any, Any]]
) -> type:
    title = "".join(part.capitalize() for part in name.split("_"))
    summary = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
    namespace = {"name": name, "function": staticmethod(function), "__doc__": summary, "__module__": __name__}
    spec = [(field, kind, dataclasses.field(default=default)) for field, kind, default in fields]
    return dataclasses.make_dataclass(
        title, spec, bases=(base,), namespace=namespace, frozen=True, kw_only=True
    )


PAIR_OBJECTIVES: dict[str, Callable[..., PairObjective]] = {
    name: _generate(f"{name}_pair", function, PairObjective, _fields(function))
    for name, function in losses.PAIR_LOSSES.items()
}
_default_pair = PAIR_OBJECTIVES["nt_xent"]()
_OF_PAIRS = {
    name: _generate(name, function, OfPairs, [*_fields(function), ("pair", PairObjective, _default_pair)])
    for name, function in losses.HIGHER_ORDER.items()
    if "pair_loss" in inspect.signature(function).parameters
}
_OF_TWO = {
    name: _generate(name, function, OfTwoViews, _fields(function))
    for name, function in losses.PAIR_LOSSES.items()
}
_OF_VIEWS = {
    name: _generate(name, function, Objective, _fields(function))
    for name, function in losses.VIEW_LOSSES.items()
}
_OF_GROUPS = {
    name: _generate(name, function, OfGroups, _fields(function))
    for name, function in losses.GROUP_LOSSES.items()
}
_OF_GROUP_PAIRS = {
    name: _generate(
        name, function, OfGroupPairs, [*_fields(function), ("pair", PairObjective, _default_pair)]
    )
    for name, function in losses.GROUP_HIGHER_ORDER.items()
}
OBJECTIVES: dict[str, Callable[..., Objective]] = {
    **_OF_TWO,
    **_OF_PAIRS,
    **_OF_VIEWS,
    **_OF_GROUPS,
    **_OF_GROUP_PAIRS,
}


def check(objective: Objective, k: int) -> None:
    """Raise a `ValueError` if the objective cannot take k views."""
    if isinstance(objective, OfTwoViews) and k != 2:
        raise ValueError(
            f"objective {objective.name} compares exactly 2 views, got views.k = {k}; "
            f"for more use objective:all_pairs objective.pair:{objective.name}"
        )

    if isinstance(objective, (OfGroups, OfGroupPairs)) and k % 2:
        raise ValueError(
            f"objective {objective.name} compares two groups of k/2 views, so that views.k must be even, got {k}"
        )


def chance_level(
    loss: Callable[[jax.Array], jax.Array], k: int, n: int, d: int, seed: ArrayLike = 0
) -> jax.Array:
    """The value of a loss of (k, n, d) for features that carry nothing about the instance.

    Two encoders carry nothing: a constant one, and one whose views are drawn independently of the input. The
    chance level is the lower of their values, so that a loss below it is information. A loss that repels nothing
    (`byol`) is as low for the constant as for perfect features; there the independent one counts alone.
    """
    views = jax.random.normal(jax.random.key(seed), (k, n, d))
    # Behind a barrier, or the compiler takes the products of ones itself, one by one.
    constant = loss(jax.lax.optimization_barrier(jnp.ones((k, n, d))))
    independent = loss(views)
    perfect = loss(jnp.broadcast_to(views[:1], (k, n, d)))
    repels = constant > perfect + 1e-6 * (1 + jnp.abs(perfect))
    return jnp.where(repels, jnp.minimum(constant, independent), independent)
