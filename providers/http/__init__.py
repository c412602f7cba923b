"""The way to a platform's API: requests and their retries, answers and their errors, lists.

Clients are made of it; nothing else knows httpx.
"""

from gpuform.providers.http.answers import ErrorAnswers, clock_ahead, retry_after
from gpuform.providers.http.client import ApiClient, Retry, at, httpx_errors
from gpuform.providers.http.clients import Answered, Clients, ask_once, probe, with_path
from gpuform.providers.http.listing import Listing, contradicted

__all__ = [
    "Answered",
    "ApiClient",
    "Clients",
    "ErrorAnswers",
    "Listing",
    "Retry",
    "ask_once",
    "at",
    "clock_ahead",
    "contradicted",
    "httpx_errors",
    "probe",
    "retry_after",
    "with_path",
]
