"""The errors of whole stacks; those of one platform are in `gpuform.providers.errors`."""

from gpuform.schemas.errors import UserError


class EngineError(UserError):
    """The root of the errors of stacks: their files, states, programs and runs.

    `path` is the property of a resource that it is about, if it is about one.
    """

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message, hint)
        self.path = path


USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`): the state is the same"
"""The hint for what the embedded engine refuses."""
