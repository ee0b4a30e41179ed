"""Configs from the command line: `FIELD:CHOICE` chooses by name, `--FIELD.OPTION` sets one option."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from mvcl import _choices, augment, data, evaluation, losses, methods, models, transport
from mvcl.training import _functions, _optimizers
from mvcl.training._config import Config, replace_at


def _chosen(named: Callable[..., Any]) -> Any:
    return named(losses.nt_xent) if losses.is_higher_order(named) else named


_OBJECTIVES = losses.objectives()
_COSTS: dict[str, Callable[[], Any]] = {
    **{name: partial(str, name) for name in get_args(transport.CostName)},
    "barycenter": transport.Barycenter,
    "spherical_barycenter": transport.SphericalBarycenter,
}
# Fields whose value is chosen by name (`_choices.FIELDS`): dotted path -> {name: function that makes the choice}.
CHOICES: dict[str, Mapping[str, Callable[[], Any]]] = {
    "data": data.SOURCES,
    "views.policy": augment.POLICIES,
    "views.local_policy": augment.POLICIES,
    "encoder": models.ENCODERS,
    "head": models.HEADS,
    "objective": {name: partial(_chosen, named) for name, named in _OBJECTIVES.items()},
    "objective.pair": {
        name: partial(_chosen, named)
        for name, named in _OBJECTIVES.items()
        if not losses.is_higher_order(named) and losses.takes(named).operands is losses.Operands.PAIR
    },
    "objective.cost": _COSTS,
    "objective.pair.cost": _COSTS,
    "method": methods.METHODS,
    "method.predictor": models.HEADS,
    "method.fusion": {"mlp": models.MLPHead},
    "evaluation": evaluation.EVALUATIONS,
    "evaluation.linear": {"sgd": evaluation.LinearProbe},
    "optimizer": _optimizers.OPTIMIZERS,
}
"""The fields of a config whose value is chosen by name, `FIELD:NAME`, with what each name makes."""


def choose(config: Config, path: str, name: str) -> Config:
    """The config with the field at a dotted path set to the named choice, with the defaults of that choice.

    Raises:
      ValueError: there is no such field or choice; the message names the nearest.
    """
    table, key = CHOICES.get(path), name.replace("-", "_")
    if table is None:
        raise _choices.unknown_field(path, name)
    if key not in table:
        raise _choices.unknown(path, name, table)
    return replace_at(config, path.split("."), table[key]())


def choose_all(config: Config, arguments: Sequence[str]) -> tuple[Config, list[str]]:
    """Apply the `FIELD:CHOICE` arguments in order; return the config and the other arguments."""
    chosen, rest = _choices.split(arguments)
    for field, name in chosen:
        config = choose(config, field, name)
    return config, rest


registry = ConstructorRegistry()
"""For `with registry: tyro.cli(...)`: options of functions are parsed by their signatures."""


@registry.struct_rule
def _of_function(info: StructTypeInfo) -> StructConstructorSpec | None:
    if not _functions.is_function(info.default):
        return None
    named, given = _functions.parts(info.default)
    fields, fixed = [], dict(given)
    for name, option in _functions.options(named).items():
        value = given.get(name, option.default)
        kind = Callable[..., Any] if _functions.is_function(value) else option.kind
        if dataclasses.is_dataclass(value):  # its fields are options, such as the weights of a transport cost
            kind = type(value)
        if kind is not None:
            fixed.pop(name, None)
            fields.append(StructFieldSpec(name, kind, value, option.help))  # type: ignore[arg-type]
    return StructConstructorSpec(lambda **options: _functions.rebuild(named, fixed | options), tuple(fields))
