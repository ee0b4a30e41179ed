"""Sources, splits and batches, on the host."""

from mvcl._progress import Track, untracked
from mvcl.data._arrays import Arrays
from mvcl.data._classes import class_list
from mvcl.data._digits_views import DigitsViews
from mvcl.data._domains import DOMAINS, DomainNet, PrepareDomains
from mvcl.data._eeg import STAGES, Eeg, PrepareEeg
from mvcl.data._folder import Folder
from mvcl.data._loader import Batch, Crop, Example, Reader, batches, epoch_steps, in_order, inputs, to_devices
from mvcl.data._reading import Reading, StalledReader, watched
from mvcl.data._registry import PREPARERS, SOURCES, folder_name
from mvcl.data._sentiment import PrepareSentiment, Sentiment
from mvcl.data._splits import (
    CorruptExample,
    Draws,
    ExampleSpec,
    Outline,
    Published,
    Source,
    Split,
    expected,
    in_memory,
)
from mvcl.data._synthetic import Synthetic
from mvcl.data._tables import Tables, save_scaling
from mvcl.data._tfds import Digits, Tfds, prepare
from mvcl.data._transfer import TRANSFER, PrepareTransfer, Transfer, TransferSet

__all__ = [
    "DOMAINS",
    "PREPARERS",
    "SOURCES",
    "STAGES",
    "TRANSFER",
    "Arrays",
    "Batch",
    "CorruptExample",
    "Crop",
    "Digits",
    "DigitsViews",
    "DomainNet",
    "Draws",
    "Eeg",
    "Example",
    "ExampleSpec",
    "Folder",
    "Outline",
    "PrepareDomains",
    "PrepareEeg",
    "PrepareSentiment",
    "PrepareTransfer",
    "Published",
    "Reader",
    "Reading",
    "Sentiment",
    "Source",
    "Split",
    "StalledReader",
    "Synthetic",
    "Tables",
    "Tfds",
    "Track",
    "Transfer",
    "TransferSet",
    "batches",
    "class_list",
    "epoch_steps",
    "expected",
    "folder_name",
    "in_memory",
    "in_order",
    "inputs",
    "prepare",
    "save_scaling",
    "to_devices",
    "untracked",
    "watched",
]
