"""Files that appear whole or not at all."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np


@contextmanager
def replacing(path: Path, *, sync: bool = True) -> Iterator[Path]:
    """A path beside `path` to write to; on leaving it replaces `path`, after an error it is removed.

    Args:
      path: the file that a reader sees, before and after whole.
      sync: wait until the bytes are on disk, so that a power cut leaves no empty file.
    """
    beside = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    try:
        yield beside
        if sync:
            with open(beside, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def write_whole(path: Path, content: str | bytes, *, sync: bool = True) -> None:
    """Write a file by `replacing`."""
    with replacing(path, sync=sync) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


def save_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays as a compressed .npz by `replacing`."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_whole(path, buffer.getvalue())
