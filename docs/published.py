"""Judge the claims of the published pages by the rules of today, with their texts, and write docs/studies/README.md.

python -m docs.published

Nothing is run: a page has the values of all its runs. README.md has the studies with their costs, and how many claims
of each paper hold.
"""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from mvcl import _configs, studies
from mvcl._progress import duration
from mvcl.studies import _page

FOLDER = Path(__file__).with_name("studies")
_HEAD = """# Studies

Each table and figure with numbers of experiments is one command; a study is one file of `configs/studies`:

```sh
mvcl study --list                       # all studies, with the number of runs and the cost at each scale
mvcl study control_m3g --seeds 22 --scale small --data cifar10.npz --jobs 2 --write docs/studies
mvcl study koromilas_table2 --scale paper --jobs 6 --slurm='--gpus 1 --time 240'
```

`paper` has the paper's settings and data, `small` something that two cores train in hours, `smoke` seconds of random
data. Run time is the sum over all runs, of processes that each had one core or two. A second call goes on with what is
missing; a cell whose config or study file has changed since is shown as stale, and `--again` runs it again.
`cells/CELL/SEED` beside a page is an ordinary run folder for `mvcl report`.

This page is made by `python -m docs.published`.
"""


PAPERS = {"koromilas": "Koromilas 2025", "shidani": "Shidani 2024", "piran": "Piran 2024", "xu": "Xu 2023"}
PAPERS |= {"jeon": "Jeon 2025"}
OURS = "ours"  # so begins the source of a claim of our own
UNTOLD = ("not run", "not trained")  # in the reason of a claim that cannot be told; else it has too few seeds
ANSWERS = ("holds", "does not hold", "equal within the margin", "too few seeds", *reversed(UNTOLD))


def published() -> dict[str, dict[str, Any]]:
    """Name_scale -> numbers of each page of the folder."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def page() -> str:
    """The Markdown of the list."""
    found = published()
    return "\n".join([_HEAD, _papers(found), "", _list(found), "", _claims(found)])


def _papers(found: dict[str, dict[str, Any]]) -> str:
    """A line for each paper, and one for the claims and studies of our own."""
    lines = [
        "| | " + " | ".join(ANSWERS) + " | published pages |",
        f"| --- |{' ---: |' * (len(ANSWERS) + 1)}",
    ]
    pages, counts = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for of in found.values():
        paper = PAPERS.get(of["name"].split("_")[0], OURS)
        pages[paper] += 1
        for claim in of["claims"]:
            counts[OURS if claim["source"].startswith(OURS) else paper][_answer(claim)] += 1
    for paper in (*PAPERS.values(), OURS):
        lines.append(f"| {paper} | {' | '.join(str(counts[paper][of]) for of in ANSWERS)} | {pages[paper]} |")
    text = (
        "Claims on the published pages, of each paper and of our own (of our studies, and those with the source ours "
        "in a paper's). One that is judged by two measures counts twice. With too few seeds, or where networks are not "
        "trained, a claim cannot be told."
    )
    return "\n".join([text, "", *lines])


def _answer(claim: dict[str, Any]) -> str:
    """One of `ANSWERS`: that of the page, or why it cannot be told."""
    if claim["answer"] in ANSWERS:
        return str(claim["answer"])
    return next((why for why in UNTOLD if why in claim["reason"]), "too few seeds")


def judged(content: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a page with the text of the study and the answers of today's rules."""
    function = studies.scales(studies.find(content["name"]))[content["scale"]]
    study = studies.without_data(function, seeds=content["seeds"])
    return content | {"about": study.about, "cost": study.cost} | studies.judged(study, content)


def _list(found: dict[str, dict[str, Any]]) -> str:
    lines = ["| study | | paper | small | published |", "| --- | --- | --- | --- | --- |"]
    for file in studies.study_files():
        costs = studies.costs(file)
        known = {name: of for name, of in found.items() if of["name"] == file.stem}
        link = "; ".join(f"[{of['scale']}]({name}.md): {_finished(of)}" for name, of in known.items())
        lines.append(
            f"| [`{file.stem}`](../../configs/studies/{file.name}) | {_configs.summary(file)} | "
            f"{costs.get('paper', '')} | {costs.get('small', '')} | {link} |"
        )
    return "\n".join(lines)


def _finished(known: dict[str, Any]) -> str:
    states = Counter(state for cell in known["cells"] for state in cell["status"].values())
    runs = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"{runs}, {_page.seeds(known)}, {duration(known['seconds'])} of run time"


def _claims(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        f"| {claim['text']} | {claim['source']} | {claim['measure']} | [{name}]({name}.md) | {_answer(claim)} |"
        for name, known in found.items()
        for claim in known["claims"]
    ]
    text = (
        "## Claims\n\n"
        "What the papers say, mostly on data and networks that are not theirs: an answer here is about the study at "
        "the scale of its page, which has the numbers and the rule. Claims with the source ours are hypotheses of our "
        "own.\n"
    )
    head = ["| claim | source | measure | study | here |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([text, *head, *rows, ""])


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in published().items():
        studies.write(judged(content), FOLDER, name)
    (FOLDER / "README.md").write_text(page())


if __name__ == "__main__":
    main()
