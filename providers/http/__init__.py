"""Send requests to platforms' APIs: retries, errors of answers, and lists that many readers share.

Platforms build their clients from this package; no other package imports httpx for a platform.
"""

from gpuform.providers.http.answers import ErrorAnswers, compute_clock_ahead, parse_retry_after
from gpuform.providers.http.client import (
    ApiClient,
    Clients,
    ProbeAnswer,
    Retry,
    append_path,
    build_bearer_headers,
    build_path,
    close_all_clients,
    convert_httpx_errors,
    probe_platform,
    send_probe,
)
from gpuform.providers.http.listing import (
    Listing,
    PlanningLists,
    build_contradiction_error,
)

__all__ = [
    "ApiClient",
    "Clients",
    "ErrorAnswers",
    "Listing",
    "PlanningLists",
    "ProbeAnswer",
    "Retry",
    "append_path",
    "build_bearer_headers",
    "build_contradiction_error",
    "build_path",
    "close_all_clients",
    "compute_clock_ahead",
    "convert_httpx_errors",
    "parse_retry_after",
    "probe_platform",
    "send_probe",
]
