"""A page of the documentation as the steps that a reader takes: folders, files and commands.

Comments before a fenced block say how the test plays it:

* `<!-- in: PATH -->`: a copy of that folder of the repository is the current folder from here on.
* `<!-- file: NAME -->`, `<!-- append: NAME -->`: the block's text goes into that file.
* `<!-- exits: N -->`: the last command of the block exits with N, not with 0.
* `<!-- run: COMMAND -->`: a command that the reader does not see.
* `<!-- not run: REASON -->`: the block's commands cannot be played.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COMMANDS: Final = {"console", "bash", "sh", "shell"}
BY_CI_RUN: Final = {"try", "test", "develop"}
"""Blocks of the README that `.ci/run` itself runs."""

_DIRECTIVE: Final = re.compile(r"<!-- (?P<name>[a-z ]+?)(?:: (?P<value>.+?))? -->")
_FENCE: Final = re.compile(r"(?P<indent> *)(?P<fence>`{3,}) *(?P<language>[\w-]*)")


@dataclass(frozen=True)
class Enter:
    """A copy of a folder of the repository becomes the current one."""

    line: int
    folder: str


@dataclass(frozen=True)
class Write:
    """A file of the current folder is written, or gets more."""

    line: int
    name: str
    text: str
    is_more: bool


@dataclass(frozen=True)
class Run:
    """A command, how it exits, and what it prints; None where the page does not show that."""

    line: int
    command: str
    exits: int
    output: str | None


Step = Enter | Write | Run


@dataclass(frozen=True)
class Block:
    """A fenced block with the directives before it, by name."""

    line: int
    language: str
    text: str
    directives: dict[str, str]

    @property
    def is_played(self) -> bool:
        skipped = "not run" in self.directives or BY_CI_RUN & self.directives.keys()
        return self.language in COMMANDS and not skipped


class BadPage(Exception):
    """A page that cannot be read as steps: where and why."""


def steps_of(page: Path) -> list[Step]:
    """The steps of a page in order."""
    return [step for part in _parts(page) for step in _steps(part)]


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page in order."""
    return [part for part in _parts(page) if isinstance(part, Block)]


def _parts(page: Path) -> Iterator[Block | Step]:
    lines = page.read_text(encoding="utf-8").splitlines()
    directives: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if found := _DIRECTIVE.fullmatch(line.strip()):
            name, value = found["name"], found["value"] or ""
            if name == "in":
                yield Enter(number, value)
            elif name == "run":
                yield Run(number, value, 0, None)
            else:
                directives[name] = value
        elif found := _FENCE.fullmatch(line):
            begin = number
            while number < len(lines) and lines[number].strip() != found["fence"]:
                number += 1
            if number == len(lines):
                raise BadPage(f"{page}:{begin}: the block has no end")
            cut = len(found["indent"])
            text = "".join(f"{each[cut:]}\n" for each in lines[begin:number])
            number += 1
            yield Block(begin, found["language"], text, directives)
            directives = {}
        elif line.strip():
            directives = {}


def _steps(part: Block | Step) -> Iterator[Step]:
    if not isinstance(part, Block):
        yield part
    elif part.is_played:
        runs = list(_runs(part))
        for each in runs[:-1]:
            yield Run(each.line, each.command, 0, each.output)
        yield runs[-1]
    else:
        for name in part.directives.keys() & {"file", "append"}:
            yield Write(part.line, part.directives[name], part.text, name == "append")


def _runs(block: Block) -> Iterator[Run]:
    exits = int(block.directives.get("exits", 0))
    if block.language != "console":
        yield Run(block.line + 1, block.text, exits, None)
        return
    lines = block.text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    if not starts or starts[0] != 0:
        raise BadPage(f"line {block.line}: a console block begins with `$ COMMAND`")
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        command = [lines[start][2:]]
        while command[-1].endswith("\\"):
            command.append(lines[start + len(command)].removeprefix("> "))
        output = "".join(f"{line}\n" for line in lines[start + len(command) : end])
        yield Run(block.line + 1 + start, "\n".join(command), exits, output)
