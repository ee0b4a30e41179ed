"""What an objective takes, declared where it is written."""

import dataclasses
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

import jax
from jax.typing import ArrayLike

from mvcl import _checks

__all__ = ["Loss", "Operands", "Takes", "declare", "name", "objectives", "of_views", "on_views", "takes"]
__all__ += ["higher_order", "higher_order_functions", "is_higher_order", "unwrap"]

Loss = Callable[..., jax.Array]
"""An objective: embeddings and options in, a scalar out."""
Measured = tuple[jax.Array, dict[str, jax.Array]]
"""A loss, and scalars for the log."""
Function = TypeVar("Function", bound=Callable[..., Any])


class OfRows(TypedDict, total=False):
    """Keywords that objectives share, see `mvcl.losses`. `declare` puts them into an objective's signature."""

    mask: ArrayLike | None
    axis_name: str | None


class OfUnitRows(OfRows, total=False):
    """Those of objectives that project vectors onto the unit sphere."""

    normalize: bool


class Shared(OfUnitRows, total=False):
    """Those of objectives that compute similarities in blocks of rows."""

    block_size: int | None


class Queued(Shared, total=False):
    """Those of objectives that take further negatives, such as a queue of them."""

    extra_negatives: ArrayLike | None


class Operands(enum.Enum):
    """The arrays that an objective compares."""

    PAIR = "x and y, (n, d) each"
    VIEWS = "z, (k, n, d)"
    GROUPS = "queries and keys, (m, n, d) and (m', n, d)"
    FUSED = "z, (2 (m + 1), n, d): m views, each fused alone, and all together, in two augmentations"
    FACTORED = "z, (8, n, d): x1, x2 and their augmentations by a shared head, then by a unique one"
    MASKED = "z as FUSED, and masked, (2, T, n, d): fusions of masked tokens of either augmentation"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Takes:
    """What an objective takes. An undeclared function of (k, n, d) views takes nothing else: `Takes()`.

    `declare` reads the shared arguments, `key`, `global_views` and the options from the signature.

    Attributes:
      operands: the arrays that are compared.
      views: the one number of views that an objective of views compares; None: any from two on.
      global_views: takes `global_views`, how many views, the first ones, are global (training's `views.global_views`).
      mask, axis_name, block_size, normalize: takes this shared argument, see `mvcl.losses`. Without `axis_name` the
        loss is computed on the embeddings of all devices.
      key: takes `key`, a `jax.random` key; training derives it from seed and step.
      queue: keyword of further negatives, (q, d); None takes none.
      queue_of_means: a row of that queue is the mean of an instance's keys, unit vectors; else one key.
      pair_weights: takes `weights` of the pairs of views, (k, k).
      teacher: takes `teacher`, the number of further views at the end, a teacher's of the student's first views. The
        loss is then the sum over them of that of the pairs of one of them and another view of the student.
      instance_axis: by keyword, the axis of instances, which is split over devices as the embeddings are; arrays
        without that axis are the same on all devices.
      terms: of a pair loss, the form for many pairs of views that shares their similarities; see `_embeddings.Terms`.
      measured: the same objective, of the same operands, as a function that returns (loss, dict of scalars for the
        log).
      successive: the same objective of a (p, k, n, d) stack of p similar problems, as a function that returns (sum of
        the p losses, dict of scalars for the log). It starts each problem from the solution of the one before.
      of_pair: of a higher-order function, fields in which its objective differs from the pair loss.
      options: every parameter that has a default, with it.
    """

    operands: Operands = Operands.VIEWS
    views: int | None = None
    global_views: bool = False
    mask: bool = False
    axis_name: bool = False
    block_size: bool = False
    normalize: bool = False
    key: bool = False
    queue: str | None = None
    queue_of_means: bool = False
    pair_weights: bool = False
    teacher: bool = False
    instance_axis: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)
    terms: Callable[..., Any] | None = None
    measured: Callable[..., Measured] | None = None
    successive: Callable[..., Measured] | None = None
    of_pair: Mapping[str, Any] | None = dataclasses.field(default=None, hash=False)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)

    def axis_of_instances(self, argument: str, value: jax.Array) -> int | None:
        """The axis of an argument that is split over devices as the instances are; None where there is none."""
        axis = self.instance_axis.get(argument)
        return axis if axis is not None and axis < value.ndim else None


_SHARED = ("normalize", "mask", "axis_name", "block_size", "key", "global_views")
_QUEUE = "extra_negatives"


def declare(*, made: Callable[..., Any] | None = None, **properties: Any) -> Callable[[Function], Function]:
    """Decorator that states what an objective takes: fields of `Takes`, beside those that its signature shows.

    A higher-order function returns `functools.partial(made, **its own arguments)`. What `made` wraps is `measured`.
    """

    def record(function: Function) -> Function:
        function = _called(function, properties.get("operands"))
        parameters = inspect.signature(function).parameters
        shown: dict[str, Any] = {name: True for name in _SHARED if name in parameters}
        if _QUEUE in parameters:
            shown["queue"] = _QUEUE
        shown |= properties
        if made is not None:
            shown["measured"] = made.__dict__.get("__wrapped__")
        if shown.get("mask"):
            shown["instance_axis"] = {"mask": 1} | shown.get("instance_axis", {})
        options = {p.name: p.default for p in parameters.values() if p.default is not p.empty}
        function.__dict__["mvcl_takes"] = Takes(**shown, options=options)
        if made is not None:
            made.__dict__.update(mvcl_takes=function.__dict__["mvcl_takes"], mvcl_made_by=function)
        return function

    return record


def _called(function: Function, operands: Operands | None) -> Function:
    """The function with its `**shared: Unpack[...]` written out: in its signature, and, with defaults, in its calls.

    A call checks options that are one of several strings. With one array in place of two, it says how views are
    compared.
    """
    signature, two = inspect.signature(function), operands in (Operands.PAIR, Operands.GROUPS)
    *own, last = signature.parameters.values()
    shared = typing.get_origin(last.annotation) is typing.Unpack
    hints = typing.get_type_hints(*typing.get_args(last.annotation)) if shared else {}
    for option, kind in hints.items():
        default = True if option == "normalize" else None
        own.append(inspect.Parameter(option, last.KEYWORD_ONLY, default=default, annotation=kind))
    own += [] if shared else [last]
    signature = signature.replace(parameters=own)

    @functools.wraps(function)
    def objective(*arguments: Any, **options: Any) -> Any:
        if two and len(arguments) == 1 and own[1].name not in options:
            first, second, named = own[0].name, own[1].name, name(function)
            pairs = operands is Operands.PAIR
            call = f"losses.all_pairs(losses.{named})(z)" if pairs else f"losses.{named}(z[:1], z[1:])"
            raise ValueError(f"{named} compares {first} and {second}; for views z (k, n, d): {call}")
        try:
            given = signature.bind(*arguments, **options)
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        given.apply_defaults()
        _check_choices(signature, given.arguments)
        return function(*given.args, **given.kwargs)

    objective.__dict__["__signature__"] = signature
    objective.__annotations__ = {p.name: p.annotation for p in own} | {"return": signature.return_annotation}
    return typing.cast(Function, objective)


def _check_choices(signature: inspect.Signature, options: Mapping[str, Any]) -> None:
    for parameter in signature.parameters.values():
        if typing.get_origin(parameter.annotation) is typing.Literal:
            _checks.option(parameter.name, options[parameter.name], typing.get_args(parameter.annotation))


def unwrap(objective: Callable[..., Any]) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The function inside nested `functools.partial`s, and the keywords that they bind.

    Raises:
      ValueError: a partial binds positional arguments, which are the embeddings' place.
    """
    options: dict[str, Any] = {}
    while isinstance(objective, functools.partial):
        if objective.args:
            what = f"options of {name(objective.func)} must be bound by keyword"
            raise ValueError(f"{what}, got {objective.args!r} by position")
        options = objective.keywords | options
        objective = objective.func
    return objective, options


def takes(objective: Callable[..., Any]) -> Takes:
    """What an objective takes: as declared, or `Takes()` for a function that declares nothing."""
    function, options = unwrap(objective)
    # Any callable may come, so that the attribute may be absent.
    declared: Takes = getattr(function, "mvcl_takes", Takes())
    if declared.of_pair is None:
        return declared
    pair = takes(options["pair"])
    measured = None if pair.measured is None else declared.measured
    changed = {"terms": None, "measured": measured, "successive": None, **declared.of_pair}
    if declared.of_pair.get("pair_weights"):
        changed["instance_axis"] = {**pair.instance_axis, "weights": 2}
    return dataclasses.replace(pair, **changed)


def name(objective: Callable[..., Any]) -> str:
    """A name for messages: `nt_xent`, `all_pairs(nt_xent)`."""
    function, options = unwrap(objective)
    made_by = higher_order(function)
    if made_by is None:
        return getattr(function, "__name__", type(function).__name__)
    return f"{made_by.__name__}({name(options['pair'])})"


def higher_order(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """The higher-order function that makes objectives of this function; None if there is none."""
    return getattr(function, "mvcl_made_by", None)


def is_higher_order(function: Callable[..., Any]) -> bool:
    """Whether a function turns a pair loss into an objective, as `all_pairs` does."""
    return getattr(function, "mvcl_takes", Takes()).of_pair is not None


def filled(objective: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a declared objective: its defaults, what partials bind, `options`; `TypeError` for others."""
    function, bound = unwrap(objective)
    known, given = takes(function).options, {**bound, **options}
    for option in given:
        if option not in known:
            raise TypeError(f"{name(function)} has no option {option!r}; it has {', '.join(known)}")
    found = {**known, **given}
    _check_choices(inspect.signature(function), found)
    return found


def of_views(objective: Loss, global_views: int | None = None) -> Callable[..., Measured]:
    """The objective as a function of one (k, n, d) array, whatever its operands, that returns (loss, measures).

    The measures are scalars for the log, none where the objective declares no `measured`. A pair loss compares the
    first two views, and its mask is (2, n). Groups are the global views and the others, or the first half of the views
    and the rest where `global_views` is None. Of masked fusions `z` are the first `fused` views, a keyword, half of all
    by default. A `queue` goes by the objective's own name for it; (p, k, n, d) is for objectives with `successive`.
    """
    declared, bound = takes(objective), unwrap(objective)[1]

    def of_array(z: jax.Array, /, *, fused: int | None = None, **options: Any) -> Measured:
        views: tuple[jax.Array, ...] = (z,)
        if declared.operands is Operands.PAIR:
            views = z[0], z[1]
        elif declared.operands is Operands.GROUPS:
            first = len(z) // 2 if global_views is None else global_views
            views = z[:first], z[first:]
        elif declared.operands is Operands.MASKED:
            first = len(z) // 2 if fused is None else fused
            if options.get("mask") is not None:
                options["mask"] = options["mask"][:first]
            views = z[:first], z[first:].reshape(2, -1, *z.shape[1:])
        elif declared.global_views and global_views is not None:
            options = {"global_views": global_views} | options
        if options.get("mask") is not None and not declared.mask:
            what = f"objective {name(objective)} takes no mask, but these examples may lack views"
            raise ValueError(f"{what}; use objective:mv_infonce, for instance, or data without missing views")
        if declared.queue is not None and "queue" in options:
            options[declared.queue] = options.pop("queue")
        several = declared.successive is not None and views[0].ndim == 4
        measured = declared.successive if several else declared.measured
        return (objective(*views, **options), {}) if measured is None else measured(*views, **bound | options)

    return of_array


def on_views(objective: Loss, global_views: int | None = None) -> Loss:
    """The loss of `of_views`."""
    of_array = of_views(objective, global_views)
    return lambda z, **options: of_array(z, **options)[0]


def objectives() -> dict[str, Callable[..., Any]]:
    """The objectives and higher-order functions of `mvcl.losses`, by name: its public functions that declare."""
    from mvcl import losses

    return {name: of for name, of in sorted(vars(losses).items()) if hasattr(of, "mvcl_takes")}


def higher_order_functions() -> dict[str, Callable[..., Any]]:
    """Those of `objectives()` that make an objective of a pair loss."""
    return {name: function for name, function in objectives().items() if is_higher_order(function)}
