"""A refusal, as Together would answer it."""

from gpuform.providers.emulator.routing import Refusal


class ApiError(Refusal):
    """Answered as `{"error": {"message", "type", "code"}}` with this status."""


def not_found(kind: str, key: str) -> ApiError:
    return ApiError(404, f"{kind} {key!r} not found")
