"""Refusals, as an API server words them."""

from typing import Any

from gpuform.providers.emulator.routing import Refusal

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class StatusError(Refusal):
    """Answered with `status` and a Status object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(status, message)
        self.body = failure(status, message, reason=reason, details=details)


def failure(
    status: int, message: str, *, reason: str | None = None, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A Status object of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(status, "Unknown"),
        **({"details": details} if details else {}),
        "code": status,
    }


def not_found(resource: str, name: str) -> StatusError:
    details = {"name": name, "kind": resource}
    return StatusError(404, f'{resource} "{name}" not found', details=details)


def conflict(resource: str, name: str) -> StatusError:
    message = (
        f'Operation cannot be fulfilled on {resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return StatusError(409, message, details={"name": name, "kind": resource})


def invalid(kind: str, name: str, problems: list[tuple[str, str]]) -> StatusError:
    """422: pairs of a field's path and what is wrong with it."""
    causes = [
        {"reason": "FieldValueInvalid", "message": message, "field": field}
        for field, message in problems
    ]
    told = ", ".join(f"{field}: {message}" for field, message in problems)
    return StatusError(
        422,
        f'{kind} "{name}" is invalid: {told}',
        details={"name": name, "kind": kind, "causes": causes},
    )
