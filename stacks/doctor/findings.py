"""Define findings with their remedies, collect them, and render them by area."""

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import groupby
from typing import TypeVar

from gpuform.providers.values import Redactor
from gpuform.schemas.errors import GpuformError
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import counted

T = TypeVar("T")

_RETRY_REMEDY = "correct this, and run `gpuform doctor` again"


class Level(StrEnum):
    """The severity of a finding: with a problem, some command fails or does the wrong thing."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` says what to do; neither text holds a secret."""

    area: str
    level: Level
    text: str
    remedy: str = ""


@dataclass(slots=True)
class Examination:
    """Collect findings; an error in a check becomes a finding, and the next check runs.

    `secrets` are values that no finding may show. With `has_foreign_program`, only the Pulumi CLI
    can run the project's program.
    """

    findings: list[Finding] = field(default_factory=list)
    has_foreign_program: bool = False
    secrets: list[str] = field(default_factory=list)

    def add_findings(self, area: str, check: Callable[[], Iterable[Finding]]) -> None:
        """Add the findings of a check, and any error of the check as a finding."""
        try:
            for finding in check():
                self.findings.append(finding)
        except Exception as error:  # noqa: BLE001 - every error becomes a finding
            self.findings.append(build_failure(area, error))

    def get_or_report(self, area: str, read: Callable[[], T]) -> T | None:
        """Return the result of `read`, or None with a problem after an error."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - as above
            self.findings.append(build_failure(area, error))
            return None

    def list_redacted(self) -> list[Finding]:
        """Return the findings with secrets masked in text and remedy."""
        redact = Redactor(self.secrets).redact
        return [
            replace(finding, text=redact(finding.text), remedy=redact(finding.remedy))
            for finding in self.findings
        ]


def build_failure(area: str, error: Exception, level: Level = Level.PROBLEM) -> Finding:
    """Return a finding about an error.

    Of an unexpected error only type and location are shown: its message may hold secret values.
    """
    if isinstance(error, GpuformError):
        return Finding(area, level, error.message, error.hint or _RETRY_REMEDY)
    if isinstance(error, OSError):
        message = f"{error.filename or 'a file'}: {error.strerror or type(error).__name__}"
        return Finding(area, level, message, _RETRY_REMEDY)
    # The innermost frame shows where the check failed; its values stay out of the report.
    frames = traceback.extract_tb(error.__traceback__)
    location = f" in {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    return Finding(
        area,
        level,
        f"this check failed ({type(error).__name__}{location})",
        "report this with the output of `gpuform doctor --json`",
    )


_STYLES = {Level.OK: "add", Level.NOTE: "dim", Level.WARNING: "warning", Level.PROBLEM: "error"}


def render_findings(findings: Sequence[Finding], paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the lines of a report: findings by area, and the numbers of problems and warnings."""
    width = max(len(level) for level in Level)
    # Findings come in the order of the areas: no sorting is needed.
    for area, area_findings in groupby(findings, key=lambda finding: finding.area):
        yield paint("bold", f"{area[:1].upper()}{area[1:]}:")
        for finding in area_findings:
            first, *rest = finding.text.split("\n")
            level = paint(_STYLES[finding.level], f"{finding.level:<{width}}")
            yield f"  {level}  {escape_invisible(first)}"
            remedy_lines = (f"-> {line}" for line in finding.remedy.splitlines())
            for line in (*rest, *remedy_lines):
                yield f"  {'':{width}}  {escape_invisible(line)}"
    counts = Counter(finding.level for finding in findings)
    totals = [
        counted(counts[level], level) for level in (Level.PROBLEM, Level.WARNING) if counts[level]
    ]
    yield ""
    yield ", ".join(totals) if totals else "No problems found."
