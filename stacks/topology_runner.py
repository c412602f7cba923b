"""Run topologies in gpuform's engine; the engine gets `run_topology` from the operations."""

from gpuform.stacks.engine.language_host import TopologyRun


def run_topology(run: TopologyRun) -> None:
    """Declare the resources of a topology, without Pulumi's SDK."""
    from gpuform.stacks.topology_program import declare_topology  # noqa: PLC0415 - only for a topology

    declare_topology(run)
