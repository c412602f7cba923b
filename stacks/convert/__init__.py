"""Convert declarations between forms: topologies, programs, states and Terraform's files.

The package defines the errors of conversions; its modules and packages have the conversions.
"""

from collections.abc import Sequence
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import DocumentDiagnostic


class NotConverted(EngineError):
    """Raised with everything that prevents a conversion; nothing was written."""

    def __init__(self, problems: Sequence[DocumentDiagnostic]) -> None:
        self.problems = problems
        problem_lines = "".join(f"\n{_format_problem(problem)}" for problem in problems)
        super().__init__(f"the source cannot be converted; nothing was written:{problem_lines}")


class TerraformNotRead(EngineError):
    """Raised for files of Terraform that are missing or cannot be read."""

    help_page = "guides/terraform"


NOWHERE: Final = 0
"""The line number of positions without a line."""


def _format_problem(problem: DocumentDiagnostic) -> str:
    """Return the problem as text, without the line number where the position has none."""
    if problem.position.line != NOWHERE:
        return str(problem)
    return f"{problem.position.file}: {problem.message}" + (
        f"\n  {problem.hint}" * bool(problem.hint)
    )
