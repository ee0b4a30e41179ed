"""Take runs of a study from the published pages, where its folder of runs is lost or another study has run them.

python -m docs.taken NAME --data FILE [--workdir DIR]

A run on a page with the same task (its data at the same path) counts as finished from then on, if the page has all
measures of the study: `mvcl study NAME --scale small --data FILE` with the same DIR runs the others. It has a record
and no run folder, and the time of a run is the mean of its page. Not taken are cells whose loss stayed at chance, and
runs that measured their own baselines, which are on no page.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import tyro

from docs import published
from mvcl import _files, studies


def taken(study: studies.Study, folder: Path, pages: dict[str, dict[str, Any]]) -> int:
    """Write a record for each missing run of a study that a page has, into its `folder`; returns how many."""
    of_cells = any(isinstance(cell.task, studies.Baseline) for cell in study.cells)
    wanted = {measure.name for measure in study.measures}
    known: dict[tuple[str, str], dict[str, Any]] = {}
    for stem, page in sorted(pages.items(), key=lambda of: of[0] == folder.name):  # its own page last
        units = {of["name"]: 100.0 if of["percent"] else 1.0 for of in page["measures"]}
        if not wanted <= units.keys() or (page["baselines"] and not of_cells):
            continue
        for cell in (cell for cell in page["cells"] if not cell.get("at_chance")):
            for seed in (seed for seed, state in cell["status"].items() if state == "finished"):
                networks = [of for n, of in cell["seeds"].items() if int(n) % page["seeds"] == int(seed)]
                values = [{m: x / units[m] for m, x in of.items() if m in wanted} for of in networks]
                other = {} if stem == folder.name else {"page": stem}  # no page shares runs with itself
                known.setdefault((cell["folder"], seed), {**page, "values": values, **other})
    count = 0
    for place in studies.places(study, folder):
        page = known.get((f"cells/{place.folder.parent.name}", str(place.seed)))
        if page is None or studies.look(place).state != "missing":
            continue
        record = {
            name: page[name] for name in ("commit", "machine", "versions", "date", "page") if name in page
        }
        record["seconds"] = page["seconds"] / sum(len(of["status"]) for of in page["cells"] if of["seeds"])
        record["cores"] = min(map(int, re.findall(r", (\d+) cores?", page["machine"])), default=2)
        record["values"] = page["values"]
        place.link.parent.mkdir(parents=True, exist_ok=True)
        _files.write_whole(place.file("json"), json.dumps({"task": place.task, **record}, indent=1) + "\n")
        count += 1
    return count


def main(
    name: tyro.conf.Positional[str], /, data: Path | None = None, workdir: Path = Path("runs/studies")
) -> None:
    """Take runs of a study at scale small from the published pages.

    Args:
      name: of the study.
      data: its --data.
      workdir: of `mvcl study`.
    """
    file = studies.find(name)
    function = studies.scales(file).get("small")
    if function is None:
        raise ValueError(f"{file.stem} has no scale small")
    needs = "data" in inspect.signature(function).parameters
    if needs and data is None:
        raise ValueError(f"--data must be the file of {file.stem}, got none")
    study = function(data=data.resolve()) if needs and data else function()
    count = taken(study, workdir / f"{file.stem}_small", published.published())
    print(f"{count} of {len(study.cells) * study.seeds} runs of {name} are taken from pages")


if __name__ == "__main__":
    tyro.cli(main)
