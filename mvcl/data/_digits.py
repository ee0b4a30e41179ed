"""scikit-learn's handwritten digits as a tfds data set that needs neither TensorFlow nor a network connection."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from mvcl.data._tfds import DIGITS_VERSION


class MvclDigits(tfds.core.GeneratorBasedBuilder):
    """1,797 grey 8x8 digits (UCI optical recognition, the test part that scikit-learn bundles)."""

    VERSION = tfds.core.Version(DIGITS_VERSION)
    RELEASE_NOTES = {DIGITS_VERSION: "1,437 training and 360 test images, stratified by class, split seed 0."}  # noqa: RUF012

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="Handwritten digits, 8x8 pixels of 17 grey levels stretched to 0..255.",
            # Tensor, not Image: tfds writes its Image feature with TensorFlow.
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Tensor(shape=(8, 8, 1), dtype=np.uint8),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Iterator[tuple[int, dict[str, Any]]]]:
        del dl_manager  # nothing is downloaded
        from sklearn.datasets import load_digits
        from sklearn.model_selection import train_test_split

        digits = load_digits()
        images = np.round(digits.images * (255 / 16)).astype(np.uint8)[..., None]
        rows = np.arange(len(images))
        train, test = train_test_split(rows, test_size=360, stratify=digits.target, random_state=0)
        return {
            name: self._generate_examples(images, digits.target, part)
            for name, part in (("train", train), ("test", test))
        }

    def _generate_examples(
        self, images: np.ndarray, labels: np.ndarray, rows: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for row in rows:
            yield int(row), {"image": images[row], "label": int(labels[row])}
