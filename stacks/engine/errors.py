"""The errors of whole stacks; those of one platform are in `gpuform.providers.errors`."""

from gpuform.schemas.errors import UserError


class EngineError(UserError):
    """The root of the errors of stacks: their files, states, programs and runs."""


USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`): the state is the same"
"""The hint for what the embedded engine refuses."""
