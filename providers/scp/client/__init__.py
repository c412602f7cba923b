"""Talk to Samsung SCP's Multi-node GPU Cluster API: credentials, signed requests and paged lists.

Resources, look-ups and commands of the package get their `ScpClient` from `client_for`.
"""

from gpuform.providers.scp.client.client import ScpClient, address, client_for
from gpuform.providers.scp.client.credentials import find_default_region

__all__ = [
    "ScpClient",
    "address",
    "client_for",
    "find_default_region",
]
