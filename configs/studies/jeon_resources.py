"""Jeon 2025, Section 5.3: time and memory of a step of 8 views beside one of 2 views of four times the images.

No training: steps of two programs in turn.
Source: Sections 5.3 and 5.4.1; recipes `jeon/dsf` and `jeon/imagenet100`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import _images
import _jeon
import _rows
import _steps

from mvcl import studies
from mvcl.studies import Cell, Claim, Measure, Study, Values, Within
from mvcl.training import Config, Mesh

_ABOUT = """\
A step of loss_avg, fea_avg and DSF on 8 views beside one of MoCo on 2 views of four times the images, as many views a
batch: the median over steps in turn of the ratio of their times, and the memory of the compiled step, its arguments and
temporaries, on one device. A seed is a repetition. "total" is the time of the whole run above the baseline's
at the printed epochs, whose steps are 1.25 (CIFAR-10: 250 of 256 images, 800 of 1,024) and 1.33 times the baseline's
(ImageNet-100: 100 of 128, 300 of 512). Reading images on the host is not in it, of which the 8 views need a third. On
a CPU the times are those of computation by the process, on other devices those of a clock."""
_SMALL = f"\n\nHere {_jeon.SMALL} 64 images of 8 views and 256 of 2; no accuracy is measured, and images are random."
# The most that the paper has of the time of a run above the baseline's, in per cent.
_LIMITS = {"CIFAR-10": 10, "ImageNet-100": 4}
_STEPS = {"CIFAR-10": (250 / 256) / (800 / 1024), "ImageNet-100": (100 / 128) / (300 / 512)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Resources(_steps.StepTime):
    """`StepTime`, with the memory of both and the time of a run; a `Task`."""

    steps: float
    """Steps of the run by those of the reference's."""

    def run(self, folder: Path, seed: int) -> Sequence[Values]:
        """ "ratio" and the milliseconds, "memory" in MB and "more memory", "total": per cent above the reference."""
        [found] = super().run(folder, seed)
        mine, other = (_steps.memory(_steps.running(config)) for config in (self.config, self.reference))
        of_run = {"memory": mine, "more memory": 100 * (mine / other - 1)}
        return [found | of_run | {"total": 100 * (found["ratio"] * self.steps - 1)}]


def paper(seeds: int = 3, *, images: Literal["random", "own"] = "random") -> Study:
    """CIFAR-10 with MoCo v2 and ResNet-18, ImageNet-100 with MoCo v3 and ViT-S/16.

    Args:
      images: random ones of the same size, which cost a step as much, or the data set's.
    """
    found = {}
    for name, source, size in (("CIFAR-10", "cifar10", 32), ("ImageNet-100", "imagenet100", 224)):
        for method in _jeon.objectives():
            config = _jeon.on_images(method, source)
            drawn = _steps.images(size, config.train.batch_size)
            found[name, method] = studies.changed(config, {"data": drawn} if images == "random" else {})
    cost = f"one GPU, {200 * seeds} seconds, estimated"
    return _study(found, 60.0, about=_ABOUT, seeds=seeds, cost=cost)


def small(seeds: int = 5) -> Study:
    """64 images of 8 views and 256 of 2; five seeds, since times differ by the machine, not by the training."""
    found, images = {}, _steps.images(32, 256)
    for method, objective in _jeon.objectives().items():
        base = _jeon.bench_of(images, *((2, 256) if method == "MoCo" else (8, 64)))
        found["random", method] = studies.changed(base, {"objective": objective})
    cost = f"2 CPU cores, {0.6 * seeds:.2g} minutes, estimated"
    return _study(found, 2.0, about=_ABOUT + _SMALL, seeds=seeds, cost=cost)


def smoke(seeds: int = 2) -> Study:
    """Five steps of a tiny network on random images."""
    whole, cells = small(), []
    for cell in whole.cells:
        tiny = _images.tiny(cell.task)
        cells.append(Cell(cell.factors, dataclasses.replace(tiny, reference=tiny.config, seconds=0.0)))
    return dataclasses.replace(whole, cells=cells, seeds=seeds, cost="seconds")


def _study(configs: Mapping[tuple[str, str], Config], seconds: float, **scale: Any) -> Study:
    cells = []
    for name, method in (of for of in configs if of[1] != "MoCo"):
        one = {"mesh": Mesh(data=1), **_steps.QUIET}
        mine, other = (studies.changed(configs[name, of], one) for of in (method, "MoCo"))
        steps = _STEPS.get(name, _STEPS["CIFAR-10"])
        task = Resources(config=mine, reference=other, seconds=seconds, steps=steps)
        cells.append(Cell({"data": name, "method": method}, task))
    others, dsf = _rows.levels("method", _jeon.AVERAGES), {"method": "DSF"}
    same = "memory remains constant (here: within 5 % of the baseline's)"
    identical = "the methods of 8 views take the same time (here: within a twentieth of the baseline's)"
    claims: list[Claim] = [
        Within(same, "Section 5.3", "more memory", {}, low=-5, high=5),
        *_rows.within("Section 5.4.1", "ratio", (-0.05, 0.05), [(identical, dsf, others)]),
    ]
    for name, most in ((name, most) for name, most in _LIMITS.items() if (name, "DSF") in configs):
        text = f"a run takes at most {most} % longer, {name}"
        claims.append(Within(text, "Section 5.3", "total", {"data": name, **dsf}, high=most))
    return Study(
        title="Jeon 2025, Section 5.3: time and memory of 8 views at an equal number of views in a batch",
        cells=cells,
        measures=(
            Measure("ratio", label="time of a step by MoCo's", digits=2, better="lower"),
            Measure("total", label="time of a run above MoCo's, %", better="lower"),
            Measure("memory", label="memory of a step, MB", better="lower"),
            Measure("more memory", label="memory above MoCo's, %", better="lower"),
            Measure("milliseconds", label="step, ms", better="lower"),
            Measure("reference", label="step of MoCo, ms", better=""),
        ),
        claims=claims,
        reference=dsf,
        **scale,
    )
