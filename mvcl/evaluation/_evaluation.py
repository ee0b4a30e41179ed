"""What protocols of evaluation have in common: splits, results, their table, and the encoding of a split."""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from jax.tree_util import Partial

from mvcl import data, evaluation

Arrays = Mapping[str, np.ndarray]
Splits = Mapping[str, data.Split]
Rows = tuple[np.ndarray, np.ndarray]  # (n, d) features and their (n,) labels or scores
Batches = Iterable[Rows]  # of the steps of a probe
Augmented = Callable[..., Batches]
"""(split, *, probe, batch_size, steps, seed) -> the features and labels of `steps` shuffled batches of a split under
fresh augmentations, those of a `LinearProbe`; a row has another view in every epoch. The last rows of an epoch that do
not fill a batch are not used in it."""
_COLUMNS = 12  # of a table as text, and names of a list


@dataclasses.dataclass(frozen=True)
class Result:
    """One result; `dataclasses.asdict` makes it JSON."""

    name: str
    """Name of the measure; the column of the table."""
    value: float | None
    """Test accuracy in [0, 1]; None if it was not measured, for the reason in `protocol`."""
    deviation: float | None
    """Standard deviation over draws (divisor n - 1); None for a single measurement."""
    protocol: str
    """One line on how it was measured, the same for all rows of a table."""
    each: tuple[float, ...] = ()
    """The values that were averaged, such as one for each of several networks; () where they are not kept."""
    better: str = "higher"
    """Which values are better, for readers: "higher", "lower" or ""."""


def averaged(name: str, values: Sequence[float] | np.ndarray, how: str, better: str = "higher") -> Result:
    """The mean of several values, and their standard deviation."""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Result(name, float(np.mean(values)), deviation, how, better=better)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Base of all protocols."""

    scored: ClassVar[bool] = False
    """Whether `score` may return a number."""
    features: Literal["encoder", "head", "views", "head_views"] = "encoder"
    """Output to evaluate: the encoder's (of given views their mean; of an encoder for each view all side by side), the
    projection head's, or the encoder's (views) or head's (head_views) of each given view, side by side."""
    batch_size: int = 512
    """Examples encoded at once, over all devices."""
    seed: int = 0
    """Seed of draws and held-out parts; separate from train.seed, so that runs are comparable."""
    baselines: bool = True
    """Evaluate an untrained encoder and the raw input too. Runs that differ only in what is trained share them."""

    @property
    def of(self) -> str:
        """The data set whose splits OF/train and OF/test are used; empty: the run's own."""
        return ""

    @property
    def compared(self) -> bool:
        """Whether an untrained encoder and the raw input are evaluated too."""
        return self.baselines

    @property
    def passes(self) -> int:
        """How often the trained encoder encodes its training images: once, and in every epoch of an augmented probe."""
        return 1

    def of_clusters(self, clusters: int) -> "Evaluation":
        """The protocol to use for data without labels; `clusters` is the method's number of clusters, 0 for none."""
        return self

    def without_test(self) -> "Evaluation":
        """The protocol to use where no example is held out of training."""
        return self

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        """The splits whose features `measure` needs; `ValueError` if one is not available."""
        names = tuple(f"{self.of}/{part}" if self.of else part for part in ("train", "test"))
        if not set(names) <= set(available):
            got = ", ".join(available)
            raise ValueError(f"evaluation.of={self.of!r} needs {' and '.join(names)}, got {got}")
        return names

    def check(self, splits: Splits) -> None:
        """Raise `ValueError` for options that are invalid for these splits; called before training."""
        self.splits(tuple(splits))

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        """The results of one set of features, split -> (N, d)."""
        raise NotImplementedError(f"{type(self).__name__} is an interface; choose a protocol by its name")

    def measure_trained(
        self, features: Arrays, splits: Splits, augmented: Augmented, folder: Path | None
    ) -> list[Result]:
        """`measure` of the trained features, with results of fresh augmentations; writes files to `folder`, if any."""
        return self.measure(features, splits)

    def measure_raw(self, features: Arrays, splits: Splits) -> list[Result]:
        """The results of the raw input, given views side by side: split -> (N, numbers of an example)."""
        return self.measure(features, splits)

    def score(self, features: Arrays, splits: Splits) -> tuple[str, float] | None:
        """Name and value of the score during training, higher is better; None if there is none."""
        return None

    def warnings(self, rows: Mapping[str, Sequence[Result]]) -> tuple[str, ...]:
        """What is suspect in the rows of the table, `trained encoder` and, if compared, `raw input`; for the log."""
        return ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unevaluated(Evaluation):
    """No evaluation: a run ends with its last step. `evaluation=None` in a config is the same."""

    baselines: bool = False
    """Nothing is evaluated."""
    reason: str = "evaluation is none"
    """Why, for the table."""

    @property
    def passes(self) -> int:
        return 0

    def splits(self, available: Sequence[str]) -> tuple[str, ...]:
        return ()

    def measure(self, features: Arrays, splits: Splits) -> list[Result]:
        return [Result("accuracy", None, None, f"not measured: {self.reason}")]


def evaluation_table(rows: Mapping[str, Sequence[Result]]) -> str:
    """The table as text, followed by one line on how each measure was measured.

    `rows` are the results by the name of the row, such as "trained encoder". A measure is a column; more than 12
    measures are rows. "-" means not measured. The text has no final newline.
    """
    import pandas as pd  # its import is slow

    every = pd.DataFrame([vars(result) | {"row": row} for row, results in rows.items() for result in results])
    if every.empty:
        return ""
    known = every.dropna(subset="value")
    ends = known["deviation"].astype(object).map(" ± {:.3f}".format, na_action="ignore").fillna("")
    known = known.assign(text=known["value"].map("{:.3f}".format) + ends)
    table = known.pivot(index="row", columns="name", values="text")
    table = table.reindex(index=rows, columns=every["name"].unique())
    shown = table.T if table.shape[1] > _COLUMNS else table
    widths = [len(name) + 1 for name in shown]
    lines = [shown.to_string(col_space=widths, na_rep="-", index_names=False), ""]
    for names, whose, protocol in shared_protocols(every["row"], every["name"], every["protocol"]):
        many = f"{names[0]} to {names[-1]} ({len(names)} measures)"
        lines.append(f"{', '.join(names) if len(names) <= _COLUMNS else many}{whose}: {protocol}.")
    return "\n".join(lines)


def shared_protocols(
    rows: Iterable[str], columns: Iterable[str], protocols: Iterable[str]
) -> list[tuple[list[str], str, str]]:
    """Columns with the same protocol, their rows " (A; B)" where a column has several protocols, and the protocol."""
    import pandas as pd

    found: dict[tuple[str, str], list[str]] = {}
    every = pd.DataFrame({"row": [*rows], "column": [*columns], "protocol": [*protocols]})
    for column, of in every.groupby("column", sort=False):
        for protocol, part in of.groupby("protocol", sort=False):
            whose = f" ({'; '.join(part['row'])})" if of["protocol"].nunique() > 1 else ""
            found.setdefault((whose, protocol), []).append(column)
    return [(names, *key) for key, names in found.items()]


def encode(
    apply: Callable[[jax.Array], jax.Array],
    batches: Iterable[Mapping[str, Any]],
    *,
    batch_size: int,
    rows: int,
    sharding: NamedSharding | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Features of every row of the batches, in the order of the data index.

    Every batch is padded to `batch_size` rows, so one program is compiled. A row that appears twice is kept once. Rows
    in order are in memory once, others twice.

    Args:
      apply: pure function of inputs, arrays (b, ...), to features (b, d). With `jax.tree_util.Partial(function,
        parameters)` other parameters do not compile again.
      batches: mappings with "inputs", a pytree of arrays (b, ...), and "index" (b,), on the host, in any order. Each of
        several processes passes its own rows and the same number of batches, empty ones (b = 0) where it has fewer.
      batch_size: rows of a batch over all processes and devices; b is at most this, divided by the processes.
      rows: of all batches and processes, at most.
      sharding: of the rows of a batch over the devices; None uses one device.

    Returns:
      (n, d) float32 features and the (n,) index of each row, ascending; every process gets all of them.
    """
    names = [] if sharding is None else jax.tree.leaves(tuple(sharding.spec)[:1])
    shards = 1 if sharding is None else math.prod(sharding.mesh.shape[name] for name in names)
    if batch_size < 1 or batch_size % shards:
        raise ValueError(f"batch_size must be a positive multiple of {shards} devices, got {batch_size}")
    most = batch_size if sharding is None else batch_size // jax.process_count()
    function = apply if isinstance(apply, Partial) else Partial(apply)
    features, places, count = None, np.empty(rows, np.int64), 0
    for batch in batches:
        inputs, index = jax.tree.map(np.asarray, batch["inputs"]), np.asarray(batch["index"])
        lengths = {len(x) for x in jax.tree.leaves(inputs)}
        if lengths != {len(index)} or len(index) > most:
            what = f'batches must have as many "inputs" as "index", at most {most} of {batch_size=}'
            raise ValueError(f"{what}, got {', '.join(map(str, sorted(lengths)))} and {len(index)}")
        given = [inputs, index, np.ones(len(index), bool)]
        padded = jax.tree.map(lambda a: np.pad(a, [(0, most - len(a))] + [(0, 0)] * (a.ndim - 1)), given)
        if sharding is not None:
            padded = jax.tree.map(lambda a: jax.make_array_from_process_local_data(sharding, a), padded)
        found = _features(function, padded[0])
        if found.ndim != 2 or found.shape[0] != batch_size:
            raise ValueError(f"apply must map {batch_size} rows to (b, d) features, got {found.shape}")
        found, index, real = (multihost_utils.process_allgather(a, tiled=True) for a in (found, *padded[1:]))
        features = np.empty((rows, found.shape[1]), np.float32) if features is None else features
        first, count = count, count + int(real.sum())
        if count > rows:
            raise ValueError(f"rows must be at least those of the batches, got {rows}")
        features[first:count], places[first:count] = found[real], index[real]
    if features is None:
        raise ValueError("batches must contain at least one batch, got none")
    index, order = np.unique(places[:count], return_index=True)
    return features[:count] if np.array_equal(order, np.arange(count)) else features[order], index


# The function is an argument: the parameters of a Partial are then arguments too, and calls share one cache.
_features = jax.jit(lambda function, inputs: function(inputs))


EVALUATIONS: dict[str, Callable[[], Evaluation]] = {
    "channels": lambda: evaluation.Channels(),
    "classification": lambda: evaluation.Classification(),
    "clustering": lambda: evaluation.Clustering(),
    "domains": lambda: evaluation.Domains(),
    "none": Unevaluated,
    "predictions": lambda: evaluation.Predictions(),
    "regression": lambda: evaluation.Regression(),
    "retrieval": lambda: evaluation.Retrieval(),
}
"""Protocols by the names that `evaluation:NAME` chooses."""
