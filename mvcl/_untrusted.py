"""Read files that may be damaged or hostile: within limits of memory, and with errors that name the file."""

import json
import math
import os
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from mvcl import _buckets, _extras
from mvcl._progress import Track, untracked

# The content of a file may take this much memory, or RATIO times the size of the file if that is more. Ordinary data
# compress less; a file of zeros compresses a thousandfold, and a header of 100 bytes can state any shape.
FREE_BYTES, RATIO = 256 << 20, 16
_MEMBER_BYTES = 4 << 10  # what an array costs besides its numbers, in memory and in time


class Budget:
    """The memory that the content of one file may take; raises before more is allocated."""

    def __init__(self, path: str | os.PathLike[str], size: int | None = None) -> None:
        """For a file of `size` bytes; by default that of the file at `path`, or of the files in that folder."""
        if size is None:
            found = Path(path)
            files = [file for file in found.iterdir() if file.is_file()] if found.is_dir() else [found]
            size = sum(file.stat().st_size for file in files)
        self._path, self._most = path, max(FREE_BYTES, RATIO * size)
        self._taken = 0

    def take(self, nbytes: int, what: str) -> None:
        """Count `nbytes` for `what`.

        Raises:
          ValueError: with all that was counted before, this is more than the file may take.
        """
        if nbytes < 0:
            raise ValueError(f"{self._path}: {what} has a negative size")
        self._taken += nbytes
        if self._taken > self._most:
            raise ValueError(
                f"{self._path} expands to more than {self._most / 2**20:,.0f} MiB, the most for a file of its size: "
                f"{what} takes {nbytes / 2**20:,.0f} MiB. If this is right, save it without compression"
            )


@contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Context of reading a file with a library: any error becomes a `ValueError` that names the file.

    Args:
      path: the file.
      kind: what it should be, for the message, such as ".npz file".

    Raises:
      ValueError: the file cannot be read; libraries raise anything for damaged files.
    """
    try:
        yield
    except _extras.MissingExtra:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        if isinstance(error, ValueError) and str(path) in text:
            raise
        raise ValueError(f"{path} is not a readable {kind}: {text or type(error).__name__}") from error


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context of checking what a file holds: a `ValueError` that does not name the file gets its name.

    Raises:
      ValueError: as raised inside, with the name.
    """
    try:
        yield
    except _extras.MissingExtra:
        raise
    except ValueError as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def read_npz(
    path: str | os.PathLike[str], number_bytes: int = 1, *, track: Track = untracked
) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name.

    Args:
      path: the file.
      number_bytes: what the caller will use for each number, if that is more than the file does.
      track: goes through the arrays.

    Raises:
      ValueError: the file is damaged, holds pickled objects, or expands to more than a file of its size may.
    """
    with reading(path, ".npz file"):
        file = open(path, "rb")
    with file:
        with reading(path, ".npz file"):
            archive, budget = zipfile.ZipFile(file), Budget(path)
            members = archive.infolist()
            budget.take(_MEMBER_BYTES * len(members), f"a list of {len(members)} arrays")
        arrays = {}
        for member in track(
            members, f"reading {path}", len(members), "arrays"
        ):  # it may raise errors of its own
            with reading(path, ".npz file"):
                name = member.filename.removesuffix(".npy")
                if name != member.filename:
                    arrays[name] = _read_member(archive, member, name, budget, number_bytes)
        return arrays


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str, budget: Budget, number_bytes: int
) -> np.ndarray:
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{name} is compressed by a method that numpy does not use")
    with archive.open(member) as stream:
        _check_header(stream, member.file_size, name, budget, number_bytes)
    with archive.open(member) as stream:
        return _read_array(stream, name)


def read_npy(path: str | os.PathLike[str], number_bytes: int = 1) -> np.ndarray:
    """The array of an .npy file; arguments and errors as those of `read_npz`."""
    with reading(path, ".npy file"), open(path, "rb") as file:
        _check_header(file, os.path.getsize(path), Path(path).stem, Budget(path), number_bytes)
        file.seek(0)
        return _read_array(file, Path(path).stem)


def _read_array(stream: IO[bytes], name: str) -> np.ndarray:
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if array.dtype.kind == "U" and array.size:
        codes = np.frombuffer(array.tobytes(), array.dtype.byteorder.replace("|", "=") + "u4")
        if codes.max() > sys.maxunicode:
            raise ValueError(f"{name} holds text that is not Unicode")
    return array


def _check_header(stream: IO[bytes], size: int, name: str, budget: Budget, number_bytes: int) -> None:
    """Compare what the header of an .npy file states with the `size` bytes of the file, before they are read."""
    budget.take(min(size, 1 << 16), f"the header of {name}")
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"{name} is in version {version[0]}.{version[1]} of the format, not 1.0 or 2.0")
    if dtype.hasobject:
        raise ValueError(f"{name} holds pickled objects, which are not read")
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"{name} has the shape {shape}")
    count, there = math.prod(shape), size - stream.tell()
    if count * dtype.itemsize != there or (count and not dtype.itemsize):
        raise ValueError(f"{name} has {there} bytes for the shape {shape} of {dtype}")
    budget.take(count * max(dtype.itemsize, number_bytes), f"{name} of shape {shape}")


def read_json(path: Path, most: int = 4 << 20) -> Any:
    """The content of a JSON file of at most `most` bytes.

    Raises:
      ValueError: the file is not JSON, is nested too deeply, or is larger.
    """
    with reading(path, "JSON file"), _buckets.at_hand(path) as file:
        if (size := file.stat().st_size) > most:
            raise ValueError(f"it has {size / 2**20:,.0f} MiB, more than {most >> 20}")
        return json.loads(file.read_text(encoding="utf-8"))
