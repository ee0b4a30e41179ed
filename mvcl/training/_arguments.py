"""Configs from the command line: `FIELD:CHOICE` chooses by name, `--FIELD.OPTION` sets one option."""

import dataclasses
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import docstring_parser
import tyro
from tyro.constructors import ConstructorRegistry, StructConstructorSpec, StructFieldSpec, StructTypeInfo

from mvcl import augment, data, evaluation, losses, methods, models, transport
from mvcl._configs import hint
from mvcl.training import _optimizers
from mvcl.training._config import Config
from mvcl.training._serialise import PLAIN, defaults, parts, rebuild, replace_at


def _chosen(named: Callable[..., Any]) -> Any:
    return named(losses.nt_xent) if losses.is_higher_order(named) else named


_OBJECTIVES = losses.objectives()
_COSTS: dict[str, Callable[[], Any]] = {  # whatever else a run does, it imports no transport for this
    **{name: partial(str, name) for name in ("circular_variance", "circular_standard_deviation")},
    "barycenter": lambda: transport.Barycenter(),
    "spherical_barycenter": lambda: transport.SphericalBarycenter(),
}
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
    "method.fusion": {"mlp": models.MLPHead, "none": lambda: None},
    "method.augmentation": {"by_kind": lambda: augment.ByKind(), "none": lambda: None},
    "evaluation": evaluation.EVALUATIONS,
    "evaluation.linear": {"sgd": evaluation.LinearProbe},
    "evaluation.linear.policy": augment.POLICIES,
    "optimizer": _optimizers.OPTIMIZERS,
}
"""The fields of a config whose value is chosen by name, `FIELD:NAME`, with what each name makes."""


def choose(config: Config, path: str, name: str) -> Config:
    """The config with the field at a dotted path set to the named choice; a `ValueError` names the nearest."""
    if path not in CHOICES:
        near = hint(path, {field: f"{field}:{name}" for field in CHOICES})
        what = f"{path}:{name} is not a known field"
        raise ValueError(f"{what}; {near}Fields chosen by name are {', '.join(CHOICES)}")
    table, key = CHOICES[path], name.replace("-", "_")
    if key not in table:
        near = hint(key, {known: f"{path}:{known}" for known in table})
        raise ValueError(f"unknown {path} {name!r}; {near}Known: {', '.join(table)}")
    return replace_at(config, path.split("."), table[key]())


def choose_all(config: Config, arguments: Sequence[str]) -> tuple[Config, list[str]]:
    """Apply the `FIELD:CHOICE` arguments in order; return the config and the other arguments."""
    rest = []
    for before, argument in zip(["", *arguments], arguments):
        field, colon, name = argument.partition(":")
        field = field.replace("-", "_")  # as options are spelt: views.local-policy
        is_value = (before.startswith("--") and field not in CHOICES) or field.endswith(".py")
        if argument.startswith("-") or not colon or is_value:
            rest.append(argument)
        else:
            config = choose(config, field, name)
    return config, rest


def with_config(
    command: Callable[..., Any], config: Any, name: str, arguments: list[str], summary: str = ""
) -> Any:
    """Call a function of a config and of options, with the values that the arguments give to both."""
    config, rest = choose_all(config, arguments)
    listing = "; ".join(f"{field}: {', '.join(table)}" for field, table in CHOICES.items())
    with registry:
        return tyro.cli(
            partial(command, config=config),
            args=rest,
            prog=f"mvcl {name}",
            description=f"{summary} Fields with named choices (FIELD:CHOICE): {listing}.",
            config=(tyro.conf.AvoidSubcommands,),
        )


# What objectives that have one of these arguments mean by it, from the docstring of their package.
_SHARED = dict(re.findall(r"^- `(\w+)`: (.*?)(?=^- |^$)", losses.__doc__ or "", re.MULTILINE | re.DOTALL))
registry = ConstructorRegistry()  # in `with registry: tyro.cli(...)` options are parsed by signatures


@registry.struct_rule
def _of_function(info: StructTypeInfo) -> StructConstructorSpec | None:
    if dataclasses.is_dataclass(info.default) or (part := parts(info.default)) is None:
        return None
    named, found = part
    hints = typing.get_type_hints(named)
    described = docstring_parser.parse(named.__doc__ or "").params
    helps = _SHARED | {parameter.arg_name: text for parameter in described if (text := parameter.description)}
    fields, fixed = [], dict(found)
    for name, default in defaults(named, losses.is_higher_order(named)).items():
        value = found[name]
        kind = Callable[..., Any] if callable(value) else _kind(hints.get(name, type(default)))
        if dataclasses.is_dataclass(value):  # its fields are options, such as the weights of a transport cost
            kind = type(value)
        if kind is not None:
            del fixed[name]
            fields.append(StructFieldSpec(name, kind, value, " ".join(helps.get(name, "").split())))  # type: ignore[arg-type]
    return StructConstructorSpec(lambda **given: rebuild(named, fixed | given), tuple(fields))


def _kind(annotation: Any) -> Any:
    """The type of an option on the command line: names, with numbers if it takes them too; or a number; or None."""
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if union else (annotation,)
    for member in members:
        if typing.get_origin(member) is Literal:
            return member | float if float in members else member
    plain = [member for member in members if member in PLAIN]
    if not plain:
        return None
    kind = float if float in plain else plain[0]
    return kind | None if types.NoneType in members else kind
