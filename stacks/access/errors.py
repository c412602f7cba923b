"""Why somebody does not get on a cluster."""

from gpuform.stacks.engine.errors import EngineError


class NoAccess(EngineError):
    """A cluster that cannot be reached as asked, or whose credentials cannot be kept."""

    help_page = "guides/access"
