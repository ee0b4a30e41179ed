"""Read pickled numpy arrays without running code from the file.

A pickle names functions and calls them. Here each allowed name is replaced by a function of this module, which
collects the parts of an array and builds it from raw bytes, as `np.frombuffer` does; any other name raises an error
before it is looked up. numpy's own unpickling is not used, since a forged dtype could read outside of the array; nor is
the C implementation of pickle, which allocates whatever a pickle states.
"""

import io
import math
import pickle
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np

# Values in containers, where one that several share counts each time: what reads them may go through all.
_MOST_VALUES = 50_000_000


class _Dtype:
    """A dtype of numbers, strings or objects."""

    def __init__(self, name: Any, *_: Any) -> None:
        if (
            not isinstance(name, str)
            or name[:1] not in "?bBiufcUSO"
            or not (name[1:].isdigit() or not name[1:])
        ):
            raise pickle.UnpicklingError(f"arrays of dtype {name!r} are not allowed")
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise pickle.UnpicklingError("arrays with fields are not allowed")
        if state[1] not in ("<", ">", "=", "|"):
            raise pickle.UnpicklingError(f"byte order {state[1]!r} is not allowed")
        self.order = state[1]

    def dtype(self) -> np.dtype:
        return np.dtype("O") if self.name[0] == "O" else np.dtype(self.order + self.name)


class _Array:
    """The parts of an array."""

    def __init__(self) -> None:
        self.pieces: tuple[Any, ...] = ((0,), _Dtype("u1"), "C", b"")

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5:
            raise pickle.UnpicklingError("an array's state must have 5 entries")
        _, shape, dtype, fortran, raw = state
        self.pieces = (shape, dtype, "F" if fortran else "C", raw)

    def array(self, seen: "_Seen") -> np.ndarray:
        shape, dtype, order, raw = self.pieces
        sizes = isinstance(shape, tuple) and all(isinstance(n, int) and n >= 0 for n in shape)
        if not sizes or not isinstance(dtype, _Dtype) or order not in ("C", "F"):
            raise pickle.UnpicklingError(f"an array of shape {shape!r} is not allowed")
        kind, count = dtype.dtype(), math.prod(shape)
        if kind.hasobject:
            if not isinstance(raw, list) or len(raw) != count:
                raise pickle.UnpicklingError(f"an array of objects of shape {shape} needs a list of {count}")
            flat = np.empty(count, object)
            for i, value in enumerate(raw):
                flat[i] = _plain(value, seen)
        else:
            if isinstance(raw, str):  # Python 2 pickles store bytes as text
                raw = raw.encode("latin1")
            if not isinstance(raw, (bytes, bytearray)) or len(raw) != count * kind.itemsize:
                raise pickle.UnpicklingError(
                    f"an array of {shape} {kind} needs {count * kind.itemsize} bytes"
                )
            flat = np.frombuffer(raw, kind) if kind.itemsize else np.zeros(count, kind)
        return flat.reshape(shape, order=order)


def _reconstruct(*_: Any) -> _Array:
    return _Array()


def _frombuffer(buffer: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.pieces = (shape, dtype, order, buffer)
    return array


class _Scalar(_Array):
    def __init__(self, dtype: Any, raw: Any) -> None:
        self.pieces = ((), dtype, "C", raw)


def _encode(text: Any, encoding: Any) -> bytes:
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r} is not allowed")
    return text.encode("latin1")


def _bytes(raw: Any = b"", encoding: Any = "latin1") -> bytes:
    if isinstance(raw, str):
        return _encode(raw, encoding)
    if not isinstance(raw, bytes):  # bytes(10**12) would allocate that much memory
        raise pickle.UnpicklingError("bytes() is allowed for bytes and text only")
    return raw


def _ndarray(*_: Any) -> Any:
    raise pickle.UnpicklingError("numpy.ndarray may be named but not called")


def _key(key: Any) -> Any:
    """The key of a dict or the element of a set; not nested, since the time of a hash grows with what it holds."""
    nested = isinstance(key, (tuple, frozenset)) and (
        len(key) > 100 or any(isinstance(item, (tuple, frozenset)) for item in key)
    )
    if nested or (isinstance(key, int) and key.bit_length() > 1000):
        raise pickle.UnpicklingError("keys must be numbers, text or short tuples of them")
    return key


def _set(items: Any = ()) -> set[Any]:
    return {_key(item) for item in items}


def _frozenset(items: Any = ()) -> frozenset[Any]:
    return frozenset(_key(item) for item in items)


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    return OrderedDict((_key(key), value) for key, value in items)


_BUILTINS = {"bytes": _bytes, "bytearray": _bytes, "set": _set, "frozenset": _frozenset}


class _Bounded:
    """A file that refuses to read more bytes than it has left, which Python would allocate first."""

    def __init__(self, file: BinaryIO) -> None:
        start = file.tell()
        self._size = file.seek(0, io.SEEK_END)
        file.seek(start)
        self._file, self.readline = file, file.readline

    def read(self, size: int) -> bytes:
        """The next bytes; raises an EOFError if there are fewer."""
        if not 0 <= size <= self._size - self._file.tell():
            raise EOFError(f"it states {size} bytes, and has fewer")
        return self._file.read(size)


class _Unpickler(pickle._Unpickler):
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    stack: list[Any]
    append: Callable[[Any], None]
    pop_mark: Callable[[], list[Any]]

    def _build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], (_Dtype, _Array)):
            raise pickle.UnpicklingError("only arrays and dtypes have a state")
        self.stack[-1].__setstate__(state)

    def _setitems(self) -> None:
        items = self.pop_mark()
        self.stack[-1].update(zip(map(_key, items[::2]), items[1::2]))

    def _setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.stack[-1].update({_key(key): value})

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append(dict(zip(map(_key, items[::2]), items[1::2])))

    def _additems(self) -> None:
        items = self.pop_mark()
        self.stack[-1].update(map(_key, items))

    def _frozen(self) -> None:
        items = self.pop_mark()
        self.append(_frozenset(items))

    dispatch |= {pickle.BUILD[0]: _build, pickle.SETITEM[0]: _setitem, pickle.SETITEMS[0]: _setitems}
    dispatch |= {pickle.DICT[0]: _dict, pickle.ADDITEMS[0]: _additems, pickle.FROZENSET[0]: _frozen}
    admitted: ClassVar[dict[tuple[str, str], Any]] = {
        **{
            (f"numpy.{core}.{module}", name): function
            for core in ("core", "_core")
            for module, name, function in (
                ("multiarray", "_reconstruct", _reconstruct),
                ("multiarray", "scalar", _Scalar),
                ("numeric", "_frombuffer", _frombuffer),
            )
        },
        ("numpy", "ndarray"): _ndarray,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encode,
        ("collections", "OrderedDict"): _ordered,
        **{
            (module, name): kind for module in ("builtins", "__builtin__") for name, kind in _BUILTINS.items()
        },
    }

    def find_class(self, module: str, name: str) -> Any:
        """The replacement of an allowed name."""
        if (module, name) not in self.admitted:
            raise pickle.UnpicklingError(
                f"it uses {module}.{name}; allowed are numpy arrays, numbers, text, lists, tuples, sets and dicts"
            )
        return self.admitted[module, name]


def load(path: Path) -> Any:
    """The content of a pickle of plain containers and numpy arrays.

    Raises:
      ValueError: the file uses anything else, or is not a complete pickle.
    """
    with open(path, "rb") as file:
        return read(file, str(path))


def read(file: BinaryIO, where: str) -> Any:
    """The content of an open pickle, named `where` in messages, as `load`."""
    try:
        return _plain(_Unpickler(_Bounded(file), encoding="latin1").load(), {})
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} cannot be unpickled: {error or type(error).__name__}") from error
    except (IndexError, KeyError, OverflowError, MemoryError, RecursionError, ImportError) as error:
        raise ValueError(f"{where} is not a valid pickle: {type(error).__name__} {error}") from error


# id of a value -> the value, which is kept since its id could be reused; what was built of it; and how many values it
# holds, None while it is being built.
_Seen = dict[int, tuple[Any, Any, int | None]]


def _plain(value: Any, seen: _Seen) -> Any:
    """The value with all arrays built; shared objects stay shared."""
    if id(value) in seen:
        if seen[id(value)][2] is None:
            raise pickle.UnpicklingError("it has a container in itself")
        return seen[id(value)][1]
    seen[id(value)] = (value, None, None)
    if isinstance(value, _Array):
        array = value.array(seen)
        found: Any = array[()] if isinstance(value, _Scalar) else array
        inside: list[Any] = []
    elif isinstance(value, (_Dtype, type(_plain), type)):
        raise pickle.UnpicklingError("it contains a function or a dtype")
    elif isinstance(value, dict):
        found = {_plain(key, seen): _plain(item, seen) for key, item in value.items()}
        inside = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        found = type(value)([_plain(item, seen) for item in value])
        inside = list(value)
    else:
        seen.pop(id(value))
        return value
    size = 1 + sum(seen[id(item)][2] or 1 if id(item) in seen else 1 for item in inside)
    if size > _MOST_VALUES:
        raise pickle.UnpicklingError(f"containers in containers hold more than {_MOST_VALUES} values")
    seen[id(value)] = (value, found, size)
    return found
