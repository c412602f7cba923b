"""Why an object does not become the stack's."""

from gpuform.stacks.engine.errors import EngineError


class NotImported(EngineError):
    """An object that is not imported; nothing was changed."""

    page = "guides/adopt"
