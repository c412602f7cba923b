"""A refusal, as the registry would answer it."""

from gpuform.providers.emulator.routing import Refusal


class ApiError(Refusal):
    """Answered as `{"error": message}` with this status."""


def failed(message: str) -> ApiError:
    """500: the registry has no other status for what MongoDB or Mongoose refuses."""
    return ApiError(500, message)


def not_found() -> ApiError:
    return ApiError(404, "Cluster not found")
