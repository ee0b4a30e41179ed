"""Judge the claims of the published pages by the rules of today, with their texts, and write docs/studies/README.md.

python -m docs.published

Nothing is run: a page has the values of all its runs. README.md has the studies with their costs, and how many claims
of each paper hold.
"""

import json
from collections import Counter
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
mvcl study control_m3g --scale small --data cifar10.npz --jobs 2 --write docs/studies
mvcl study koromilas_table2 --scale paper --jobs 6 --slurm='--gpus 1 --time 240'
```

`paper` has the paper's settings and data, `small` something that two cores train in hours, `smoke` seconds of random
data. A second call goes on with what is missing; a cell whose config or study file has changed since is shown as stale,
and `--again` runs it again. `cells/CELL/SEED` beside a page is an ordinary run folder for `mvcl report`.

This page is made by `python -m docs.published`.
"""


PAPERS = {"koromilas": "Koromilas 2025", "shidani": "Shidani 2024", "piran": "Piran 2024", "xu": "Xu 2023"}
PAPERS |= {"jeon": "Jeon 2025"}
ANSWERS = ("holds", "does not hold", "equal within the margin", "cannot tell", "not run")


def published() -> dict[str, dict[str, Any]]:
    """Name_scale -> numbers of each page of the folder."""
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def page() -> str:
    """The Markdown of the list."""
    found = published()
    return "\n".join([_HEAD, _papers(found), "", _list(found), "", _claims(found)])


def _papers(found: dict[str, dict[str, Any]]) -> str:
    """A line for each paper, and one for our studies."""
    lines = [
        "| | " + " | ".join(ANSWERS) + " | published pages |",
        f"| --- |{' ---: |' * (len(ANSWERS) + 1)}",
    ]
    for prefix, paper in [*PAPERS.items(), ("", "ours")]:
        of_paper = [of for of in found.values() if (of["name"].split("_")[0] in PAPERS) == bool(prefix)]
        of_paper = [of for of in of_paper if of["name"].startswith(prefix)]
        counts = Counter(_answer(claim) for of in of_paper for claim in of["claims"])
        lines.append(f"| {paper} | {' | '.join(str(counts[of]) for of in ANSWERS)} | {len(of_paper)} |")
    return "\n".join(["Claims of each paper's studies, on the published pages:", "", *lines])


def _answer(claim: dict[str, Any]) -> str:
    """That of the page, where a claim of which a cell is missing cannot be told yet, or "not run"."""
    missing = claim["answer"] == "cannot tell" and "not run" in claim["reason"]
    return "not run" if missing else claim["answer"]


def judged(content: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a page with the text of the study and the answers of today's rules."""
    function = studies.scales(studies.find(content["name"]))[content["scale"]]
    study = studies.without_data(function, seeds=content["seeds"])
    return content | {"about": study.about} | studies.judged(study, content)


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
        f"| {claim['text']} | {claim['source']} | [{name}]({name}.md) | {_answer(claim)} |"
        for name, known in found.items()
        for claim in known["claims"]
    ]
    counts = Counter(_answer(claim) for known in found.values() for claim in known["claims"])
    total = ", ".join(f"{count} {answer}" for answer, count in sorted(counts.items()))
    text = (
        "## Claims\n\n"
        "What the papers say, on data and networks that are not theirs: an answer here is about the study at its small "
        "scale, whose page has the numbers and the rule. Claims with the source ours are hypotheses of our own. "
        f"{total or 'None was run'}.\n"
    )
    return "\n".join([text, "| claim | source | study | here |", "| --- | --- | --- | --- |", *rows, ""])


def main() -> None:
    """Write all pages."""
    FOLDER.mkdir(exist_ok=True)
    for name, content in published().items():
        studies.write(judged(content), FOLDER, name)
    (FOLDER / "README.md").write_text(page())


if __name__ == "__main__":
    main()
