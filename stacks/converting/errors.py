"""What cannot be said in the other form, all of it at once."""

from collections.abc import Sequence
from typing import Final

from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.errors import EngineError


class NotConverted(EngineError):
    """Names everything that stands in the way; nothing has been written."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        self.problems = problems
        told = "".join(f"\n{_told(problem)}" for problem in problems)
        super().__init__(f"this cannot be converted; nothing was written:{told}")


class TerraformNotRead(EngineError):
    """Files of Terraform that cannot be read, or are not there."""

    page = "guides/terraform"


NOWHERE: Final = 0
"""The line of what no line is known of."""


def _told(problem: Diagnostic) -> str:
    if problem.place.line != NOWHERE:
        return str(problem)
    return f"{problem.place.file}: {problem.message}" + (f"\n  {problem.hint}" * bool(problem.hint))
