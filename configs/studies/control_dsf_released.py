"""Control: what each setting of DSF's released code is worth, one at a time and together.

The released code of Jeon 2025 differs from the paper or from this project's recipe where the paper is silent.
Source: ours; Jeon 2025, Sections 4.2 and 4.4.2, and github.com/Jeon789/DSF.
"""

from collections.abc import Mapping
from typing import Any

import _digits
import _jeon

from mvcl.studies import SEEDS, Study, trained
from mvcl.training import Config

_ABOUT = f"""\
{_jeon.ON_DIGITS} Two queries and two keys, 20 epochs. The rows change one setting of the first:

- one κ for the queue: queued keys have the mean concentration of the batch in place of their own (the paper's 4.2);
- A exact, T = d: the divergence of Eq. 9 with its own A, undivided κ and a temperature of the dimension, 128 (the
  paper's; the released A is R);
- decay of all: biases and norms are decayed too, as PyTorch's optimisers do;
- PyTorch's start: kernels and biases of the head are uniform in ±1/sqrt(inputs);
- all released: the first, third and fourth of these together.

The last two rows change BatchNorm, whose 8 groups are of every eighth view and whose keys are in another order, as
released: one group, and keys in the order of the queries. Nothing is claimed: the paired differences are what each is
worth here."""
_DEFAULT = "default"
_KAPPA = {"objective.queue_concentration": "batch_mean"}
_DECAY, _START = {"optimizer.decays": "all"}, {"head.init": "torch"}
_ROWS: Mapping[str, Mapping[str, Any]] = {
    _DEFAULT: {},
    "one κ for the queue": _KAPPA,
    "A exact, T = d": {
        "objective.mean_resultant": "exact",
        "objective.normalize_concentration": False,
        "objective.temperature": 128.0,
    },
    "decay of all": _DECAY,
    "PyTorch's start": _START,
    "all released": {**_KAPPA, **_DECAY, **_START},
}
_OF_NORM: Mapping[str, Mapping[str, Any]] = {
    "one group": {"encoder.batch_groups": 1},
    "8 groups, keys in order": {"method.shuffle_keys": False},
}


def small(seeds: int = SEEDS) -> Study:
    """Digits, 4 views."""
    base, cost = _jeon.on_digits(_jeon.digits_of(4))["DSF"], "60 minutes on 2 cores, estimated"
    return _study(base, {**_ROWS, **_OF_NORM}, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Random vectors, two groups of 2."""
    base, rows = _jeon.smoke(4)["DSF"], {name: _ROWS[name] for name in (_DEFAULT, "all released")}
    return _study(base, rows, seeds=seeds, cost="under a minute on 2 cores")


def _study(base: Config, rows: Mapping[str, Mapping[str, Any]], **scale: Any) -> Study:
    return Study(
        title="Control: what each setting of DSF's released code is worth",
        about=_ABOUT,
        cells=[trained({"setting": name}, base, changes) for name, changes in rows.items()],
        measures=_digits.ACCURACIES,
        claims=(),
        reference={"setting": _DEFAULT},
        **scale,
    )
