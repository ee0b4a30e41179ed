"""Bad input names the argument, what it must be and what came."""

import cases
import jax
import numpy as np
import pytest
from cases import every

from mvcl import losses

Z = np.ones((4, 4, 2), np.float32)
SHAPES = {
    losses.Operands.PAIR: r"x must have shape \(n, d\)",
    losses.Operands.VIEWS: r"z must have shape \(k, n, d\)",
    losses.Operands.GROUPS: r"queries must have shape \(m, n, d\)",
}


@every(cases.ALL)
def test_shapes_dtypes_and_options(case):
    takes = case.takes

    def run(z, **options):  # only traced: nothing is compiled
        return jax.eval_shape(lambda z: case.run(z, **options), z)

    z = Z[: cases.VIEWS[takes.operands]]
    with pytest.raises(ValueError, match=SHAPES[takes.operands] + r" with .*n >= 2.* got \(.*1, 2\)"):
        run(z[:, :1])
    with pytest.raises(ValueError, match=r" must have a floating dtype, got int32"):
        run(z.astype(np.int32))
    with pytest.raises(ValueError, match=SHAPES[takes.operands]):
        run(z[..., 0])
    with pytest.raises(ValueError, match=r"mask must "):
        run(z, mask=np.ones((4, 3), bool))
    with pytest.raises(TypeError, match="tempreature"):
        run(z, tempreature=0.1)
    if takes.mask:
        with pytest.raises(ValueError, match=rf"mask must have shape \({len(z)}, 4\), got \(4, 3\)"):
            run(z, mask=np.ones((4, 3), bool))
        with pytest.raises(ValueError, match=r"mask must be boolean, got float32"):
            run(z, mask=np.ones(z.shape[:2], np.float32))
    if takes.block_size:
        with pytest.raises(ValueError, match=r"block_size must be None or a whole number >= 1, got 0"):
            run(z, block_size=0)
    if "temperature" in takes.options:
        for bad in (0, -1.0, float("nan")):
            with pytest.raises(ValueError, match=rf"temperature must be positive, got {bad}"):
                run(z, temperature=bad)
        with pytest.raises(ValueError, match=r"temperature must be a scalar, got shape \(2,\)"):
            run(z, temperature=np.ones(2, np.float32))
    if takes.queue:
        with pytest.raises(ValueError, match=rf"{takes.queue} must have shape \(q, 2\), got \(5, 3\)"):
            run(z, **{takes.queue: np.ones((5, 3), np.float32)})


@every(cases.PLAIN, lambda case: case.takes.operands is losses.Operands.VIEWS)
def test_one_view(case):
    with pytest.raises(ValueError, match=r"z must .* k >= 2 .* got \(1, 4, 2\)"):
        case.objective(Z[:1])


@every(cases.PLAIN, lambda case: case.takes.operands is losses.Operands.PAIR)
def test_two_views_that_differ(case):
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(4, 2\), got \(3, 2\)"):
        case.objective(Z[0], Z[0, :3])
    with pytest.raises(ValueError, match=r"y must have the dtype of x, float32, got float16"):
        case.objective(Z[0], Z[0].astype(np.float16))


def test_options_are_listed():
    with pytest.raises(ValueError, match=r"negatives must be one of 'cross_view', 'all', got 'none'"):
        losses.mv_infonce(Z, negatives="none")
    with pytest.raises(ValueError, match=r"energy must be one of 'mean', 'sum', got 'max'"):
        losses.mv_cl2(Z, energy="max")
    listed = "aggregation must be one of 'geometric', 'arithmetic', 'harmonic' or a number, got "
    for wrong in ("x", True, np.inf):
        with pytest.raises(ValueError, match=listed):
            losses.poly_view(Z, aggregation=wrong)
    with pytest.raises(ValueError, match=r"negatives_of must be one of 'other', 'anchor', got 'x'"):
        losses.poly_view(Z, negatives_of="x")
    with pytest.raises(ValueError, match=r"pairs must be one of 'unordered', 'ordered', 'all', got 'x'"):
        losses.all_pairs(losses.byol, pairs="x")
    with pytest.raises(ValueError, match=r"weights must have shape \(4, 4\) or \(4, 4, 4\), got \(2, 2\)"):
        losses.all_pairs(losses.byol, np.ones((2, 2)))(Z)
