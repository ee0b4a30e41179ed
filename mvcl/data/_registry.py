"""Sources and preparers by name."""

from collections.abc import Callable

from mvcl import data
from mvcl.data._splits import Source

SOURCES: dict[str, Callable[[], Source]] = {
    "digits": lambda: data.Digits(),
    "tfds": lambda: data.Tfds(),
    "folder": lambda: data.Folder(),
    "arrays": lambda: data.Arrays(),
    "tables": lambda: data.Tables(),
    "digits_views": lambda: data.DigitsViews(),
    "domainnet": lambda: data.DomainNet(),
    "eeg": lambda: data.Eeg(),
    "sentiment": lambda: data.Sentiment(),
    "transfer": lambda: data.TransferImages(),
    "synthetic": lambda: data.Synthetic(),
}
"""Sources by the names that `data:NAME` chooses."""
PREPARERS: dict[str, Callable[[], type]] = {
    "domainnet": lambda: data.PrepareDomains,
    "eeg": lambda: data.PrepareEeg,
    "sentiment": lambda: data.PrepareSentiment,
    "transfer": lambda: data.PrepareTransfer,
}
"""What `mvcl data prepare NAME` runs for data sets that tfds does not prepare."""


def folder_name(source: Source) -> str:
    """A name for folders of results on this source: its name in SOURCES, and the data set's own if it has one."""
    kinds = [name for name, make in SOURCES.items() if type(make()) is type(source)]
    kind = kinds[0] if kinds else type(source).__name__.lower()
    own = vars(source).get("name")
    return f"{kind}_{own}".replace("/", "_") if own else kind
