"""The image data sets of Koromilas 2025, Tables II and III, with a cell for each k and objective."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from mvcl.studies._koromilas import koromilas_objectives, recipe_of
from mvcl.studies._study import Cell
from mvcl.studies._task import Training, changed
from mvcl.training import Config

Bases = Mapping[str, tuple[Callable[[int], Config], float]]

# Data set -> recipe and temperature of the objectives.
_IMAGES = {
    "CIFAR-10": ("koromilas/cifar:cifar10", 0.5),
    "CIFAR-100": ("koromilas/cifar:cifar100", 0.5),
    "ImageNet-100": ("koromilas/imagenet:imagenet100", 0.5),
    "ImageNet-1K": ("koromilas/imagenet:imagenet1k", 0.1),
}


def koromilas_images() -> Bases:
    """Data set -> (k -> config, temperature), of the four image sets."""
    return {
        name: (partial(recipe_of, recipe), temperature) for name, (recipe, temperature) in _IMAGES.items()
    }


def koromilas_cells(
    bases: Bases,
    ks: Sequence[int],
    names: Sequence[str],
    measure: str,
    printed: Mapping[tuple[str, int], Sequence[float]],
) -> tuple[Cell, ...]:
    """A cell for each data set, k and objective.

    Args:
      bases: data set -> (k -> config, temperature of the objectives).
      ks: numbers of views.
      names: of the `koromilas_objectives`.
      measure: what the paper prints.
      printed: (data set, k) -> value of each name, in their order; missing: nothing is printed.
    """
    cells = []
    for data, (base, temperature) in bases.items():
        objectives = koromilas_objectives(temperature)
        for k in ks:
            values = dict(zip(names, printed.get((data, k), ())))
            cells += [
                Cell(
                    factors={"data": data, "k": k, "objective": name},
                    task=Training(config=changed(base(k), {"objective": objectives[name]})),
                    printed={measure: values[name]} if name in values else {},
                )
                for name in names
            ]
    return tuple(cells)
