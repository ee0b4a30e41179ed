"""Sources, splits and batches, on the host."""

from mvcl.data._loader import Batch, batches, to_devices
from mvcl.data._sources import (
    SOURCES,
    Arrays,
    CorruptExample,
    Digits,
    Folder,
    Source,
    Split,
    Tfds,
    class_list,
    prepare,
)

__all__ = [
    "SOURCES",
    "Arrays",
    "Batch",
    "CorruptExample",
    "Digits",
    "Folder",
    "Source",
    "Split",
    "Tfds",
    "batches",
    "class_list",
    "prepare",
    "to_devices",
]
