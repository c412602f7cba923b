"""Run an unmodified Pulumi program in this process, against an in-process resource monitor.

`deployment` calls this package; the monitor calls the step generator and the step executor.
`convert` and others record what a program declares.
"""

from gpuform.stacks.engine.language_host.language import (
    Recorded,
    TopologyRun,
    TopologyRunner,
    find_topology,
    record,
    run_program,
)
from gpuform.stacks.engine.language_host.monitor import Monitor
from gpuform.stacks.engine.language_host.program_errors import ProgramError
from gpuform.stacks.engine.language_host.services import (
    Ended,
    Engine,
    Program,
    ProgramTarget,
    ResourceResult,
    print_to_events,
)

__all__ = [
    "Ended",
    "Engine",
    "Monitor",
    "Program",
    "ProgramError",
    "ProgramTarget",
    "Recorded",
    "ResourceResult",
    "TopologyRun",
    "TopologyRunner",
    "find_topology",
    "print_to_events",
    "record",
    "run_program",
]
