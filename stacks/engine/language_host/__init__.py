"""Runs an unmodified Pulumi program in this process, against an in-process resource monitor."""

from gpuform.stacks.engine.language_host.language import (
    Answer,
    Declarations,
    Ended,
    TopologyRun,
    TopologyRunner,
    run_program,
    topology_of,
)
from gpuform.stacks.engine.language_host.monitor import Monitor, ProgramTarget
from gpuform.stacks.engine.language_host.program_errors import ProgramError
from gpuform.stacks.engine.language_host.recording import Recorded, record
from gpuform.stacks.engine.language_host.services import Engine, Program, print_to_events

__all__ = [
    "Answer",
    "Declarations",
    "Ended",
    "Engine",
    "Monitor",
    "Program",
    "ProgramError",
    "ProgramTarget",
    "Recorded",
    "TopologyRun",
    "TopologyRunner",
    "print_to_events",
    "record",
    "run_program",
    "topology_of",
]
