"""Bad input names the argument, what it must be and what came."""

import numpy as np
import pytest

from mvcl import losses

Z = np.ones((3, 4, 2), np.float32)


@pytest.mark.parametrize("name", [n for n in losses.VIEW_LOSSES if n != "m3g"])
def test_views(name):
    loss = losses.VIEW_LOSSES[name]
    with pytest.raises(ValueError, match=r"z must .* k >= 2 .* got \(1, 4, 2\)"):
        loss(Z[:1])
    with pytest.raises(ValueError, match=r"z must .* n >= 2.* got \(3, 1, 2\)"):
        loss(Z[:, :1])
    with pytest.raises(ValueError, match=r"z must have a floating dtype, got int32"):
        loss(Z.astype(np.int32))
    with pytest.raises(ValueError, match=r"z must have shape \(k, n, d\).* got \(4, 2\)"):
        loss(Z[0])
    with pytest.raises(ValueError, match=r"mask must have shape \(3, 4\), got \(4, 3\)"):
        loss(Z, mask=np.ones((4, 3), bool))
    with pytest.raises(ValueError, match=r"mask must be boolean, got float32"):
        loss(Z, mask=np.ones((3, 4), np.float32))
    with pytest.raises(ValueError, match=r"block_size must be None or a whole number >= 1, got 0"):
        loss(Z, block_size=0)
    if "siglip" not in name:
        for bad in (0, -1.0, float("nan")):
            with pytest.raises(ValueError, match=rf"temperature must be positive, got {bad}"):
                loss(Z, temperature=bad)
        with pytest.raises(ValueError, match=r"temperature must be a scalar, got shape \(2,\)"):
            loss(Z, temperature=np.ones(2, np.float32))
        with pytest.raises(ValueError, match=r"extra_negatives must have shape \(q, 2\), got \(5, 3\)"):
            loss(Z, extra_negatives=np.ones((5, 3), np.float32))


@pytest.mark.parametrize("name", list(losses.PAIR_LOSSES))
def test_pairs(name):
    loss = losses.PAIR_LOSSES[name]
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(4, 2\), got \(3, 2\)"):
        loss(Z[0], Z[0, :3])
    with pytest.raises(ValueError, match=r"y must have the dtype of x, float32, got float16"):
        loss(Z[0], Z[0].astype(np.float16))
    with pytest.raises(ValueError, match=r"x must have shape \(n, d\) with n >= 2, got \(1, 2\)"):
        loss(Z[0, :1], Z[0, :1])
    with pytest.raises(ValueError, match=r"mask must have shape \(2, 4\), got \(4,\)"):
        loss(Z[0], Z[1], mask=np.ones(4, bool))


def test_options_are_listed():
    with pytest.raises(ValueError, match=r"negatives must be one of 'cross_view', 'all', got 'none'"):
        losses.mv_infonce(Z, negatives="none")
    with pytest.raises(ValueError, match=r"energy must be one of 'mean', 'sum', got 'max'"):
        losses.mv_cl2(Z, energy="max")
    with pytest.raises(ValueError, match=r"aggregation must be one of 'geometric', 'arithmetic', got 'x'"):
        losses.poly_view(Z, aggregation="x")
    with pytest.raises(ValueError, match=r"pairs must be one of 'unordered', 'ordered', 'all', got 'x'"):
        losses.all_pairs(losses.byol, pairs="x")
    with pytest.raises(ValueError, match=r"weights must have shape \(3, 3\), got \(2, 2\)"):
        losses.all_pairs(losses.byol, np.ones((2, 2)))(Z)
    with pytest.raises(TypeError, match="tempreature"):
        losses.all_pairs(losses.nt_xent)(Z, tempreature=0.1)
