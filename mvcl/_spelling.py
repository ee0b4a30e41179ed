"""Misspelt words of a command, found without importing jax, which takes a second."""

import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

_DECLARED = r"\b{0}(?=[:=])|(?<=def ){0}\b|(?<=\"){0}(?=\")"  # a field or parameter, a function, a key


def hint(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """`did you mean ...? ` with the nearest known word, or what a mapping has for it; empty if none is near."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    if not close:
        return ""
    return f"did you mean {known[close[0]] if isinstance(known, Mapping) else close[0]}? "


def check(arguments: Sequence[str], config: Path, name: str) -> None:
    """Raise `ValueError` for a FIELD:CHOICE or --FIELD.OPTION with a name that no source file declares.

    So no valid one is refused. A misspelt one that is a name elsewhere is left to the parser, and so are the arguments
    of a config that uses other packages.

    Args:
      arguments: of the command, after the config.
      config: file of the config.
      name: the config as the user gave it.
    """
    text = config.read_text(errors="replace")
    used = re.findall(r'^\s*(?:from|import) (\w+)|"_(?:type|function)": "(\w+)', text, re.MULTILINE)
    others = {one or other for one, other in used} - {"mvcl", *sys.stdlib_module_names}
    if others or "transport" in text:  # mvcl.transport passes on classes of ott
        return
    source = "\n".join([text, *(file.read_text() for file in Path(__file__).parent.rglob("*.py"))])
    for before, argument in zip(["", *arguments], arguments):
        choice = None if before.startswith("--") else re.fullmatch(r"[a-z][\w.-]*:[\w-]+", argument)
        option = choice or re.match(r"--[a-z][\w.-]*", argument)
        for part in re.findall(r"[\w-]+", option[0].removeprefix("--")) if option else ():
            word = part.replace("-", "_").removeprefix("no_")  # --no-flag
            if (
                word != "help"
                and not word.startswith("tyro")
                and not re.search(_DECLARED.format(word), source)
            ):
                spelt, dash = argument.partition("=")[0].replace(part, "{}"), "_" if choice else "-"
                known = {
                    found: spelt.format(found.replace("_", dash))
                    for found in re.findall(rf"\b{word[:2]}\w+", source)
                }
                raise ValueError(
                    f"unknown {'choice' if choice else 'option'} {argument}; {hint(word, known, 0.8)}"
                    f"`mvcl train {name} --help` describes all options and choices"
                )
