"""The root of every error that a user can meet."""

from collections.abc import Callable

from gpuform.schemas.visible import visible_lines


class UserError(Exception):
    """What went wrong and where, in one or two sentences; `hint` says what to do about it.

    `str(error)` is both, as a command shows them, without a traceback: neither may hold a secret.
    Characters that cannot be seen stand as their escapes.
    """

    page: str | None = None
    """Where the documentation says more, as `gpuform help` takes it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = visible_lines(message)
        self.hint = None if hint is None else visible_lines(hint)

    def __str__(self) -> str:
        """The message, and the hint below it, indented."""
        return "\n  ".join([self.message, *(self.hint or "").splitlines()])

    @property
    def more(self) -> str | None:
        """The page that a command names below the hint; None where there is none."""
        return self.page if self.hint else None

    def redact(self, redacted: Callable[[str], str]) -> None:
        """Puts every text of the error through a function that takes secrets out."""
        self.args = tuple(redacted(each) if isinstance(each, str) else each for each in self.args)
        for name, value in vars(self).items():
            if isinstance(value, str):
                setattr(self, name, redacted(value))
            elif isinstance(value, UserError):
                value.redact(redacted)
