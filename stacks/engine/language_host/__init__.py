"""Runs an unmodified Pulumi program in this process, against an in-process resource monitor."""

from gpuform.stacks.engine.language_host import language
from gpuform.stacks.engine.language_host.language import Program
from gpuform.stacks.engine.language_host.monitor import Engine, Monitor, Target
from gpuform.stacks.engine.language_host.recording import Recorded, record

__all__ = [
    "Engine",
    "Monitor",
    "Program",
    "Recorded",
    "Target",
    "language",
    "record",
]
