"""Draws docs/pictures/NAME.png: which pairs of vectors each objective pulls together and pushes apart.

    python -m docs.objectives_pictures [NAME ...]

Nothing is drawn by hand. With vectors that are the rows of an identity matrix, or of the root R of another matrix of
inner products, entry b of the loss's gradient at vector a, times the inverse of R, is its derivative by their inner
product: blue where raising <a, b> lowers the loss (pulled), red where it raises it (pushed), white where the pair does
not count. k views of n = 4 instances, view after view.
"""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from mvcl import losses

# Of the rows of an identity matrix these have no such derivative: each column has one entry, which FroSSL divides by
# itself, and a column that is zero in all of a view is divided by VISReg's eps. Symile's products of three vectors are
# no function of the inner products of two.
NOT_DRAWN = (losses.frossl, losses.visreg, losses.symile)
# Of vectors at right angles a volume has no such derivative, and no singular value of an instance is the largest: these
# are drawn where all inner products are so large.
COSINES = {losses.gram: 0.5, losses.pmrl: 0.5}
INSTANCES = 4
VIEWS = {losses.Operands.PAIR: 2, losses.Operands.VIEWS: 3, losses.Operands.GROUPS: 4}
VIEWS |= {losses.Operands.FUSED: 6, losses.Operands.MASKED: 8, losses.Operands.FACTORED: 8}
FOLDER = Path(__file__).parent / "pictures"


def pairwise_gradient(loss: Callable[..., jax.Array], views: int, cosine: float = 0.0) -> np.ndarray:
    """(k n, k n): the derivative by each inner product, up to the factor of its symmetry."""
    count = views * INSTANCES
    vectors = np.linalg.cholesky((1 - cosine) * np.eye(count) + cosine)
    takes = losses.takes(loss)
    options = ({"normalize": False} if takes.normalize else {}) | (
        {"key": jax.random.key(0)} if takes.key else {}
    )
    of_views = losses.on_views(loss)
    views_of = jnp.asarray(vectors, jnp.float32).reshape(views, INSTANCES, count)
    gradient = jax.jit(jax.grad(lambda z: of_views(z, **options)))(views_of)
    slope = np.array(gradient).reshape(count, count) @ np.linalg.inv(vectors)
    np.fill_diagonal(slope, 0)  # lengths, not pairs
    return slope


def draw(name: str, loss: Callable[..., jax.Array], views: int, cosine: float = 0.0) -> None:
    slope = pairwise_gradient(loss, views, cosine)
    # Rounding must not look like a weak pull; a square root keeps weak pairs visible.
    slope = np.where(np.abs(slope) < 1e-5 * np.abs(slope).max(), 0, slope)
    shade = np.sign(slope) * np.sqrt(np.abs(slope) / np.abs(slope).max())
    figure, axes = plt.subplots(figsize=(2.2, 2.2))
    axes.imshow(shade, cmap="RdBu_r", vmin=-1, vmax=1)
    for edge in range(0, views * INSTANCES + 1, INSTANCES):
        axes.axhline(edge - 0.5, color="black", linewidth=0.8)
        axes.axvline(edge - 0.5, color="black", linewidth=0.8)
    middles = [INSTANCES * (l + 0.5) - 0.5 for l in range(views)]
    labels = [f"view {l + 1}" for l in range(views)]
    axes.set_xticks(middles, labels, fontsize=7)
    axes.set_yticks(middles, labels, fontsize=7, rotation=90, va="center")
    axes.tick_params(length=0)
    figure.savefig(path(name), dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def drawn() -> list[str]:
    """The objectives that have a picture."""
    return [name for name, function in losses.objectives().items() if function not in NOT_DRAWN]


def path(name: str) -> Path:
    """Where an objective's picture is."""
    return FOLDER / f"{name}.png"


def main(names: Iterable[str]) -> None:
    for name in names:
        function = losses.objectives()[name]
        loss = function(losses.info_nce) if losses.is_higher_order(function) else function
        draw(name, loss, VIEWS[losses.takes(loss).operands], COSINES.get(function, 0.0))


if __name__ == "__main__":
    main(sys.argv[1:] or drawn())
