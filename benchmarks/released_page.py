"""The page of `benchmarks.released`, docs/design/released.md."""

import math
from collections.abc import Sequence
from typing import Any

from benchmarks.harness import number, table
from benchmarks.released_cases import CASES


def bar(ratio: float | None, limit: float, at_most: bool) -> str:
    """A ratio beside its bar, if there is one."""
    if ratio is None or limit in (0, math.inf):
        return number(ratio)
    return f"{ratio:.1f} ({'at most' if at_most else 'at least'} {limit:g})"


def times_cells(row: dict[str, Any]) -> list[str]:
    case, ours, floor, released = CASES[row["name"]], row["ours_ms"], row["floor_ms"], row["released_ms"]
    return [
        f"`{row['loss']}`",
        str(tuple(row["shape"])),
        number(ours),
        number(floor),
        bar(floor and ours / floor, case.over_floor, at_most=True),
        number(released),
        bar(released and released / ours, case.over_released, at_most=False),
        number(row["ours_mb"], 0),
        number(row["released_mb"], 0),
    ]


def times_table(rows: Sequence[dict[str, Any]]) -> str:
    head = [
        "objective",
        "(k, n, d)",
        "ours, ms",
        "floor, ms",
        "ours / floor",
        "released, ms",
        "released / ours",
    ]
    return table([*head, "ours, MB", "released, MB"], [times_cells(row) for row in rows])


def agreement_table(rows: Sequence[dict[str, Any]]) -> str:
    """What is timed beside what, and whether both compute the same."""
    cells = [
        [
            f"`{row['loss']}`",
            CASES[row["name"]].code,
            number(row["value"], 5),
            number(row["released_value"], 5),
            "-" if row["gradient_difference"] is None else f"{row['gradient_difference']:.0e}",
            CASES[row["name"]].differs,
        ]
        for row in rows
    ]
    head = ["objective", "released code", "our value", "its value", "gradients differ by", "why"]
    return table(head, cells)


def page(results: dict[str, Any]) -> str:
    """docs/design/released.md."""
    rows = results["rows"]
    clones = [
        f"git clone https://github.com/{repository} released/{repository.split('/')[1]}  # {commit}"
        for repository, commit in REPOSITORIES.items()
    ]
    needs: dict[str, list[str]] = {}
    for row in rows:
        if row["floor_ms"] is not None:
            needs.setdefault(CASES[row["name"]].floor.needs, []).append(f"`{row['name']}`")
    loads = [row["load"] for row in rows]
    return PAGE.format(
        clones="\n".join(clones),
        times=times_table(rows),
        agreement=agreement_table(rows),
        needs="\n".join(f"- {', '.join(names)}: {what}" for what, names in needs.items()),
        load=" to ".join(f"{load:.1f}" for load in sorted({min(loads), max(loads)})),
        **{name: results[name] for name in ("torch", "jax", "streamed_mb")},
    )


REPOSITORIES = {
    "pakoromilas/Multi-View-CL": "c26ae77",
    "pakoromilas/DHEL-KCL": "dc5a477",
    "Jeon789/DSF": "0aa38a8",
    "SubmissionsIn/SEM": "5ccaa63",
    "mlfoundations/open_clip": "89fb801",
    "raminnakhli/Decoupled-Contrastive-Learning": "0b9b76d",
    "chingyaoc/RINCE": "c7f8534",
    "jhaochenz/spectral_contrastive_learning": "ee431bd",
    "vturrisi/solo-learn": "9187ea3",
    "rajesh-lab/symile": "d12e2c8",
    "ispamm/GRAM": "b70c5c2",
    "ispamm/TRIANGLE": "6951d49",
    "Xiaohao-Liu/PMRL": "c3997e9",
    "facebookresearch/vicreg": "4e12602",
    "facebookresearch/barlowtwins": "8e8d284",
    "ThomasYerxa/mmcr": "fafd3a9",
    "OFSkean/FroSSL": "e841c57",
    "tsb0601/EMP-SSL": "8fc3758",
    "lightly-ai/lightly": "e8d317f",
    "rbalestr-lab/lejepa": "eddffdd",
    "HaiyuWu/visreg": "074fb51",
    "Duplums/CoMM": "f1fc87f",
    "brightest66/InfMasking": "6773ed7",
    "pliang279/FactorCL": "0f9f740",
}

PAGE = """# Beside released code

This page compares the time and memory of the objectives with released PyTorch code, the authors' own where it exists,
and with the bare products, sines and sorts that they need. Value and gradient in float32 of the same random
embeddings, on one thread of one CPU: jax {jax} compiled, torch {torch} as released, not compiled. The three take
turns in each round, and the table has medians of CPU time, which leaves out other programs (load average when the run
began: {load}). [The objectives'
page](../reference/objectives.md#where-a-released-implementation-disagrees-with-its-paper) compares released code with
the papers.

{times}

- "ours, MB" are the temporaries that the compiler reserves, "released, MB" the growth of the process at its peak.
- The released steps of GRAM and TRIANGLE compute their matrix twice, once for its rows and once for its columns, which
  with several devices are of different instances. Both are timed, as they are in training.
- RINCE and SEM make their masks of negatives by a loop over instances in each step. NT-Xent of Koromilas 2025 ranks
  all vectors for an accuracy. Both are timed.
- At (3, 1024, 128) `symile(z)` takes {streamed_mb:.0f} MB for its 1,024³ products; the released code would hold three
  matrices of 1,024 x 1,024² logits, 4.3 GB each.
- M3G has no released code. It is timed beside ott's `MMSinkhorn` at the same threshold, both compiled by JAX.
- torch sorts with all threads and XLA with one: on several CPUs the released `visreg` gains, ours does not.
- We found no released code of `poly_siglip`, `sufficient_statistics`, `cross_pairs` and `mean_pair`.

## The same numbers

Both sides get the same options. The table has both values, and the length of the difference of the gradients over the
length of the released one. `PVCLoss` is from the code of Koromilas 2025; Shidani 2024 released no code. Its
"arithmetic" method averages over instances first, where the paper averages within each instance; ours has no such
option.

{agreement}

## The floor

The floor is the time of these operations alone:

{needs}

An inner product of all pairs takes one matrix product forward and two backward; a d x d matrix of second moments and
the products of a view with itself, which are symmetric, one and one.

## Running it again

This package does not depend on torch. Install torch in an environment of its own and clone the repositories beside
each other. The benchmark installs and imports none of them; it reads the definitions of their losses:

```sh
python3 -m venv torch-env && torch-env/bin/pip install torch einops numpy  # torch for CPUs is enough
{clones}
beside="--released released --torch-python torch-env/bin/python"
python -m benchmarks.released $beside --write docs/design/released.md
python -m benchmarks.released $beside --values --write docs/reference/objectives.md
```

The comments name the commits that were measured. A missing repository is skipped. `released.json` has the same
numbers, and `python -m docs.readme` writes the table of README.md from it. `--only NAME` measures some objectives
again and keeps the other rows.
"""
