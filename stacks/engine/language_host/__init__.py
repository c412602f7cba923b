"""Run an unmodified Pulumi program in this process, against an in-process resource monitor.

`deployment` calls this package; the monitor calls the step generator and the step executor.
`convert`
and others record what a program declares.
"""

from gpuform.stacks.engine.language_host.language import (
    Ended,
    ResourceDeclarer,
    ResourceResult,
    TopologyRun,
    TopologyRunner,
    find_topology,
    run_program,
)
from gpuform.stacks.engine.language_host.monitor import Monitor, ProgramTarget
from gpuform.stacks.engine.language_host.program_errors import ProgramError
from gpuform.stacks.engine.language_host.recording import Recorded, record
from gpuform.stacks.engine.language_host.services import Engine, Program, print_to_events

__all__ = [
    "Ended",
    "Engine",
    "Monitor",
    "Program",
    "ProgramError",
    "ProgramTarget",
    "Recorded",
    "ResourceDeclarer",
    "ResourceResult",
    "TopologyRun",
    "TopologyRunner",
    "find_topology",
    "print_to_events",
    "record",
    "run_program",
]
