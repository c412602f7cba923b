"""What cannot be said in the other form, all of it at once."""

from collections.abc import Sequence

from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.errors import EngineError


class NotConverted(EngineError):
    """Names everything that stands in the way; nothing has been written."""

    def __init__(self, problems: Sequence[Diagnostic]) -> None:
        self.problems = problems
        told = "".join(f"\n{problem}" for problem in problems)
        super().__init__(f"this cannot be converted; nothing was written:{told}")
