"""Sources, splits and batches, on the host."""

from mvcl.data._loader import Batch, batches, given, to_devices
from mvcl.data._sources import (
    SOURCES,
    AnySplit,
    Arrays,
    CorruptExample,
    Digits,
    DomainSplit,
    Folder,
    Outline,
    Source,
    Split,
    Tfds,
    ViewSplit,
    class_list,
    expected,
    outline,
    prepare,
)

__all__ = [
    "SOURCES",
    "AnySplit",
    "Arrays",
    "Batch",
    "CorruptExample",
    "Digits",
    "DomainSplit",
    "Folder",
    "Outline",
    "Source",
    "Split",
    "Tfds",
    "ViewSplit",
    "batches",
    "class_list",
    "expected",
    "given",
    "outline",
    "prepare",
    "to_devices",
]
