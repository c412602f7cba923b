"""Talk to Samsung SCP's Multi-node GPU Cluster API: credentials, signed requests and paged lists.

Resources, look-ups and commands of the package get their `ScpClient` from `get_client`.
"""

from gpuform.providers.scp.client.client import ScpClient, get_client
from gpuform.providers.scp.client.credentials import (
    find_api_version,
    find_default_region,
    get_base_url,
)

__all__ = ["ScpClient", "find_api_version", "find_default_region", "get_base_url", "get_client"]
