"""Load, expand, check and register topology files.

`planning.plan` is the entry point: `loading` reads the files, `expanding` applies `for_each` and
`when`, and `scope` evaluates the values. `declaring` declares the result to gpuform's engine,
`registering` registers it with Pulumi's SDK. The operations give the engine `run_topology`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuform.stacks.engine.language_host import TopologyRun


def run_topology(run: "TopologyRun") -> None:
    """Declare the resources of a topology, without Pulumi's SDK."""
    from gpuform.stacks.topology_program import declare_topology  # noqa: PLC0415 - only for a topology

    declare_topology(run)
