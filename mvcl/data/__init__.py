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
    ViewSplit,
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
    "ViewSplit",
    "batches",
    "class_list",
    "prepare",
    "to_devices",
]
