"""Define the error of clusters and credentials out of reach."""

from gpuform.stacks.engine.errors import EngineError


class NoAccess(EngineError):
    """Raised for a cluster out of reach, or credentials that cannot be stored."""

    help_page = "guides/access"
