"""Folders of prepared data sets, and a lock for writing them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mvcl import _buckets


def data_root(directory: str | None) -> Path:
    """The folder of prepared data sets, which may be in a bucket."""
    given = directory or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets"
    return _buckets.path(os.path.expanduser(given))


@contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Lock: one process prepares, the others wait."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{name.replace('/', '_')}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
