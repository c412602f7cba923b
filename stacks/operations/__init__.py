"""Offer the operations on a stack to commands and programs: options in, a typed result out.

Python programs and the command line import these names. Nothing here prints, asks a terminal,
handles signals or ends the process. Operations in several threads may run at the same time, each
with its own variables and permissions. Python programs run in this process, one after the other;
while one runs, its variables are those of the process. Events go to `on_event`, questions to
`confirm` and `ask_passphrase`.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.stacks.operations.automation import (
        Confirm,
        OnEvent,
        destroy,
        drift,
        expire,
        export_stack,
        import_resources,
        import_stack,
        outputs,
        preview,
        refresh,
        repair,
        status,
        up,
    )
    from gpuform.stacks.operations.importing import ImportResult
    from gpuform.stacks.operations.multi_stack.automation import (
        ConfirmAll,
        OnLine,
        StackSelection,
        destroy_all,
        preview_all,
        refresh_all,
        up_all,
    )
    from gpuform.stacks.operations.multi_stack.runner import MultiStackResult
    from gpuform.stacks.operations.opening.selected_stack import (
        SelectedStack,
        create_or_select_stack,
        create_stack,
        select_stack,
    )
    from gpuform.stacks.operations.runs.callbacks import (
        Cancellation,
        Interrupted,
        Message,
        OperationEvent,
        RunEnded,
        RunStarted,
    )
    from gpuform.stacks.operations.runs.options import (
        ExitReason,
        ImportOptions,
        OutputValue,
        RunOptions,
        RunResult,
    )
    from gpuform.stacks.operations.status_reading import DriftResult
    from gpuform.stacks.operations.topology_export import (
        AppliedTopology,
        TopologyOptions,
        TopologyResult,
        apply_topology,
        read_topology,
    )

__all__ = [
    "AppliedTopology",
    "Cancellation",
    "Confirm",
    "ConfirmAll",
    "DriftResult",
    "ExitReason",
    "ImportOptions",
    "ImportResult",
    "Interrupted",
    "Message",
    "MultiStackResult",
    "OnEvent",
    "OnLine",
    "OperationEvent",
    "OutputValue",
    "RunEnded",
    "RunOptions",
    "RunResult",
    "RunStarted",
    "SelectedStack",
    "StackSelection",
    "TopologyOptions",
    "TopologyResult",
    "apply_topology",
    "create_or_select_stack",
    "create_stack",
    "destroy",
    "destroy_all",
    "drift",
    "expire",
    "export_stack",
    "import_resources",
    "import_stack",
    "outputs",
    "preview",
    "preview_all",
    "read_topology",
    "refresh",
    "refresh_all",
    "repair",
    "select_stack",
    "status",
    "up",
    "up_all",
]

_HOMES = {
    "automation": "Confirm OnEvent destroy drift expire export_stack import_resources import_stack"
    " outputs preview refresh repair status up",
    "status_reading": "DriftResult",
    "importing": "ImportResult",
    "multi_stack.automation": "ConfirmAll OnLine StackSelection destroy_all preview_all refresh_all"
    " up_all",
    "multi_stack.runner": "MultiStackResult",
    "topology_export": "AppliedTopology TopologyOptions TopologyResult apply_topology"
    " read_topology",
    "opening.selected_stack": "SelectedStack create_or_select_stack create_stack select_stack",
    "runs.callbacks": "Cancellation Interrupted Message OperationEvent RunEnded RunStarted",
    "runs.options": "ExitReason ImportOptions OutputValue RunOptions RunResult",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    # Imported at the first use: `import gpuform.stacks.operations` loads neither grpc nor pulumi.
    for home, names in _HOMES.items():
        if name in names.split():
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
