"""The edge to the host of a lifecycle, which prints the traceback of whatever passes it."""

import logging
import traceback
from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from gpuform.providers.calls.call import Call, current_call, serving
from gpuform.providers.errors import GpuformError

logger = logging.getLogger("gpuform")


class Edge(AbstractContextManager[Call]):
    """The edge to the host: the current call, and only gpuform's errors, without causes or frames.

    Nothing that passes it says one of the `secrets`, or of those that the call hides besides.
    The stock host prints tracebacks. This is a class because contextlib gives an exception that
    passes a generator its old frames back.
    """

    def __init__(self, verb: str, subject: str, secrets: Iterable[Any] = ()) -> None:
        self._verb, self._subject = verb, subject
        self._call = current_call()
        self._call.hide(secrets)
        self._serving = serving(self._call)

    def __enter__(self) -> Call:
        return self._serving.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._serving.__exit__(kind, error, trace)
        if isinstance(error, GpuformError):
            error.redact(self._call.redacted)
            raise error.with_traceback(None) from None
        if isinstance(error, Exception):  # its text may hold values: none may pass
            subject = self._call.urn or self._subject
            raise GpuformError(unexpected(f"{self._verb} of {subject}", error)) from None


def unexpected(what: str, error: Exception) -> str:
    """What to say of an error that nobody foresaw: its type alone; the frames go to the log."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.debug("%s failed with %s:\n%s", what, type(error).__name__, frames)
    return f"{what} failed: unexpected {type(error).__name__} (this is an error in gpuform)"
