"""What an examination has found, as people read it: by area, each with its remedy."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from gpuform.schemas.visible import visible
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.paint import PLAIN, Paint

_STYLES = {Level.OK: "add", Level.NOTE: "dim", Level.WARNING: "warning", Level.PROBLEM: "error"}


def findings_lines(findings: Sequence[Finding], paint: Paint = PLAIN) -> Iterator[str]:
    """Every finding under its area, and at the end how many are problems."""
    width = max(len(level) for level in Level)
    for area, found in groupby(findings, key=lambda finding: finding.area):
        yield paint("bold", f"{area[:1].upper()}{area[1:]}:")
        for finding in found:
            first, *rest = finding.text.split("\n")
            level = paint(_STYLES[finding.level], f"{finding.level:<{width}}")
            yield f"  {level}  {visible(first)}"
            for line in (*rest, *(f"-> {each}" for each in finding.remedy.splitlines())):
                yield f"  {'':{width}}  {visible(line)}"
    counts = Counter(finding.level for finding in findings)
    told = [
        counted(counts[level], level) for level in (Level.PROBLEM, Level.WARNING) if counts[level]
    ]
    yield ""
    yield ", ".join(told) if told else "All is well."
