"""Define the root of the errors of stacks; `gpuform.providers.errors` has those of one platform."""

from gpuform.schemas.errors import UserError


class EngineError(UserError):
    """The root of the errors of stacks: their files, states, programs and runs.

    `path` is the property of a resource that the error is about, or empty.
    """

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message, hint)
        self.path = path


USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`), which uses the same state"
"""The hint for what the embedded engine refuses."""
