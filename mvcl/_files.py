"""Files: written atomically, read with errors that name them."""

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from mvcl import _buckets, _lazy


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path next to `path`; on exit it replaces `path`, after an error it is deleted.

    Readers see the old or the new content, and so does a machine after a power failure. In a bucket the temporary path
    is local, and its content is uploaded whole.
    """
    if _buckets.is_remote(path):
        with tempfile.TemporaryDirectory(prefix="mvcl_") as folder:
            yield Path(folder) / path.name
            with _buckets.named(path):
                path.write_bytes((Path(folder) / path.name).read_bytes())
        return
    temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file atomically, with `replacing`."""
    with replacing(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def append(path: Path, text: str) -> None:
    """Add text to the end of a file; in a bucket the file is written again, whole."""
    if _buckets.is_remote(path):
        write_whole(path, (path.read_text() if path.is_file() else "") + text)
        return
    with open(path, "a") as file:
        file.write(text)


def save_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays as a compressed .npz file atomically."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


@contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Context of reading a file of a kind, such as ".npz file", with a library.

    Any error becomes a one-line `ValueError` that names the file; libraries raise anything for damaged ones.
    """
    try:
        yield
    except _lazy.MissingExtra:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:500]
        if isinstance(error, ValueError) and str(path) in text:
            raise
        raise ValueError(f"{path} is not a readable {kind}: {text or type(error).__name__}") from error


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Context of checking the content of a file: a `ValueError` that does not name the file gets its name."""
    try:
        yield
    except ValueError as error:
        if isinstance(error, _lazy.MissingExtra) or str(path) in str(error):
            raise
        raise ValueError(f"{path}: {error}") from error


def read_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of an .npz file by name; `ValueError` if it is damaged or holds pickled objects."""
    file = _buckets.path(path)
    with reading(path, ".npz file"), file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def read_npy(path: str | os.PathLike[str]) -> np.ndarray:
    """The array of an .npy file, whose values are read when they are used; errors as those of `read_npz`."""
    with reading(path, ".npy file"):
        return np.load(path, mmap_mode="r", allow_pickle=False)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; `ValueError` if there is none."""
    with reading(path, "JSON file"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict):
            raise ValueError(f"it must be a JSON object, got {type(content).__name__}")
        return content
