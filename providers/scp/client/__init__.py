"""The client of Samsung SCP's API: signed requests, paging, and what its answers mean."""

from gpuform.providers.scp.client.client import ScpClient, address, client_for
from gpuform.providers.scp.client.credentials import default_region

__all__ = [
    "ScpClient",
    "address",
    "client_for",
    "default_region",
]
