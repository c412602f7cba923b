"""Print the findings of `gpuform doctor` and `gpuform plugin doctor`."""

from collections.abc import Sequence

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.doctor.findings import Finding, Level, render_findings


def show_findings(findings: Sequence[Finding], screen: Screen, *, as_json: bool) -> int:
    """Print the findings, and return exit code 1 if one is a problem."""
    failed = any(finding.level is Level.PROBLEM for finding in findings)
    if as_json:
        rows = [
            {
                "area": finding.area,
                "level": str(finding.level),
                "text": finding.text,
                "remedy": finding.remedy,
            }
            for finding in findings
        ]
        document = {"ok": not failed, "findings": rows}
        screen.print(format_json(document, indent=2))
    else:
        screen.print("\n".join(render_findings(findings, screen.paint)))
    return FAILED if failed else SUCCESS
