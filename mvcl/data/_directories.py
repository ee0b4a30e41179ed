"""Folders of prepared data sets, and a lock for writing them."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def data_root(directory: str | None) -> str:
    """The folder of prepared data sets."""
    return os.path.expanduser(directory or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


@contextmanager
def lock(root: Path, name: str) -> Iterator[None]:
    """Lock: one process prepares, the others wait."""
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{name.replace('/', '_')}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
