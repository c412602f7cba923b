"""A refusal, as TensorOne would answer it (documentation, 'Error Handling'): flat, no envelope."""

from typing import Any

from gpuform.providers.emulator.routing import Refusal

CODES = {
    400: "VALIDATION_ERROR",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "RESOURCE_NOT_FOUND",
    409: "STATE_CONFLICT",
    422: "SEMANTIC_ERROR",
    429: "RATE_LIMIT_EXCEEDED",
    500: "INTERNAL_ERROR",
    502: "BAD_GATEWAY",
    503: "SERVICE_UNAVAILABLE",
}


class ApiError(Refusal):
    """Answered with this status and the code that belongs to it."""

    def __init__(self, status: int, message: str, **details: Any) -> None:
        super().__init__(status, message)
        self.details = details

    def body(self, request_id: str, timestamp: str) -> dict[str, Any]:
        return {
            "error": CODES.get(self.status, "INTERNAL_ERROR"),
            "message": self.message,
            "code": self.status,
            **({"details": self.details} if self.details else {}),
            "request_id": request_id,
            "timestamp": timestamp,
        }


def invalid(field: str, reason: str) -> ApiError:
    """400. The documented message says little; ours says what the details say."""
    return ApiError(
        400, f"Request validation failed: {field}: {reason}", field=field, reason=reason
    )


def not_found(resource: str, key: str) -> ApiError:
    return ApiError(404, f"{resource.capitalize()} not found", resource=resource, id=key)


def conflict(message: str, current: str, required: str) -> ApiError:
    return ApiError(409, message, current_state=current, required_state=required)
