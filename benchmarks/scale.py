"""What ViT-B/16 costs on 8, 64 and 512 devices: bytes exchanged, FLOPs and memory, of every objective.

    python -m benchmarks.scale [--only NAME ...] [--examples 4096] [--views 4] [--write docs/design/scale.json]
    python -m benchmarks.scale --slices [--examples 4096] [--views 4]

Nothing is run. Collectives and matrix products are counted in the traced programs, beside XLA's own count for as many
virtual CPU devices and the peak of its temporaries. Bytes are what one device receives when collectives go round a
ring: an all-gather or a reduce-scatter of B bytes moves B (D - 1) / D to each of D devices, an all-reduce twice that.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.interpreters import partial_eval
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from benchmarks.collectives import compiled, received, traced
from benchmarks.harness import MIB, loss_of, parser_of, table, views_of
from mvcl import augment, data, losses, models, training
from mvcl.training import CHOICES, _cost

DEVICES = (8, 64, 512)


def objective(name: str, views: int) -> tuple[Callable[[jax.Array], jax.Array], int]:
    """One device's part of the loss of (k, n, d) embeddings, and the k it takes."""
    chosen = CHOICES["objective"][name]()
    loss, k = loss_of(chosen), views_of(chosen, views)
    if chosen is losses.m3g:  # of n^k tuples: on each device's own rows, as Piran 2024 trains it
        return lambda z: jax.lax.pmean(loss(z), "data"), k
    return partial(loss, axis_name="data"), k


def of_objective(name: str, views: int, examples: int, width: int, devices: int) -> dict[str, float]:
    """Value and gradient of an objective on so many devices: our count and XLA's."""
    local, k = objective(name, views)
    shape = (k, examples, width)
    rows = PartitionSpec(None, "data")

    def whole(mesh: Any) -> Callable[[jax.Array], Any]:
        return jax.value_and_grad(jax.shard_map(local, mesh=mesh, in_specs=rows, out_specs=PartitionSpec()))

    abstract = AbstractMesh((devices,), ("data",), axis_types=(AxisType.Auto,))
    jaxpr = jax.make_jaxpr(whole(abstract))(jax.ShapeDtypeStruct(shape, jnp.float32)).jaxpr
    # What no result needs is not exchanged: m3g_pair's solver says its costs of all devices, n² numbers, to no one.
    ours = traced(partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[0], devices)
    mesh = Mesh(np.asarray(jax.devices()[:devices]), ("data",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, rows)
    program = (
        jax.jit(whole(mesh), out_shardings=(NamedSharding(mesh, PartitionSpec()), sharding))
        .lower(jax.ShapeDtypeStruct(shape, jnp.float32, sharding=sharding))
        .compile()
    )
    xla = compiled(program.as_text(), devices)
    return {
        "views": k,
        "bytes": ours.bytes,
        "bytes_in_loop": ours.in_loops,
        "xla_bytes": xla.bytes,
        "xla_bytes_in_loop": xla.in_loops,
        "flops": ours.flops,
        "xla_flops": float(program.cost_analysis().get("flops", float("nan"))),
        "temporaries": float(program.memory_analysis().temp_size_in_bytes),
    }


def of_encoder(config: Any, size: int = 224) -> dict[str, float]:
    """One image forward and backward: FLOPs, what is kept for the backward pass, and the parameters."""
    module = nnx.eval_shape(lambda: config.build((size, size, 3), dtype=jnp.bfloat16, rngs=nnx.Rngs(0)))
    graph, params = nnx.split(module)

    def forward(params: Any, images: jax.Array) -> jax.Array:
        return nnx.merge(graph, params)(images).sum()

    def kept(images: int) -> int:
        x = jax.ShapeDtypeStruct((images, size, size, 3), jnp.float32)
        pullback = jax.eval_shape(lambda p, x: jax.vjp(forward, p, x)[1], params, x)
        return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(pullback))

    image = jax.ShapeDtypeStruct((1, size, size, 3), jnp.float32)
    return {
        "parameters": float(sum(np.prod(p.shape) for p in jax.tree.leaves(params))),
        "flops": traced(jax.make_jaxpr(jax.grad(forward))(params, image).jaxpr, 1).flops,
        "activations": float(kept(2) - kept(1)),
        "features": float(module.features),
    }


# (slices, data, fsdp) of 8 devices. The last is one mesh over what would be two slices: parameters cross.
SLICED = ((1, 8, 1), (2, 4, 1), (4, 2, 1), (2, 1, 4), (4, 1, 2), (1, 1, 8))


def of_slices(
    encoder: Any, mesh: training.Mesh, examples: int, views: int, size: int = 224, slices: int | None = None
) -> dict[str, Any]:
    """Bytes that one device receives in a step of a run on so many slices, inside its slice and from others.

    `slices` counts as if the devices were in so many, whatever the mesh says. BatchNorm is left out, so that what is
    exchanged is the parameters, their gradient, and the objective's.
    """
    config = training.Config(
        views=training.Views(k=views, policy=augment.simclr(image_size=size)),
        encoder=encoder,
        head=models.MLPHead(out=128, norm="none"),
        train=training.Train(steps=1, batch_size=examples, precision="float32"),
        mesh=mesh,
    )
    outline = data.Outline(examples, 10, data.ExampleSpec(((size, size, 3),)))
    program = training.build(config, outline)
    batch = _cost.abstract_batch(program, config, outline)
    lowered: Any = jax.jit(program.step).lower(program.abstract_state, batch)
    count = compiled(lowered.compile().as_text(), program.mesh.size, slices or mesh.slices)
    shapes = jax.eval_shape(program.init)["params"]
    parameters = 4.0 * sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes))
    return {"across": count.across, "within": count.bytes - count.across, "parameters": parameters}


def sliced(encoder: Any, examples: int, views: int) -> str:
    """The table of bytes inside slices and between them, on 8 devices."""
    rows = []
    for slices, along, fsdp in SLICED:
        counted = 2 if fsdp == 8 else slices
        mesh = training.Mesh(slices=slices, data=along, fsdp=fsdp)
        found = of_slices(encoder, mesh, examples, views, slices=counted)
        options = f"--mesh.slices {slices} --mesh.data {along} --mesh.fsdp {fsdp}"
        row = [f"`{options}`", f"{counted} x {8 // counted}"]
        rows.append([*row, *(f"{found[key] / MIB:,.1f}" for key in ("within", "across"))])
        print(f"  {' '.join(rows[-1])}, parameters {found['parameters'] / MIB:,.1f} MiB", flush=True)
    return table(["mesh", "counted as", "MiB from the own slice", "from other slices"], rows)


def of_the_encoder(vit: dict[str, float], n: int, k: int) -> str:
    """The encoder's costs on each number of devices, for n examples of k views."""
    p, images = 4 * vit["parameters"], n * k

    def fsdp(d: int, f: int = 8) -> float:
        """Parameters gathered twice, gradient scattered, shards all-reduced."""
        return 3 * received("all-gather", p, f) + received("all-reduce", p / f, max(d // f, 1))

    lines: dict[str, Callable[[int], str]] = {
        "examples, views of a device": lambda d: f"{n // d:,}, {images // d:,}",
        "TFLOP of a step and device": lambda d: f"{vit['flops'] * images / d / 1e12:,.1f}",
        "MiB received, gradient all-reduced": lambda d: f"{received('all-reduce', p, d) / MIB:,.0f}",
        "MiB received with --mesh.fsdp 8": lambda d: f"{fsdp(d) / MIB:,.0f}",
        "MiB of parameters, gradient and two moments": lambda d: f"{4 * p / MIB:,.0f}",
        "the same with --mesh.fsdp 8": lambda d: f"{4 * p / 8 / MIB:,.0f}",
        "GiB kept for the backward pass": lambda d: f"{vit['activations'] * images / d / 2**30:,.1f}",
        "the same with --train.microbatch 8": lambda d: f"{vit['activations'] * 8 * k / 2**30:,.1f}",
    }
    rows = [[what, *(of_devices(d) for d in DEVICES)] for what, of_devices in lines.items()]
    return (
        f"ViT-B/16, {vit['parameters'] / 1e6:.1f} million parameters, 224x224, bfloat16: "
        f"{vit['flops'] / 1e9:.1f} GFLOP and {vit['activations'] / MIB:.0f} MiB an image; "
        f"n = {n}, k = {k}\n\n{table(['', *(f'{d} devices' for d in DEVICES)], rows)}\n"
    )


def main() -> None:
    """Print the tables, and write the numbers if asked."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="*", default=list(CHOICES["objective"]), help="names of objectives")
    parser.add_argument("--examples", type=int, default=4096, help="n of the global batch")
    parser.add_argument("--views", type=int, default=4, help="k; losses of two views take 2")
    parser.add_argument("--width", type=int, default=128, help="d, length of an embedding")
    alone = "count a step on several slices, and nothing else"
    parser.add_argument("--slices", action="store_true", help=alone)
    keeps = "JSON file for the numbers; keeps those of objectives that --only leaves out"
    parser.add_argument("--write", type=Path, help=keeps)
    options = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", max(DEVICES))
    n, k = options.examples, options.views
    if options.slices:
        print(f"\n{sliced(models.ENCODERS['vit_b16'](), n, k)}")
        return
    vit = of_encoder(models.ENCODERS["vit_b16"]())
    result: dict[str, Any] = {"examples": n, "views": k, "width": options.width, "encoder": vit}

    print(of_the_encoder(vit, n, k), flush=True)

    head = ["objective", "k"]
    for title in ("MiB received", "XLA", "GFLOP", "MiB temporaries"):
        head += [f"{title} {d}" if d == DEVICES[0] else str(d) for d in DEVICES]
    rows = []
    result["objectives"] = {}
    for name in options.only:
        by_devices = {d: of_objective(name, k, n, options.width, d) for d in DEVICES}
        result["objectives"][name] = by_devices
        row = [name, str(int(by_devices[8]["views"]))]
        for key, unit in (("bytes", MIB), ("xla_bytes", MIB), ("flops", 1e9), ("temporaries", MIB)):
            row += [f"{by_devices[d][key] / unit:,.2f}" for d in DEVICES]
        rows.append(row)
        print(f"  {' '.join(row)}", flush=True)
    print(f"\n{table(head, rows)}\n", flush=True)

    if options.write:
        earlier = json.loads(options.write.read_text()) if options.write.exists() else {}
        both = earlier.get("objectives", {}) | result["objectives"]
        result["objectives"] = {name: both[name] for name in CHOICES["objective"] if name in both}
        options.write.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
