"""Each view alone and across views, by hand."""

import numpy as np
import pytest

from mvcl import data
from mvcl.evaluation import SingleViews


@pytest.mark.parametrize("single", [False, True])
def test_single_views_by_hand(single):
    labels = np.arange(40) % 2
    empty = (np.zeros((40, 2), np.float32),) * 2
    split = data.in_memory(empty, labels, ("a", "b"), view_names=("first", "second"), given=True)
    sign = np.where(labels == 1, 1.0, -1.0)[:, None]
    tells = sign * np.array([[1.0, 0.5]])
    other = np.ones_like(tells) + 1e-3 * np.random.default_rng(0).normal(size=tells.shape)
    x = np.concatenate([tells, other if single else -tells], axis=1).astype(np.float32)
    protocol = SingleViews(labels_per_class=(1,), draws=1)
    protocol.check({"train": split})
    for names, classes in (((), ("a", "b")), (("first", "second"), ("a",))):
        unknown = data.in_memory(empty, labels, classes, view_names=names, given=True)
        with pytest.raises(ValueError, match="needs classes and views with names"):
            protocol.check({"train": unknown})
    results = protocol.measure({"train": x, "test": x}, {"train": split, "test": split})
    found = {result.name: result.value for result in results}
    assert found["all views k-NN"] == found["all views ACC"] == 1.0
    if single:  # one view tells all, the other nothing
        assert found["one view k-NN"] < 0.95
        assert found["one view ACC"] < 1.0
        assert found["one view 1 labels/class"] < 1.0
    else:  # the second is the negative of the first: each alone tells all, one of the other the opposite
        assert found["one view k-NN"] == found["one view NMI"] == found["one view 1 labels/class"] == 1.0
        assert found["across views k-NN"] == 0.0
