"""The page and the list of `benchmarks.accelerator`, from its record."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import harness
from benchmarks.harness import MIB, number

Piece = Mapping[str, Any]
NOT_RUN = "not run"

PAGE = """# On an accelerator

Made by `python -m benchmarks.accelerator --write docs/design` from docs/design/accelerator.json. {machine}

```sh
python -m benchmarks.accelerator --list                               # what is done and what is left
python -m benchmarks.accelerator                                      # one slice: at most 9 minutes
python -m benchmarks.accelerator --write docs/design                  # this page
```

Repeat the second command until nothing is left. A slice measures whole pieces in a fixed order and keeps each in
runs/accelerator/full.json. `--only PART` chooses among `losses`, `m3g` and `steps`. `--released DIR` is a folder with
checkouts of released code and `--torch-python` a Python that runs it ([beside released code](released.md) has the
commands); without them the columns of released code are empty.

The programs of a row take turns, at most {rounds} of them, each as many calls as take 20 ms. Compilation and the first
calls are not counted, and each turn waits for its last result. A ratio is the median of the ratios of the turns, in
brackets the quartiles.

## Losses

Value and gradient in float32 at full precision, of noisy views of n random directions. "floor": the bare products that
the formula needs, once forward and twice backward, or once where their matrix is symmetric, and the sorts or waves of
the objectives that have them; of `byol`, the embeddings read and written. Released code runs as it is, not compiled,
on the same device.

{losses}

## M3G

Value and gradient, d = 256, epsilon 0.2, threshold 1e-3. "floor": the bare products of as many passes over the tuples
as the solver made, and those of the costs. ott is the dense solver `MMSinkhorn`, where its n^k numbers are few.

{m3g}

## Training steps

The library's own step: SimCLR's views of n images drawn on the device, encoder, head with d = 128, loss, gradient and
AdamW, n k = {views} views, the encoder in bfloat16 (on a CPU in float32), loss and parameters in float32. The
reference is the step of `all_pairs(info_nce)` at the same k. TFLOP are those that XLA counts in the step before it
optimises, the body of a loop, such as that of a solver, once. The share of the peak is of the vendor's dense bfloat16
rate of the device, the share of a product of the rate of a bare bfloat16 product of two {product} x {product} matrices
in the same turns.

{steps}
"""


def ratio(found: Mapping[str, float] | None) -> str:
    return "-" if found is None else f"{found['median']:.2f} ({found['low']:.2f} to {found['high']:.2f})"


def percent(found: float | None) -> str:
    return "-" if found is None else f"{found:.0%}"


def of_losses(name: str, found: Piece) -> list[str]:
    return [
        f"`{name.split()[1]}`",
        str(tuple(found["shape"])),
        number(found["floor_gflop"], 2),
        ratio(found["over_floor"]),
        ratio(found.get("torch_over_ours")),
        number(found["mib"]),
        number(found.get("torch_mb")),
    ]


def of_transport(name: str, found: Piece) -> list[str]:
    n, k = found["n"], found["k"]
    return [
        str(n),
        str(k),
        f"{n**k:.1e}",
        f"{found['sweeps']}{'' if found['converged'] else ', not converged'}",
        ratio(found["over_floor"]),
        ratio(found.get("ott_over_ours")),
        number(found["bytes"], scale=1 / MIB),
        number(found.get("ott_bytes"), scale=1 / MIB),
    ]


def of_steps(name: str, found: Piece) -> list[str]:
    _, encoder, objective = name.split()
    product = found["of_product"]
    return [
        encoder,
        f"`{objective}`",
        f"{found['k']} x {found['examples']}",
        number(found["ms"]),
        ratio(found["over_reference"]),
        number(found["tflop"], 2),
        percent(found["of_peak"]),
        "-" if product is None else percent(product["median"]),
        number(found["mib"], 0),
    ]


TABLES: dict[str, tuple[Sequence[str], Callable[[str, Piece], list[str]]]] = {
    "losses": (
        (
            *("objective", "(k, n, d)", "floor, GFLOP", "ours / floor", "released / ours"),
            *("MiB", "released, MB"),
        ),
        of_losses,
    ),
    "m3g": (
        ("n", "k", "tuples", "sweeps", "ours / floor", "ott / ours", "MiB", "ott, MiB"),
        of_transport,
    ),
    "steps": (
        (
            *("encoder", "objective", "k x n", "step, ms", "step / reference", "TFLOP"),
            *("share of the peak", "of a product", "MiB"),
        ),
        of_steps,
    ),
}


def state(found: Piece) -> str:
    """One of done, failed and left."""
    return "done" if "result" in found else "failed" if "failed" in found else "left"


def table(part: str, names: Sequence[str], pieces: Mapping[str, Piece]) -> str:
    """The rows of a part that were measured; those that failed, and how many are left."""
    head, row = TABLES[part]
    rows, rest, left = [], [""] * (len(head) - 2), 0
    for name in names:
        found = pieces.get(name, {})
        match state(found):
            case "done":
                rows.append(row(name, found["result"]))
            case "failed":
                rows.append([name.partition(" ")[2], f"failed: {found['failed']}", *rest])
            case _:
                left += 1
    if left:
        rows.append([f"{left} of {len(names)} rows", NOT_RUN, *rest])
    return harness.table(head, rows)


def machine(record: Mapping[str, Any]) -> str:
    """Where and with what the pieces were measured."""
    done = [piece for piece in record["pieces"].values() if "result" in piece]
    if not done:
        return "It was not run yet."

    def all_of(key: str) -> str:
        return ", ".join(dict.fromkeys(str(piece[key]) for piece in done if piece[key]))

    torch = all_of("torch")
    return (
        f"Size {record['size']}, on {record['device']}; jax {all_of('jax')}, "
        f"{f'torch {torch}' if torch else 'without torch'}, commit {all_of('commit')}."
    )


def page(record: Mapping[str, Any], names: Sequence[str], *, rounds: int, views: int, product: int) -> str:
    """docs/design/accelerator.md."""
    tables = {
        part: table(part, [name for name in names if name.split()[0] == part], record["pieces"])
        for part in TABLES
    }
    return PAGE.format(machine=machine(record), rounds=rounds, views=views, product=f"{product:,}", **tables)


def listed(record: Mapping[str, Any], names: Sequence[str]) -> str:
    """A line for each piece, and how many are done."""
    lines, count = [], {"done": 0, "failed": 0, "left": 0}
    for name in names:
        found = record["pieces"].get(name, {})
        kind = state(found)
        count[kind] += 1
        more = f"{found['seconds']:.0f} s" if kind == "done" else found.get("failed", "")
        lines.append(f"{kind:<9}  {name:<44} {more}")
    lines.append(f"{len(names)} pieces: " + ", ".join(f"{number} {kind}" for kind, number in count.items()))
    return "\n".join(line.rstrip() for line in lines)
