"""A refusal, as the registry would answer it."""


class ApiError(Exception):
    """Answered as `{"error": message}` with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def failed(message: str) -> ApiError:
    """500: the registry has no other status for what MongoDB or Mongoose refuses."""
    return ApiError(500, message)


def not_found() -> ApiError:
    return ApiError(404, "Cluster not found")
