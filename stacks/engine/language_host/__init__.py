"""Runs an unmodified Pulumi program in this process, against an in-process resource monitor."""

from gpuform.stacks.engine.language_host.language import run_program
from gpuform.stacks.engine.language_host.monitor import Monitor, ProgramTarget
from gpuform.stacks.engine.language_host.program_errors import ProgramError
from gpuform.stacks.engine.language_host.recording import Recorded, record
from gpuform.stacks.engine.language_host.services import Engine, Program, print_to_events
from gpuform.stacks.engine.language_host.topologies import (
    Answer,
    Declarations,
    Ended,
    TopologyRun,
    TopologyRunner,
    topology_of,
)

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
