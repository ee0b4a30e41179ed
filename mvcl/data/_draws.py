"""Draws of classes: the training examples of images in several domains."""

from collections.abc import Callable, Sequence

import numpy as np

from mvcl.data._splits import Draws, ExampleSpec, Split


def class_draws(
    classes: Sequence[int],
    names: tuple[str, ...],
    spec: ExampleSpec,
    *,
    images: int,
    size: int | None,
    seed: int,
    read: Callable[[int, int, int, int], tuple[np.ndarray, ...]],
) -> Split:
    """A training split in which each block of `size` rows is a draw of as many different classes, new in every epoch.

    An epoch has as many rows as it takes to read as many images as there are: images // k, a multiple of the size.

    Args:
      classes: numbers of the classes that are drawn.
      names: name of each class.
      spec: specification of an example with k images.
      images: number of images of these classes in all domains together.
      size: classes of a draw; None: all.
      seed: of the draws.
      read: (class, row, epoch, attempt) -> the k images of an example; each attempt has others.

    Raises:
      ValueError: a draw is to have fewer than 2 classes, or more than there are.
    """
    count, views = len(classes), len(spec.shapes)
    size = count if size is None else size
    if not 2 <= size <= count:
        raise ValueError(
            f"data.classes_per_draw must be at least 2 and at most the {count} classes that every training domain "
            f"has, got {size}"
        )
    numbers = np.asarray(classes, np.int32)

    def block(number: int, epoch: int) -> np.ndarray:
        # A hash of these, so that the draw does not depend on process, devices, time or order. The last number is no
        # view's, with which images are drawn.
        return numbers[np.random.default_rng([seed, epoch, number, views]).permutation(count)[:size]]

    def labels(rows: np.ndarray, epoch: int) -> np.ndarray:
        of_block = {number: block(number, epoch) for number in np.unique(rows // size).tolist()}
        return np.asarray([of_block[row // size][row % size] for row in rows.tolist()], np.int32)

    def example(row: int, epoch: int, attempt: int = 0) -> tuple[np.ndarray, ...]:
        return read(int(block(row // size, epoch)[row % size]), row, epoch, attempt)

    rows = np.arange(size * max(1, images // (views * size)))
    return Split(labels(rows, 0), names, spec, example, draws=Draws(size, labels, example))
