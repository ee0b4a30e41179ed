"""Sources, splits and batches, on the host."""

from mvcl import _extras

with _extras.needed("train", by="mvcl.data"):
    import grain  # noqa: F401
    import PIL  # noqa: F401

from mvcl.data._digits_views import DigitsViews
from mvcl.data._domains import DOMAINS, DomainNet, PrepareDomains
from mvcl.data._eeg import STAGES, Eeg, PrepareEeg
from mvcl.data._loader import Batch, batches, given, named, to_devices
from mvcl.data._reading import Reading, StalledReader, watched
from mvcl.data._registry import PREPARERS, SOURCES, Source
from mvcl.data._sentiment import PrepareSentiment, Sentiment
from mvcl.data._sources import (
    AnySplit,
    Arrays,
    CorruptExample,
    Digits,
    DomainSplit,
    Folder,
    Outline,
    Split,
    Tfds,
    ViewSplit,
    class_list,
    expected,
    outline,
    prepare,
)
from mvcl.data._tables import Tables, TableSplit, save_scaling
from mvcl.data._transfer import TRANSFER, PrepareTransfer, Transfer, TransferSet

__all__ = [
    "DOMAINS",
    "PREPARERS",
    "SOURCES",
    "STAGES",
    "TRANSFER",
    "AnySplit",
    "Arrays",
    "Batch",
    "CorruptExample",
    "Digits",
    "DigitsViews",
    "DomainNet",
    "DomainSplit",
    "Eeg",
    "Folder",
    "Outline",
    "PrepareDomains",
    "PrepareEeg",
    "PrepareSentiment",
    "PrepareTransfer",
    "Reading",
    "Sentiment",
    "Source",
    "Split",
    "StalledReader",
    "TableSplit",
    "Tables",
    "Tfds",
    "Transfer",
    "TransferSet",
    "ViewSplit",
    "batches",
    "class_list",
    "expected",
    "given",
    "named",
    "outline",
    "prepare",
    "save_scaling",
    "to_devices",
    "watched",
]
