"""Makes what the pages have of code: objectives, README's table, agreement, scale, papers, printed, reference, modules.

    make docs-data               # what is missing or stale
    make docs-data NAMES=nt_xent # the picture and the measured rows of these objectives again

Each part has its own command too: `python -m docs.objectives`, `python -m docs.readme`, and so on.
"""

import json
import re
import subprocess
import sys

from docs import modules, objectives, objectives_pictures, papers, printed, readme, reference
from mvcl import losses

AGREEMENT = objectives.FOLDER / "design" / "agreement.md"
SCALE = objectives.FOLDER / "design" / "scale.json"


def without_picture() -> list[str]:
    """Objectives that are drawn, and whose picture does not exist."""
    return [name for name in objectives_pictures.drawn() if not objectives_pictures.path(name).exists()]


def without_agreement() -> list[str]:
    """Objectives without a row in docs/design/agreement.md."""
    rows = re.findall(r"^\| `(\w+)", AGREEMENT.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [name for name in losses.objectives() if name not in rows]


def without_scale() -> list[str]:
    """Objectives without numbers in docs/design/scale.json."""
    numbers = json.loads(SCALE.read_text(encoding="utf-8"))
    return [name for name in losses.objectives() if name not in numbers["objectives"]]


def main(names: list[str]) -> None:
    objectives_pictures.main(names or without_picture())
    objectives.main()
    readme.main()
    papers.main()
    printed.main()
    reference.main()
    modules.main()
    for module, page, stale in (
        ("agreement", AGREEMENT, names or without_agreement()),
        ("scale", SCALE, names or without_scale()),
    ):
        if stale:
            command = [sys.executable, "-m", f"benchmarks.{module}", "--only", *stale, "--write", str(page)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
