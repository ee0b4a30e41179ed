"""Sources of examples and their preparation, by name."""

from mvcl.data._arrays import Arrays
from mvcl.data._digits_views import DigitsViews
from mvcl.data._domains import DomainNet, PrepareDomains
from mvcl.data._eeg import Eeg, PrepareEeg
from mvcl.data._folder import Folder
from mvcl.data._sentiment import PrepareSentiment, Sentiment
from mvcl.data._splits import Source
from mvcl.data._synthetic import Synthetic
from mvcl.data._tables import Tables
from mvcl.data._tfds import Digits, Tfds
from mvcl.data._transfer import PrepareTransfer, Transfer

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
    "transfer": Transfer,
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
