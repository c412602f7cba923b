"""Read a page of the documentation as a reader's steps: folders, files and commands.

Comments before a fenced block say how the test runs the block:

* `<!-- in: PATH -->`: a copy of this folder of the repository becomes the current folder.
* `<!-- file: NAME -->`, `<!-- append: NAME -->`: the block's text goes into this file.
* `<!-- exits: N -->`: the last command of the block exits with N, not with 0.
* `<!-- run: COMMAND -->`: a command that the page does not show.
* `<!-- not run: REASON -->`: the block's commands cannot be run.
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
    """Make a copy of a folder of the repository the current folder."""

    line: int
    folder: str


@dataclass(frozen=True)
class Write:
    """Write a file of the current folder, or append to it if `is_more`."""

    line: int
    name: str
    text: str
    is_more: bool


@dataclass(frozen=True)
class Run:
    """Run a command: `output` is what it must print, or None if the page does not show that."""

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
    def is_run(self) -> bool:
        skipped = "not run" in self.directives or BY_CI_RUN & self.directives.keys()
        return self.language in COMMANDS and not skipped


class BadPage(Exception):
    """A page cannot be read as steps: the message has the place and the reason."""


def read_steps(page: Path) -> list[Step]:
    """Return the steps of a page in order. Raises BadPage for a block without an end."""
    return [step for part in _split_page(page) for step in _convert_to_steps(part)]


def read_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    return [part for part in _split_page(page) if isinstance(part, Block)]


def _split_page(page: Path) -> Iterator[Block | Step]:
    lines = page.read_text(encoding="utf-8").splitlines()
    directives: dict[str, str] = {}
    number = 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _DIRECTIVE.fullmatch(line.strip()):
            name, value = match["name"], match["value"] or ""
            if name == "in":
                yield Enter(number, value)
            elif name == "run":
                yield Run(number, value, 0, None)
            else:
                directives[name] = value
        elif match := _FENCE.fullmatch(line):
            begin = number
            while number < len(lines) and lines[number].strip() != match["fence"]:
                number += 1
            if number == len(lines):
                raise BadPage(f"{page}:{begin}: the block has no end")
            cut = len(match["indent"])
            content = "".join(f"{block_line[cut:]}\n" for block_line in lines[begin:number])
            number += 1
            yield Block(begin, match["language"], content, directives)
            directives = {}
        elif line.strip():
            directives = {}


def _convert_to_steps(part: Block | Step) -> Iterator[Step]:
    if not isinstance(part, Block):
        yield part
    elif part.is_run:
        runs = list(_split_commands(part))
        for run in runs[:-1]:
            yield Run(run.line, run.command, 0, run.output)
        yield runs[-1]
    else:
        for name in part.directives.keys() & {"file", "append"}:
            yield Write(part.line, part.directives[name], part.text, name == "append")


def _split_commands(block: Block) -> Iterator[Run]:
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
