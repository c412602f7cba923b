"""The root of every error that a user can meet."""

from gpuform.schemas.visible import visible_lines


class UserError(Exception):
    """What went wrong and where, in one or two sentences; `hint` says what to do about it.

    `str(error)` is both, as a command shows them, without a traceback: neither may hold a secret.
    Characters that cannot be seen stand as their escapes. `path` is the property of a resource that
    it is about, if it is about one.
    """

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message)
        self.message = visible_lines(message)
        self.hint = None if hint is None else visible_lines(hint)
        self.path = path

    def __str__(self) -> str:
        """The message, and the hint below it, indented."""
        return "\n  ".join([self.message, *(self.hint or "").splitlines()])
