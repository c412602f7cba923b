"""Describe what an examination finds, with its remedy, and write it by area."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from gpuform.providers.values import Redactor
from gpuform.schemas.errors import UserError
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import counted

T = TypeVar("T")

_PUT_RIGHT = "put it right, and run `gpuform doctor` again"


class Level(StrEnum):
    """How bad it is: with a problem some command fails, or does what nobody wants."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `remedy` says what to do; it never holds a secret."""

    area: str
    level: Level
    text: str
    remedy: str = ""


@dataclass(slots=True)
class Examination:
    """Collects findings. What a check raises is one: nothing ends an examination early.

    `secrets` are what no finding may say. A project with a `has_foreign_program` is one whose
    program only the Pulumi CLI can run.
    """

    findings: list[Finding] = field(default_factory=list)
    has_foreign_program: bool = False
    secrets: list[str] = field(default_factory=list)

    def look(self, area: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Adds what a check finds, and what stops it."""
        try:
            for finding in check():
                self.findings.append(finding)
        except Exception as error:  # noqa: BLE001 - whatever is broken, it is told
            self.findings.append(failure(area, error))

    def get(self, area: str, what: Callable[[], T]) -> T | None:
        """What others are found by; None, and a problem, when it cannot be had."""
        try:
            return what()
        except Exception as error:  # noqa: BLE001 - as above
            self.findings.append(failure(area, error))
            return None

    def told(self) -> list[Finding]:
        """The findings without secrets."""
        redact = Redactor(self.secrets).redact
        return [
            replace(each, text=redact(each.text), remedy=redact(each.remedy))
            for each in self.findings
        ]


def failure(area: str, error: Exception, level: Level = Level.PROBLEM) -> Finding:
    """An error as a finding. Of one that nobody foresaw only its type and its place are told: its
    text may hold values."""
    if isinstance(error, UserError):
        return Finding(area, level, error.message, error.hint or _PUT_RIGHT)
    if isinstance(error, OSError):
        told = f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
        return Finding(area, level, told, _PUT_RIGHT)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return Finding(
        area,
        level,
        f"this could not be looked at ({type(error).__name__}{place})",
        "report it, with the output of `gpuform doctor --json`",
    )


_STYLES = {Level.OK: "add", Level.NOTE: "dim", Level.WARNING: "warning", Level.PROBLEM: "error"}


def findings_lines(findings: Sequence[Finding], paint: Paint = PLAIN) -> Iterator[str]:
    """Every finding under its area, and at the end how many are problems."""
    width = max(len(level) for level in Level)
    for area, found in groupby(findings, key=lambda finding: finding.area):
        yield paint("bold", f"{area[:1].upper()}{area[1:]}:")
        for finding in found:
            first, *rest = finding.text.split("\n")
            level = paint(_STYLES[finding.level], f"{finding.level:<{width}}")
            yield f"  {level}  {escape_invisible(first)}"
            for line in (*rest, *(f"-> {each}" for each in finding.remedy.splitlines())):
                yield f"  {'':{width}}  {escape_invisible(line)}"
    counts = Counter(finding.level for finding in findings)
    told = [
        counted(counts[level], level) for level in (Level.PROBLEM, Level.WARNING) if counts[level]
    ]
    yield ""
    yield ", ".join(told) if told else "All is well."
