"""Read pickled numpy arrays without running code from the file.

A pickle names functions and calls them. Here each allowed name is replaced by a function of this module, which
collects the parts of an array and builds it from raw bytes, as `np.frombuffer` does; any other name raises an error
before it is looked up. numpy's own unpickling is not used, since a forged dtype could read outside of the array.
"""

import math
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import numpy as np


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

    def array(self, seen: dict[int, Any]) -> np.ndarray:
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


_BUILTINS = {"bytes": _bytes, "bytearray": _bytes, "set": set, "frozenset": frozenset}


class _Unpickler(pickle.Unpickler):
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
        ("collections", "OrderedDict"): OrderedDict,
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
        return _plain(_Unpickler(file, encoding="latin1").load(), {})
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where} cannot be unpickled: {error or type(error).__name__}") from error
    except (IndexError, KeyError, OverflowError, MemoryError, RecursionError, ImportError) as error:
        raise ValueError(f"{where} is not a valid pickle: {type(error).__name__} {error}") from error


def _plain(value: Any, seen: dict[int, Any]) -> Any:
    """The value with all arrays built; shared objects stay shared."""
    if id(value) in seen:
        return seen[id(value)][1]
    if isinstance(value, _Array):
        array = value.array(seen)
        found: Any = array[()] if isinstance(value, _Scalar) else array
    elif isinstance(value, (_Dtype, type(_plain), type)):
        raise pickle.UnpicklingError("it contains a function or a dtype")
    elif isinstance(value, dict):
        found = {}
        seen[id(value)] = (value, found)
        found.update({_plain(key, seen): _plain(item, seen) for key, item in value.items()})
        return found
    elif isinstance(value, list):
        found = []
        seen[id(value)] = (value, found)
        found.extend(_plain(item, seen) for item in value)
        return found
    elif isinstance(value, (tuple, set, frozenset)):
        found = type(value)(_plain(item, seen) for item in value)
    else:
        return value
    seen[id(value)] = (value, found)  # keep the value, or its id could be reused
    return found
