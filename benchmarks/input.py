"""Images and views a second that the host decodes and crops, and the cores that a device needs.

    python -m benchmarks.input [--torch PYTHON] [--rounds 5]

JPEGs (and PNGs) of 500 x 375 pixels, k = 1, 2, 4, 8 crops of 224, on one and two cores, one thread each; every row is a
process bound to its cores, and rows take turns. "Pillow" decodes with it, and resizes each crop; `mvcl` is what a run
does. torchvision (PYTHON has it; v1 on Pillow's images, v2 on tensors) crops only, or makes the views of SimCLR's whole
policy, which mvcl leaves to the device; tf.data (decode_and_crop_jpeg, resize) decodes each crop.
"""

import io
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VIEWS, SIZE, IMAGES = (1, 2, 4, 8), 224, 32
OURS = ("mvcl", "mvcl, PNG", "mvcl, in memory", "Pillow")
OTHERS = (
    *("torchvision v1, crop", "torchvision v2, crop", "torchvision v1, SimCLR", "torchvision v2, SimCLR"),
    "tf.data, crop",
)


def photographs(kind: str) -> list[bytes]:
    """Encoded parts of scikit-learn's two photographs."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    found = [io.BytesIO() for _ in range(8)]
    for number, data in enumerate(found):
        image = load_sample_images().images[number % 2]
        Image.fromarray(image[7 * number :, 20 * number :][:375, :500]).save(data, kind, quality=90)
    return [data.getvalue() for data in found]


def of_mvcl(row: str, jpegs: list[bytes]) -> Callable[[int, int], Any]:
    """The k crops of an image."""
    import numpy as np
    from PIL import Image

    from mvcl import augment
    from mvcl.augment import _views

    policy = augment.simclr()
    kept = [np.asarray(Image.open(io.BytesIO(data))) for data in jpegs]
    encoded = photographs("PNG") if "PNG" in row else jpegs

    def pillow(image: int, k: int) -> Any:
        pixels = np.asarray(Image.open(io.BytesIO(jpegs[image % 8])).convert("RGB"))
        found = []
        for draws in np.random.default_rng(image).random((k, 40)):
            box = _views.crop_box(np, policy, draws, 375, 500).tolist()
            crop = Image.fromarray(pixels).resize((SIZE, SIZE), Image.Resampling.BICUBIC, box=box)
            found.append(np.asarray(crop))
        return found

    def ours(image: int, k: int) -> Any:
        at = image % 8
        data: Any = kept[at] if "memory" in row else (Image.open(io.BytesIO(encoded[at])), "RGB")
        return augment.host_crop([data], [policy] * k, 0, 0, image)

    return pillow if row == "Pillow" else ours


def of_torchvision(row: str, jpegs: list[bytes]) -> Callable[[int, int], Any]:
    import torch
    from PIL import Image
    from torchvision import io as images
    from torchvision import transforms
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    kind: Any = v2 if "v2" in row else transforms
    bicubic = transforms.InterpolationMode.BICUBIC
    view = [kind.RandomResizedCrop(SIZE, interpolation=bicubic)]
    if "SimCLR" in row:
        jitter = kind.RandomApply([kind.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8)
        blur = kind.RandomApply([kind.GaussianBlur(23, (0.1, 2.0))], 0.5)
        view += [kind.RandomHorizontalFlip(), jitter, kind.RandomGrayscale(0.2), blur]
    make = kind.Compose(view)
    tensors = [torch.frombuffer(bytearray(data), dtype=torch.uint8) for data in jpegs]

    def views(image: int, k: int) -> Any:
        if "v2" in row:
            picture: Any = images.decode_jpeg(tensors[image % 8], images.ImageReadMode.RGB)
        else:
            picture = Image.open(io.BytesIO(jpegs[image % 8])).convert("RGB")
        return [make(picture) for _ in range(k)]

    return views


def of_tensorflow(jpegs: list[bytes], cores: int, clock: Callable[[], float]) -> Callable[[int], float]:
    """Seconds of an image."""
    import tensorflow as tf

    def crop(data: Any) -> Any:
        begin, size, _ = tf.image.sample_distorted_bounding_box(
            [375, 500, 3], [[[0.0, 0.0, 1.0, 1.0]]], area_range=(0.08, 1.0), max_attempts=10
        )
        window = tf.concat([begin[:2], size[:2]], 0)
        pixels = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        return tf.cast(tf.clip_by_value(tf.image.resize(pixels, (SIZE, SIZE), "bicubic"), 0, 255), tf.uint8)

    def seconds(k: int) -> float:
        stream = tf.data.Dataset.from_tensor_slices(jpegs).repeat(IMAGES // 8 + cores)
        stream = stream.map(lambda data: [crop(data) for _ in range(k)], num_parallel_calls=cores)
        options = tf.data.Options()
        options.threading.private_threadpool_size = cores
        rows = iter(stream.with_options(options))
        for _ in range(8):
            next(rows)
        start = clock()
        for _ in range(IMAGES):
            next(rows)
        return (clock() - start) / IMAGES

    return seconds


def work(row: str, cores: int, clock: Callable[[], float]) -> None:
    """Answer each k of a line with the seconds of an image."""
    jpegs = [bytes.fromhex(data) for data in json.loads(input())]
    if row.startswith("tf"):
        seconds = of_tensorflow(jpegs, cores, clock)
    else:
        run = (of_torchvision if row.startswith("torch") else of_mvcl)(row, jpegs)
        pool = ThreadPoolExecutor(cores)

        def seconds(k: int) -> float:
            start = clock()
            list(pool.map(lambda image: run(image, k), range(IMAGES)))
            return (clock() - start) / IMAGES

    os.sched_setaffinity(0, range(cores))  # after what is imported, before threads start
    print(seconds(VIEWS[-1]), flush=True)  # ready
    for line in sys.stdin:
        print(seconds(int(line)), flush=True)


def measured(rows: dict[str, str], cores: int, rounds: int, clock: str) -> dict[str, dict[int, float]]:
    """Images a second by row and k: medians of rounds in which the rows take turns."""
    jpegs = json.dumps([data.hex() for data in photographs("JPEG")])
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    processes: dict[str, Any] = {}
    for row, python in rows.items():
        command = [python, __file__, "--work", row, str(cores), clock]
        pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
        other = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=environment)
        print(jpegs, file=other.stdin, flush=True)
        processes[row] = other
    found: dict[str, dict[int, list[float]]] = {row: {k: [] for k in VIEWS} for row in rows}
    ready = [row for row, other in processes.items() if other.stdout.readline()]
    for _ in range(rounds):
        for k in VIEWS:
            for row in ready:
                print(k, file=processes[row].stdin, flush=True)
                found[row][k].append(1 / float(processes[row].stdout.readline()))
    for other in processes.values():
        other.kill()
    return {row: {k: statistics.median(of) for k, of in found[row].items()} for row in ready}


def main() -> None:
    from benchmarks.harness import parser_of, table

    parser = parser_of(__doc__)
    parser.add_argument("--torch", metavar="PYTHON", help="has torchvision and tensorflow")
    parser.add_argument("--only", nargs="+", default=[*OURS, *OTHERS], metavar="ROW")
    parser.add_argument("--rounds", type=int, default=3)
    alone = "CPU seconds of one core, where other programs run"
    parser.add_argument("--cpu", action="store_true", help=alone)
    parser.add_argument("--tflops", type=float, default=989.0, help="peak of a device")
    parser.add_argument("--share", type=float, default=0.3, help="of the peak that a step reaches")
    parser.add_argument("--gflops", type=float, default=24.6, help="of a view, forward and backward")
    options = parser.parse_args()
    pythons = dict.fromkeys(OURS, sys.executable) | dict.fromkeys(OTHERS, options.torch)
    rows = {row: pythons[row] for row in options.only if pythons[row]}
    needed = 1000 * options.share * options.tflops / options.gflops
    share = f"{options.share:.0%} of {options.tflops:g} TFLOP/s"
    print(f"{share} are {needed:,.0f} views of {options.gflops:g} GFLOP/s")
    head = ["images/s at k =", *map(str, VIEWS), "views/s at 8", "time at 8 / 2", "cores for the device"]
    for cores in (1,) if options.cpu else (1, 2):
        found = measured(rows, cores, options.rounds, "process_time" if options.cpu else "perf_counter")
        cells = [[row, "not run", *["-"] * 6] for row in options.only]
        for cell in cells:
            if each := found.get(cell[0]):
                views = 8 * each[8]
                cell[1:5] = [f"{each[k]:,.0f}" for k in VIEWS]
                cell[5:] = [f"{views:,.0f}", f"{each[2] / each[8]:.2f}", f"{cores * needed / views:.1f}"]
        print(f"\n{cores} core(s){', CPU time' * options.cpu}\n\n{table(head, cells)}", flush=True)


if __name__ == "__main__":
    if "--work" in sys.argv:
        work(sys.argv[2], int(sys.argv[3]), getattr(time, sys.argv[4]))
    else:
        main()
