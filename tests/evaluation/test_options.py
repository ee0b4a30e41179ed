"""Invalid options are found before anything is trained; the error names them."""

import pytest

from mvcl.augment import Policy
from mvcl.evaluation import ChannelProbe, Clustering, LinearProbe, MaeProbe


@pytest.mark.parametrize(
    ("made", "options", "message"),
    [
        (LinearProbe, {"learning_rates": ()}, "learning_rates must be positive numbers"),
        (LinearProbe, {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        (LinearProbe, {"momentum": 1.0}, r"momentum must be in \[0, 1\)"),
        (LinearProbe, {"weight_decay": -1.0}, "weight_decay must be at least 0"),
        (LinearProbe, {"crop_padding": -1}, "crop_padding must be at least 0"),
        (LinearProbe, {"policy": Policy(), "crop_padding": 4}, "policy .*crop_padding=0, got True and 4"),
        (LinearProbe, {"decay": "steps"}, "milestones must be epochs of at least 1 for linear.decay=steps"),
        (MaeProbe, {"learning_rates": ()}, r"probe\.learning_rates must be positive numbers, got \(\)"),
        (MaeProbe, {"layers": 0}, r"probe\.layers must be at least 1, got 0"),
        (MaeProbe, {"weight_decay": -1.0}, r"probe\.weight_decay must be at least 0"),
        (ChannelProbe, {"learning_rate": 0.0}, r"probe\.learning_rate must be more than 0, got 0\.0"),
        (ChannelProbe, {"patience": 0}, r"probe\.patience must be at least 1, got 0"),
        (Clustering, {"starts": 0}, "starts must be at least 1, got 0"),
        (Clustering, {"svm_share": 1.0}, r"svm_share must be in \[0, 1\), got 1.0"),
    ],
)
def test_raises_on_invalid_options(made, options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)
