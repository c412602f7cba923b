"""Give users access to clusters: commands for kubectl and SSH, and entries in the users' files.

The package defines the error of a cluster out of reach.
"""

from gpuform.schemas.errors import EngineError


class NoAccess(EngineError):
    """Raised for a cluster out of reach, or credentials that cannot be stored."""

    help_page = "guides/access"
