"""Define `GpuformError`, the root of all errors that a command shows without a traceback."""

from collections.abc import Callable

from gpuform.schemas.safe_text import escape_invisible_lines


class GpuformError(Exception):
    """An error that a person can act on: what went wrong and where; `hint` says what to do.

    `str(error)` is the message and the hint as a command shows them; neither may contain a secret.
    Invisible characters are escaped.
    """

    help_page: str | None = None
    """The page of the documentation that explains the error, as `gpuform help` accepts it."""
    exit_code: int = 1
    """The exit code of a command that the error ends."""
    property_path: str = ""
    """The property of a resource that the error is about, or empty."""
    has_unanswered_attempt: bool = False
    """True if an earlier attempt of the failed request got no answer, or none that shows its
    effect."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = escape_invisible_lines(message)
        self.hint = None if hint is None else escape_invisible_lines(hint)

    def __str__(self) -> str:
        """Return the message, and the hint below it, indented."""
        return "\n  ".join([self.message, *(self.hint or "").splitlines()])

    @property
    def shown_help_page(self) -> str | None:
        """The documentation page to show below the hint; None without a hint or a page."""
        return self.help_page if self.hint else None

    def redact(self, redact_text: Callable[[str], str]) -> None:
        """Replace every text of this error, and of errors inside, by `redact_text(text)`."""
        self.args = tuple(
            redact_text(argument) if isinstance(argument, str) else argument
            for argument in self.args
        )
        for name, value in vars(self).items():
            if isinstance(value, str):
                setattr(self, name, redact_text(value))
            # a cause is shown with the error, so secrets must not survive in the cause either
            elif isinstance(value, GpuformError):
                value.redact(redact_text)


class EngineError(GpuformError):
    """The parent of the errors of stacks: their files, states, programs and runs."""

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message, hint)
        self.property_path = path
