"""What an objective adds to a whole training step: views, encoder, loss, gradient and update, as in Piran 2024, Fig. 4.

    python -m benchmarks.overhead                    # every size
    python -m benchmarks.overhead --only 64,4 16,5   # some sizes, n,k
    python -m benchmarks.overhead --convolutions --torch PYTHON   # convolutions on a CPU beside PyTorch's

The programs are the library's own training steps (`mvcl.training.prepare`) of a ConvNet on digits enlarged to 32 x
32, in float32, with AdamW. For one size they take turns, a step each, in one run. "ratio" is the median over the
turns of the ratio of a step's time to that of `all_pairs(info_nce)` in the same turn and with the same method; beside
it the quartiles. Times are seconds of computation by the process on a CPU, those of a clock on other devices.
"sweeps" and "saved" are from the log of the last step: the sweeps of the problem that took most, and those that the
later problems of the step took less than the first, in all. "one by one" is M3G whose k problems of a step all start
from zeros.

Convolutions: milliseconds of value and gradient of layers alone and of networks with batch norm, medians of several
turns, of CPU time, all threads together, or of a clock on a machine that nobody else uses (--wall). A turn is calls in
a row for 0.2 seconds, after a pause for the other's threads and a call that is not counted. PYTHON has torch, in both
layouts; --rows picks some by a part of their names.
"""

import json
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from benchmarks.harness import milliseconds, parser_of, ratio, repeated, size
from mvcl import _configs, augment, cli, data, losses, methods, models, training
from mvcl.models import _layers
from mvcl.training import AdamW, Config, Mesh, Train, Views
from mvcl.training._program import cpu_options

# Runs whose steps take turns, as in the study of step times.
STEPS: Any = training.config_module(_configs.STUDIES / "_steps.py")
SIZES = [(64, 2), (64, 3), (64, 4), (16, 5), (128, 4)]
EPSILON = 0.2

m3g = partial(losses.m3g, epsilon=EPSILON)


@losses.declare(measured=losses.takes(losses.m3g).measured)
def one_by_one(z: jax.Array, epsilon: float = EPSILON) -> jax.Array:
    """M3G whose problems all start from zeros: it declares no `successive`."""
    return losses.m3g(z, epsilon)


PLAIN: dict[str, losses.Loss] = {
    "all_pairs(info_nce)": losses.all_pairs(losses.info_nce),
    "one_vs_rest(info_nce)": losses.one_vs_rest(losses.info_nce),
    "mv_infonce": losses.mv_infonce,
    "mv_dhel": losses.mv_dhel,
    "m3g": m3g,
}
STUDENT_TEACHER = {of: PLAIN[of] for of in ("all_pairs(info_nce)", "m3g")} | {"m3g one by one": one_by_one}
TEACHER = methods.StudentTeacher(predictor=models.MLPHead())
METHODS: tuple[tuple[str, methods.Method, dict[str, losses.Loss]], ...] = (
    ("one network", methods.Simclr(), PLAIN),
    ("student and teacher", TEACHER, STUDENT_TEACHER),
)


def config(n: int, k: int, method: methods.Method, objective: losses.Loss) -> Config:
    """A run on digits of this size; the singular values for its log are never due."""
    return Config(
        data=data.Digits(),
        views=Views(k=k, policy=augment.digits(image_size=32)),
        encoder=models.ConvNet(),
        head=models.MLPHead(norm="batch"),
        objective=objective,
        method=method,
        optimizer=AdamW(learning_rate=1e-3),
        train=Train(steps=10**6, batch_size=n, log_every=10**9, evaluate_every=0, precision="float32"),
        mesh=Mesh(data=1),
    )


def of_size(n: int, k: int, budget: float) -> None:
    """Print the ratios of one size."""
    runs = {
        f"{title}: {name}": STEPS.running(config(n, k, method, objective))
        for title, method, objectives in METHODS
        for name, objective in objectives.items()
    }
    found = STEPS.turns(runs, budget)
    for title, _, objectives in METHODS:
        reference = found[f"{title}: all_pairs(info_nce)"]
        for name in objectives:
            seconds = found[f"{title}: {name}"]
            over = ratio(seconds, reference)
            _, values = runs[f"{title}: {name}"].step()
            solver = [float(values[m]) for m in ("solver_iterations", "solver_sweeps_saved") if m in values]
            print(
                f"{n:5d} {k:2d}  {title:<20} {name:<21} {over['median']:6.2f} {over['low']:6.2f} {over['high']:6.2f} "
                f"{milliseconds(seconds):9.1f}" + "".join(f" {number:6.1f}" for number in solver),
                flush=True,
            )


# images, side, channels, features, kernel, stride; and images, side, channels, widths, none for ResNet-18
LAYERS = [
    *[(1024, 16, 3, 32, 3, 1), (1024, 16, 32, 64, 3, 2), (1024, 8, 64, 128, 3, 2), (1024, 4, 128, 256, 3, 2)],
    *[(64, 32, 3, 64, 3, 1), (64, 32, 64, 64, 3, 1), (64, 32, 64, 128, 3, 2), (64, 16, 128, 128, 3, 1)],
    *[(64, 8, 256, 256, 3, 1), (64, 4, 512, 512, 3, 1), (64, 32, 64, 128, 1, 2)],
]
NETWORKS = {
    "ConvNet 32-64-128": (1024, 16, 3, [32, 64, 128]),
    "ConvNet 16-32-64, 12 pixels": (512, 12, 3, [16, 32, 64]),
    "ConvNet 64-128-256, digits": (1024, 8, 1, [64, 128, 256]),
    "ResNet-18": (128, 32, 3, []),
}


def _convolution(kind: str, sizes: Any) -> Any:
    """Value and gradient of a layer or network, compiled by our rule, as a function of nothing."""
    images, side, channels, *rest = sizes
    if kind == "layer":
        features, size, stride = rest
        build: Any = partial(_layers.conv, channels, features, size, stride, dtype=jnp.float32)
    else:
        encoder = models.ConvNet(tuple(rest[0])) if rest[0] else models.ResNet(stem="cifar")
        build = partial(encoder.build, (side, side, channels), dtype=jnp.float32)
    graph, params, rest_of = nnx.split(build(rngs=nnx.Rngs(0)), nnx.Param, ...)
    x = jax.random.normal(jax.random.key(0), (images, side, side, channels))

    def value(params: Any, x: jax.Array) -> jax.Array:
        return jnp.square(nnx.merge(graph, params, rest_of, copy=True)(x)).sum()

    wanted = (0, 1) if kind == "layer" and channels > 3 else 0
    gradient = jax.jit(jax.value_and_grad(value, wanted), compiler_options=cpu_options())
    program = gradient.lower(params, x).compile()
    return lambda: jax.block_until_ready(program(params, x))


def convolutions(torch: str | None, turns: int, wall: bool, chosen: list[str]) -> None:
    """Print the table of convolutions."""
    command = [torch, str(Path(__file__).with_name("overhead_torch.py"))] if torch else []
    pipe = subprocess.PIPE
    other: Any = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) if command else None

    def seconds(run: Any) -> float:
        if callable(run):
            time.sleep(0.3)
            each = repeated(run, time.perf_counter if wall else time.process_time)
            return each(max(1, int(0.2 / each(1))))
        print(json.dumps(run), file=other.stdin, flush=True)
        return float(other.stdout.readline().split()[wall])

    rows = [("layer", "x".join(map(str, sizes)), sizes) for sizes in LAYERS]
    rows += [("network", name, sizes) for name, sizes in NETWORKS.items()]
    sizes_of = "images x side x channels x features x kernel x stride"
    print(f"| {sizes_of} | ours | PyTorch | channels last | ours / best |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    for kind, name, sizes in rows:
        if not any(part in name for part in chosen):
            continue
        programs = [_convolution(kind, sizes)]
        programs += [{kind: sizes, "last": last} for last in (False, True) if other]
        found = [[seconds(run) for run in programs] for _ in range(turns + 1)][1:]
        times = [milliseconds(of) for of in zip(*found)]
        best = f"{times[0] / min(times[1:]):.2f}" if other else "-"
        cells = [f"{each:.0f}" for each in times] + ["-"] * (3 - len(times))
        print(f"| {name} | " + " | ".join([*cells, best]) + " |", flush=True)
    if other is not None:
        other.terminate()


def main() -> None:
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--only", nargs="+", type=size, default=SIZES, metavar="n,k", help="sizes to run")
    add("--seconds", type=float, default=30.0, help="time for the turns of one size")
    add("--convolutions", action="store_true", help="the table of convolutions in place of all")
    add("--torch", metavar="PYTHON", help="with --convolutions, an interpreter that has torch")
    add("--rows", nargs="+", default=[""], help="with --convolutions, parts of names")
    add("--turns", type=int, default=5, help="with --convolutions")
    add("--wall", action="store_true", help="with --convolutions, seconds of a clock")
    arguments = parser.parse_args()
    if arguments.convolutions:
        cli.keep_freed_memory()
        convolutions(arguments.torch, arguments.turns, arguments.wall, arguments.rows)
        return
    print(f"jax {jax.__version__} on {jax.devices()[0].device_kind}; a training step with a ConvNet")
    print(
        "    n  k  method               objective              ratio  quartiles       step ms sweeps  saved"
    )
    for n, k in arguments.only:
        of_size(n, k, arguments.seconds)


if __name__ == "__main__":
    main()
