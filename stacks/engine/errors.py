"""Define the parent of the errors of stacks; `gpuform.providers.errors` has those of platforms."""

from gpuform.schemas.errors import GpuformError


class EngineError(GpuformError):
    """The parent of the errors of stacks: their files, states, programs and runs."""

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message, hint)
        self.property_path = path


USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`), which uses the same state"
"""The hint for what the embedded engine refuses."""
