"""The root of every error that the embedded engine shows to a person."""


class EngineError(Exception):
    """What went wrong and where, in one or two sentences; `hint` says what to do about it.

    A command shows the text and the hint without a traceback, so neither may hold a secret. `path`
    is the property of a resource that it is about, if it is about one.
    """

    def __init__(self, message: str, hint: str | None = None, *, path: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.path = path


USE_THE_CLI = "run this stack with the Pulumi CLI (`pulumi up`): the state is the same"
"""The hint for what the embedded engine refuses."""
