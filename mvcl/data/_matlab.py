"""Variables of MATLAB files, versions 5 to 7.3."""

import math
import os
import struct
import zlib
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from mvcl import _extras, _untrusted

_NUMBER_BYTES = 8  # all numbers become float64
_CELL_BYTES = 4 << 10  # what a cell of version 7.3 costs, in memory and in time; it is a dataset of its own
_DEPTH = 8  # cells within cells
_FILE_SIGNATURES = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}
# Version 5: data types with their bytes, and classes.
_ITEM_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8, 16: 1, 17: 2, 18: 4}
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_CELL, _CHAR, _SPARSE, _NUMBERS = 1, 4, 5, range(6, 16)


def variables(path: Path) -> dict[str, Any]:
    """Variables by name: arrays, texts, and lists of them for cell arrays; a sparse matrix is made dense.

    Structures, objects and functions are left out.

    Raises:
      ValueError: the file is damaged, or expands to more than a file of its size may.
    """
    with _untrusted.reading(path, ".mat file"):
        with open(path, "rb") as file:
            order = _FILE_SIGNATURES.get(file.read(128)[124:])
        return _version_5(path, order) if order else _version_7_3(path)


# Version 5: elements of a tag (type and size) and content, some of them compressed


def _version_5(path: Path, order: str) -> dict[str, Any]:
    import scipy.io

    budget = _untrusted.Budget(path)
    names = _checked_names(path, order, budget)
    loaded = scipy.io.loadmat(str(path), variable_names=names)

    def plain(value: Any) -> Any:
        if hasattr(value, "toarray"):
            return _dense(value)
        if isinstance(value, np.ndarray) and value.dtype == object:
            return [plain(item) for item in value.ravel(order="F")]
        if isinstance(value, np.ndarray) and value.dtype.kind == "U":
            texts = [str(text).strip() for text in value.ravel()]
            return texts[0] if len(texts) == 1 else texts
        return value

    return {name: plain(loaded[name]) for name in names if name in loaded}


def _checked_names(path: Path, order: str, budget: _untrusted.Budget) -> list[str]:
    """Names of the variables to load, whose sizes have been compared with what the file holds.

    scipy allocates what a tag states before it reads it.
    """
    names: dict[str, bool] = {}
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        file.seek(at := 128)
        while at < size:
            kind, length = struct.unpack(order + "II", _exactly(file, 8))
            at += 8 + length
            if at > size:
                raise ValueError(f"a variable of {length} bytes ends after the file")
            if kind not in (_MATRIX, _COMPRESSED):
                raise ValueError(f"a variable is of the unknown type {kind}")
            element = _Element(file, order, length)
            if kind == _COMPRESSED:
                inner = _Inflated(file, length)
                kind, length = struct.unpack(order + "II", _exactly(inner, 8))
                if kind != _MATRIX:
                    raise ValueError(f"a variable is of the unknown type {kind}")
                element = _Element(inner, order, length)
            name, kept = _check_matrix(element, budget, 0)
            if name in names:
                raise ValueError(f"there are two variables {name!r}")
            names[name] = kept and bool(name) and not name.startswith("__")
            file.seek(at)
    return [name for name, kept in names.items() if kept]


def _dense(matrix: Any) -> np.ndarray:
    """A sparse matrix by columns as an array, after a check of all its indices: scipy writes where they point."""
    columns, rows = matrix.indptr.astype(np.int64), matrix.indices
    sound = (
        columns[0] == 0 and (np.diff(columns) >= 0).all() and columns[-1] <= min(len(rows), len(matrix.data))
    )
    if not sound or (len(rows) and not 0 <= rows.min() <= rows.max() < matrix.shape[0]):
        raise ValueError(f"a sparse matrix of shape {matrix.shape} has indices outside of it")
    return matrix.toarray()


class _Readable(Protocol):
    def read(self, n: int, /) -> bytes: ...


class _Inflated:
    """The content of a compressed element, piece by piece."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left, self._packer = file, size, zlib.decompressobj()

    def read(self, n: int, /) -> bytes:
        """At most `n` bytes; fewer only at the end."""
        blocks: list[bytes] = []
        while n > 0 and not self._packer.eof:
            packed = self._packer.unconsumed_tail
            if not packed and self._left:
                packed = self._file.read(min(1 << 16, self._left))
                self._left -= len(packed)
            block = self._packer.decompress(packed, n)
            if not block and not packed:
                break
            blocks.append(block)
            n -= len(block)
        return b"".join(blocks)


class _Element:
    """Reads the parts of a matrix of `left` bytes."""

    def __init__(self, stream: _Readable, order: str, left: int) -> None:
        self.stream, self.order, self.left = stream, order, left

    def read(self, n: int) -> bytes:
        if n > self.left:
            raise ValueError("a part of a variable is longer than the variable")
        self.left -= n
        return _exactly(self.stream, n)

    def skip(self, n: int) -> None:
        while n > 0:
            n -= len(self.read(min(n, 1 << 18)))

    def tag(self) -> tuple[int, int, bytes | None]:
        """Type and bytes of the next part, and its content if that is in the tag, as of parts of at most 4 bytes."""
        raw = self.read(8)
        kind, size = struct.unpack(self.order + "II", raw)
        if not kind >> 16:
            return kind, size, None
        if kind >> 16 > 4:
            raise ValueError(f"a part of a variable has {kind >> 16} bytes in its tag")
        return kind & 0xFFFF, kind >> 16, raw[4:]

    def part(self, expected: int, most: int) -> bytes:
        """The content of the next part, which must be of a type and of at most `most` bytes."""
        kind, size, content = self.tag()
        if kind != expected or size > most:
            raise ValueError(
                f"a part of a variable is of type {kind} with {size} bytes, not of type {expected}"
            )
        return (self.read(size + -size % 8) if content is None else content)[:size]

    def numbers(self) -> tuple[int, int]:
        """Type and bytes of the next part, whose content is skipped."""
        kind, size, content = self.tag()
        if kind not in _ITEM_BYTES:
            raise ValueError(f"numbers are of the unknown type {kind}")
        if content is None:
            self.skip(size)
            self.skip(min(self.left, -size % 8))
        return kind, size


def _exactly(stream: _Readable, n: int) -> bytes:
    content = stream.read(n)
    if len(content) != n:
        raise ValueError("a variable ends early")
    return content


def _check_matrix(element: _Element, budget: _untrusted.Budget, depth: int) -> tuple[str, bool]:
    """Check the sizes in a matrix; its name, and whether it is of a class that is loaded."""
    flags = element.part(_UINT32, 8)
    if len(flags) != 8:
        raise ValueError("a variable has no flags")
    word = struct.unpack(element.order + "II", flags)[0]
    kind, is_complex = word & 0xFF, bool(word >> 11 & 1)
    raw = element.part(_INT32, 4 * 32)
    shape = struct.unpack(f"{element.order}{len(raw) // 4}i", raw[: len(raw) // 4 * 4])
    name = element.part(_INT8, 1 << 12).decode("latin1")
    if min(shape, default=-1) < 0 or len(shape) < 2:
        raise ValueError(f"variable {name!r} has the shape {shape}")
    count, what = math.prod(shape), f"variable {name!r} of shape {shape}"
    if kind == _SPARSE:
        budget.take(_NUMBER_BYTES * count, what)
        for _ in range(3 + is_complex):
            budget.take(element.numbers()[1], what)
    elif kind == _CHAR:
        budget.take(4 * count, what)
        budget.take(element.numbers()[1], what)
    elif kind in _NUMBERS:
        for _ in range(1 + is_complex):
            budget.take(_NUMBER_BYTES * count, what)
            stored, size = element.numbers()
            if size != count * _ITEM_BYTES[stored]:
                raise ValueError(f"{what} has {size} bytes of numbers")
    elif kind == _CELL:
        if depth == _DEPTH:
            raise ValueError(f"cells are nested more than {_DEPTH} deep")
        if 8 * count > element.left:
            raise ValueError(f"{what} has {element.left} bytes for its cells")
        budget.take(128 * count, what)
        for _ in range(count):
            part, size = struct.unpack(element.order + "II", element.read(8))
            if part != _MATRIX or size > element.left:
                raise ValueError(f"a cell is of type {part} with {size} bytes")
            inner = _Element(element.stream, element.order, size)
            if size and not _check_matrix(inner, budget, depth + 1)[1]:
                return name, False
            inner.skip(inner.left)
            element.left -= size
    else:
        return name, False
    return name, True


# Version 7.3: HDF5


def _version_7_3(path: Path) -> dict[str, Any]:
    with _extras.needed("tables", by=f"reading {path}, a MATLAB 7.3 file,"):
        import h5py

    if not h5py.is_hdf5(path):
        raise ValueError("it starts neither as a MATLAB file of version 5 to 7 nor as one of 7.3")
    budget = _untrusted.Budget(path)

    def plain(item: Any, what: str, depth: int) -> Any:
        if isinstance(item, h5py.Group):
            return _sparse(item, what, budget) if "MATLAB_sparse" in item.attrs else None  # else a structure
        if not isinstance(item, h5py.Dataset):
            return None
        kind = _attribute(item, "MATLAB_class")
        if _attribute(item, "MATLAB_empty"):
            return "" if kind == b"char" else np.zeros((0, 0))
        if item.dtype == h5py.ref_dtype:
            if depth == _DEPTH:
                raise ValueError(f"cells are nested more than {_DEPTH} deep")
            budget.take(_CELL_BYTES * (item.size or 0), what)
            found = np.ravel(_content(item, what, budget))
            return [plain(item.file[cell], f"{what}{{{i + 1}}}", depth + 1) for i, cell in enumerate(found)]
        if item.dtype.kind not in "biufc":
            return None
        value = _content(item, what, budget)
        if kind == b"char":
            return "".join(map(chr, np.ravel(value.T, order="F")))
        return np.asarray(value).T  # MATLAB stores columns first

    with h5py.File(path, "r") as file:
        found = {}
        for name in file:
            budget.take(_CELL_BYTES, f"variable {name}")
            if name.startswith("#"):
                continue
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                raise ValueError(f"variable {name} is in another place or file")
            found[name] = plain(file[name], name, 0)
        return found


def _attribute(item: Any, name: str) -> Any:
    """A small attribute of a dataset or group, texts as bytes; None if it is not there."""
    if name not in item.attrs:
        return None
    found = item.attrs.get_id(name)
    if math.prod(found.shape) * found.dtype.itemsize > 1 << 10:
        raise ValueError(f"attribute {name} has the shape {found.shape}")
    value = item.attrs[name]
    return value.encode() if isinstance(value, str) else value


def _sparse(group: Any, what: str, budget: _untrusted.Budget) -> np.ndarray:
    from scipy.sparse import csc_matrix

    shape = (int(_attribute(group, "MATLAB_sparse")), (group["jc"].size or 0) - 1)
    if min(shape) < 0:
        raise ValueError(f"{what} is a sparse matrix of shape {shape}")
    budget.take(_NUMBER_BYTES * math.prod(shape), f"{what} of shape {shape}")
    if "data" not in group:
        return np.zeros(shape)
    parts = tuple(_content(group[part], what, budget) for part in ("data", "ir", "jc"))
    return _dense(csc_matrix(parts, shape=shape))


def _content(item: Any, what: str, budget: _untrusted.Budget) -> np.ndarray:
    """The numbers or references of a dataset, after a check of what they take."""
    with _extras.needed("tables", by="a .mat file of MATLAB 7.3"):
        import h5py

    if item.shape is None:
        return np.zeros((0, 0))
    what = f"{what} of shape {item.shape}"
    budget.take(math.prod(item.shape) * max(item.dtype.itemsize, _NUMBER_BYTES), what)
    if item.external or item.is_virtual:
        raise ValueError(f"{what} is in other files")
    if item.chunks:
        plist = item.id.get_create_plist()
        filters = [plist.get_filter(i)[0] for i in range(plist.get_nfilters())]
        usual = [one for one in filters if one != h5py.h5z.FILTER_FLETCHER32]
        if usual not in ([], [h5py.h5z.FILTER_DEFLATE], [h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_DEFLATE]):
            raise ValueError(f"{what} is compressed by filters other than gzip, {filters}; save it with gzip")
        chunk = math.prod(item.chunks) * item.dtype.itemsize
        budget.take(chunk, f"a chunk of {what}")
        if h5py.h5z.FILTER_DEFLATE in usual:
            item.id.chunk_iter(lambda stored: _check_chunk(item, stored, chunk, what))
    return item[()]


def _check_chunk(item: Any, stored: Any, size: int, what: str) -> None:
    """Raise for a compressed chunk that expands to more than its `size` bytes: the library does not stop there."""
    extra = 1 << 10  # checksums
    if stored.size > size + size // 8 + extra:
        raise ValueError(f"a chunk of {what} has {stored.size} bytes, but holds {size}")
    if stored.size > 1 << 16:  # less cannot expand to more than 64 MiB
        _, raw = item.id.read_direct_chunk(stored.chunk_offset)
        if len(zlib.decompressobj().decompress(raw, size + extra + 1)) > size + extra:
            raise ValueError(f"a chunk of {what} expands to more than its {size} bytes")
