"""Sources, splits and batches, on the host."""

from mvcl.data._digits import Digits, DigitsViews
from mvcl.data._domains import DOMAINS, DomainNet, PrepareDomains
from mvcl.data._eeg import STAGES, Eeg, PrepareEeg
from mvcl.data._images import Arrays, Folder
from mvcl.data._loader import (
    Batch,
    Crop,
    Example,
    Reader,
    Reading,
    StalledReader,
    batches,
    epoch_steps,
    in_order,
    inputs,
    to_devices,
    watched,
)
from mvcl.data._scaling import save_scaling
from mvcl.data._sentiment import PrepareSentiment, Sentiment
from mvcl.data._splits import (
    CorruptExample,
    Draws,
    ExampleSpec,
    Outline,
    Published,
    Source,
    Split,
    class_list,
    expected,
    in_memory,
)
from mvcl.data._synthetic import Synthetic
from mvcl.data._tables import Tables
from mvcl.data._tfds import TRANSFER, PrepareTransfer, Tfds, TransferImages, TransferSet, prepare

SOURCES: dict[str, type[Source]] = {
    "digits": Digits,
    "tfds": Tfds,
    "folder": Folder,
    "arrays": Arrays,
    "tables": Tables,
    "digits_views": DigitsViews,
    "domainnet": DomainNet,
    "eeg": Eeg,
    "sentiment": Sentiment,
    "transfer": TransferImages,
    "synthetic": Synthetic,
}
"""Sources by the names that `data:NAME` chooses."""
PREPARERS: dict[str, type] = {
    "domainnet": PrepareDomains,
    "eeg": PrepareEeg,
    "sentiment": PrepareSentiment,
    "transfer": PrepareTransfer,
}
"""What `mvcl data prepare NAME` runs for data sets that tfds does not prepare."""


def folder_name(source: Source) -> str:
    """A name for folders of results on this source: its name in SOURCES, and the data set's own if it has one."""
    names = {kind: name for name, kind in SOURCES.items()}
    kind = names.get(type(source), type(source).__name__.lower())
    own = vars(source).get("name")
    return f"{kind}_{own}".replace("/", "_") if own else kind


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
    "TransferImages",
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
    "watched",
]
