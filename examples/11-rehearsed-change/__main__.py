"""Run the topology with gpuform, so that `pulumi up` works here as well."""

from gpuform.stacks import run

run("topology.yaml")
