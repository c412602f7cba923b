"""What an examination has found, on the screen."""

from collections.abc import Sequence

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.doctor.findings import Finding, Level, findings_lines


def show_findings(found: Sequence[Finding], screen: Screen, *, as_json: bool) -> int:
    """Prints them; the exit code."""
    failed = any(finding.level is Level.PROBLEM for finding in found)
    if as_json:
        rows = [
            {
                "area": each.area,
                "level": str(each.level),
                "text": each.text,
                "remedy": each.remedy,
            }
            for each in found
        ]
        document = {"ok": not failed, "findings": rows}
        screen.print(format_json(document, indent=2))
    else:
        screen.print("\n".join(findings_lines(found, screen.paint)))
    return FAILED if failed else SUCCESS
