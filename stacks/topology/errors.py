"""Define the error that ends the program of a topology.

The class is in a module of its own because it is Pulumi's, too: `fmt`, `validate` and editors read
topologies without Pulumi, whose import takes longer than all that they do.
"""

from collections.abc import Iterable

import pulumi

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import DocumentDiagnostic


class TopologyError(EngineError, pulumi.RunError):
    """All problems of a topology. Both engines show the error without a traceback."""

    help_page = "reference/topology"

    def __init__(self, diagnostics: Iterable[DocumentDiagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))
