"""Mean and deviation of several runs' results over seeds, and the domain matrix of runs that hold out one domain each.

    python -m benchmarks.aggregate runs/m3g-seed*                  # repetitions of one config, each with its seed
    python -m benchmarks.aggregate runs/domainnet-* --write out    # six --data.held-out, some seeds each

Runs whose configs differ in their seeds only (train.seed, data.draw_seed, evaluation.seed) are repetitions, one row:
the mean, the deviation with divisor n - 1, and the number of runs. Each must have a train.seed of its own. Groups that
differ in data.held_out as well make a matrix, rows the training and columns the held-out domains (Piran 2024, Table 2
and Figure 2), of means over seeds; --write OUT draws it as OUT.md and OUT.svg. Reads config.json and evaluation.json of
each run folder.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mvcl import evaluation
from mvcl.training import _saved

Results = Mapping[str, float | None]
# Options in which repetitions may differ: seeds, and where the same data lie.
_OF_A_RUN = ("train.seed", "data.draw_seed", "evaluation.seed", "data.path")


def read(folder: Path) -> tuple[dict[str, Any], Results]:
    """The config of a run by dotted path, and the results of its trained encoder by name.

    Raises:
      ValueError: the folder is not that of an evaluated run.
    """
    for name in ("config.json", "evaluation.json"):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} has no {name}; it must be the folder of a finished run")
    config = _saved.flatten(json.loads((folder / "config.json").read_text()))
    rows = json.loads((folder / "evaluation.json").read_text())["rows"]["trained encoder"]
    return config, {row["name"]: row["value"] for row in rows}


def grouped(runs: Sequence[tuple[dict[str, Any], Results]]) -> list[tuple[dict[str, Any], list[Results]]]:
    """The runs whose configs differ in their seeds only, together.

    Raises:
      ValueError: two runs of a group have the same train.seed.
    """
    groups: dict[str, tuple[dict[str, Any], list[Results], list[int]]] = {}
    for config, results in runs:
        rest = {name: value for name, value in config.items() if name not in _OF_A_RUN}
        of = groups.setdefault(json.dumps(rest, sort_keys=True), (rest, [], []))
        if config["train.seed"] in of[2]:
            raise ValueError(f"two runs of the same config have train.seed = {config['train.seed']}")
        of[1].append(results)
        of[2].append(config["train.seed"])
    return [(config, results) for config, results, _ in groups.values()]


def means(results: Sequence[Results]) -> dict[str, tuple[float, float | None]]:
    """Mean and deviation of each result that all runs have."""
    found = {}
    for name in results[0]:
        values = [value for run in results if (value := run.get(name)) is not None]
        if len(values) == len(results):
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
            found[name] = (float(np.mean(values)), spread)
    return found


def matrix(groups: Sequence[tuple[dict[str, Any], list[Results]]]) -> evaluation.Transfer:
    """The matrix of groups of DomainNet runs, each with another held-out domain."""
    transfers = []
    for config, results in groups:
        target, found = str(config["data.held_out"]), means(results)
        entries = {
            name.split(" to ")[0]: value
            for name, (value, _) in found.items()
            if name.endswith(f" to {target}")
        }
        rest = next(
            value
            for name, (value, _) in found.items()
            if name.endswith(" to 1") and not name.startswith("1 ")
        )
        one = np.asarray([[value] for value in entries.values()])
        transfers.append(evaluation.Transfer(tuple(entries), (target,), one, np.asarray([rest])))
    return evaluation.merged(transfers)


def differences(groups: Sequence[tuple[dict[str, Any], list[Results]]]) -> list[str]:
    """What distinguishes each group's config from the others', in words."""
    names = dict.fromkeys(name for config, _ in groups for name in config)
    varying = [n for n in names if len({json.dumps(config.get(n)) for config, _ in groups}) > 1]
    return [", ".join(f"{n} {config[n]}" for n in varying if n in config) or "all" for config, _ in groups]


def main() -> int:
    """Print the table and, where runs hold out different domains, the matrix."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    parser.add_argument("--write", type=Path, help="write the matrix as WRITE.md and WRITE.svg")
    arguments = parser.parse_args()
    groups = grouped([read(folder) for folder in arguments.runs])
    for text, (_, results) in zip(differences(groups), groups):
        print(f"{text} ({len(results)} runs)")
        for name, (value, spread) in means(results).items():
            print(
                f"  {name:24} {100 * value:6.2f}"
                + (f" ± {100 * spread:.2f}" if spread is not None else "")
                + " %"
            )
    if len(groups) > 1 and all("data.held_out" in config for config, _ in groups):
        whole = matrix(groups)
        print("\n" + evaluation.transfer_table(whole))
        if arguments.write is not None:
            arguments.write.with_suffix(".md").write_text(evaluation.transfer_table(whole) + "\n")
            evaluation.transfer_heat_map(whole, arguments.write.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
