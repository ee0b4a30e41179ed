"""Options that no config has, found without importing jax."""

import ast
import difflib
import re
import sys
from collections.abc import Sequence
from pathlib import Path

_HERE = Path(__file__).parent


def check(config: Path, arguments: Sequence[str], name: str) -> None:
    """Raise `ValueError` for an option with a part that is no word of mvcl's sources or of the config.

    Fields and parameters are words of the source that declares them, so that no valid option is refused. A misspelt one
    that is a word elsewhere is left to the parser, and so are the options of a config that uses other packages.

    Args:
      config: its file.
      arguments: of the command, after the config.
      name: the config as the user gave it.
    """
    options = [argument.partition("=")[0] for argument in arguments if re.match(r"--[A-Za-z]", argument)]
    if not options or {"-h", "--help"} & {*arguments} or not _of_mvcl(config):
        return
    source = "\n".join(file.read_text() for file in [config, *_HERE.rglob("*.py")])
    for option in options:
        for part in option.removeprefix("--").replace("-", "_").split("."):
            word = part.removeprefix("no_")  # --no-flag
            if not word.startswith("tyro") and not re.search(rf"\b{re.escape(word)}\b", source):
                fields = set(re.findall(r"^    ([a-z]\w+): ", source, re.MULTILINE))
                close = difflib.get_close_matches(word, fields, n=1, cutoff=0.8)
                right = option.replace(part.replace("_", "-"), close[0].replace("_", "-")) if close else ""
                hint = f"did you mean {right}? " if close else ""
                raise ValueError(
                    f"unknown option {option}; {hint}`mvcl train {name} --help` describes the options"
                )


def _of_mvcl(config: Path) -> bool:
    """Whether a config names functions and classes of mvcl and of itself only."""
    text = config.read_text(errors="replace")
    if config.suffix == ".json":
        return not re.search(r'"_(function|type)": "(?!mvcl\.)', text)
    if "transport" in text:  # mvcl.transport passes on classes of ott
        return False
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if {name.partition(".")[0] for name in names} - {"mvcl", *sys.stdlib_module_names}:
            return False
    return True
