"""Sources, splits and batches, on the host."""

from typing import TYPE_CHECKING

from mvcl import _lazy

if TYPE_CHECKING:
    from mvcl.data._domains import DOMAINS, DomainNet
    from mvcl.data._eeg import STAGES, Eeg, PrepareEeg
    from mvcl.data._features import DigitsViews
    from mvcl.data._images import Arrays, Folder
    from mvcl.data._loader import (
        Batch,
        Crop,
        Example,
        Reading,
        batches,
        epoch_steps,
        in_order,
        inputs,
        to_devices,
        watched,
    )
    from mvcl.data._memory import HuggingFace, Memory, new_rows, split_of_arrays, split_of_dataset
    from mvcl.data._offline import Digits, Synthetic
    from mvcl.data._sentiment import PrepareSentiment, Sentiment
    from mvcl.data._splits import (
        PREPARERS,
        SOURCES,
        CorruptExample,
        Draws,
        ExampleSpec,
        Outline,
        Source,
        Split,
        by_domain,
        expected,
        in_memory,
    )
    from mvcl.data._tables import Tables
    from mvcl.data._tfds import TRANSFER, PrepareTransfer, Tfds, TransferImages, prepare

__getattr__, __dir__, __all__ = _lazy.exports(__name__)
