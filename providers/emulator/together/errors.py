"""A refusal, as Together would answer it."""


class ApiError(Exception):
    """Answered as `{"error": {"message", "type", "code"}}` with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def not_found(kind: str, key: str) -> ApiError:
    return ApiError(404, f"{kind} {key!r} not found")
