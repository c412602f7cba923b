"""Give the errors of stacks their parent; `gpuform.providers.errors` has those of platforms."""

from gpuform.schemas.errors import EngineError as EngineError  # noqa: PLC0414 - for all of `stacks`

USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`), which uses the same state"
"""The hint for what the embedded engine refuses."""
