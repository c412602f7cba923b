"""What the engine runs programs with that are topologies."""

from gpuform.stacks.engine.language_host import TopologyRun


def run_topology(run: TopologyRun) -> None:
    """Declares what the topology says, without Pulumi's SDK between it and the engine."""
    from gpuform.stacks.program import declare_topology  # noqa: PLC0415 - only for a topology

    declare_topology(run)
