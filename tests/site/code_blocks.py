"""The fenced code blocks of the pages, and the commands in them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page.relative_to(ROOT).as_posix()
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    if "build" not in page.parts
)

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_OPERATORS = {"|", "||", "&", "&&", ";"}


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` counts from 1; `follows` is whether only blank lines part it from a block."""

    page: str
    line: int
    language: str
    text: str
    follows: bool = False

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    """One command of a shell block, with the variables that the block sets for it."""

    block: Block
    words: tuple[str, ...]
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As the tables of the tests name it: a config without `configs/` and `.py`."""
        words = [f"{name}={value}" for name, value in self.variables.items()] + list(self.words)
        return re.sub(r"\bconfigs/([\w/]+)\.py\b", r"\1", " ".join(words))


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order; the blocks inside of a directive in place of the directive."""
    return list(_blocks(page, (ROOT / page).read_text(encoding="utf-8"), 0))


def _blocks(page: str, text: str, offset: int) -> Iterator[Block]:
    lines, end = text.splitlines(), -1
    for token in MarkdownIt("commonmark").parse(text):
        if token.type == "code_block" and token.map:
            yield Block(page, offset + token.map[0] + 1, "", token.content)
        if token.type != "fence" or token.map is None:
            continue
        start, follows = token.map[0], end >= 0 and not "".join(lines[end : token.map[0]]).strip()
        directive = re.fullmatch(r"\{([\w:-]+)\}\s*(.*)", token.info.strip())
        if directive is None:
            yield Block(page, offset + start + 1, token.info.strip(), token.content, follows)
        elif directive[1] in ("code-block", "code", "sourcecode"):
            yield Block(page, offset + start + 1, directive[2], _without_options(token.content), follows)
        else:
            yield from _blocks(page, token.content, offset + start + 1)
        end = token.map[1]


def _without_options(text: str) -> str:
    return re.sub(r"\A(:[\w-]+:.*\n)+\n*", "", text)


def commands(block: Block) -> list[Command]:
    """The commands of a shell block; redirections are left out, and variables of the block are replaced."""
    found: list[Command] = []
    exported: dict[str, str] = {}
    for line in re.sub(r"\\\n\s*", " ", block.text).splitlines():
        for name, value in exported.items():
            line = re.sub(rf"\$\{{?{name}\b\}}?", value, line)
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        for part in _parts(list(lexer)):
            if part[0] == "export" or all(_ASSIGNMENT.fullmatch(word) for word in part):
                exported |= _assigned(part[1:] if part[0] == "export" else part)
                continue
            count = next(i for i, word in enumerate(part) if not _ASSIGNMENT.fullmatch(word))
            variables = {name: value for name, value in exported.items() if name.isupper()}
            found.append(Command(block, tuple(part[count:]), variables | _assigned(part[:count])))
    return found


def _parts(words: list[str]) -> Iterator[list[str]]:
    """The simple commands of a line, without their redirections."""
    part: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if skip:
            skip = False
        elif set(word) <= set("<>&") and set(word) & set("<>"):
            skip = True
        elif word in _OPERATORS:
            if part:
                yield part
            part = []
        else:
            part.append(word)


def _assigned(words: list[str]) -> dict[str, str]:
    return {match[1]: match[2] for match in map(_ASSIGNMENT.fullmatch, words) if match}
