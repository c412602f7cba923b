"""What a provider raises, for the user."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

from gpuform.providers.errors import GpuformError, NoCredit
from gpuform.stacks.engine.errors import EngineError

_HERE: Final = str(Path(__file__).parent)


class ProviderError(EngineError):
    """A provider refused or failed; the message is for the user.

    `cause` is what one of gpuform's lifecycles raised, redacted: of an `ApiError` it has the
    status, the platform's own code and the request id.
    """

    cause: GpuformError | None = None

    @classmethod
    def of(cls, cause: GpuformError, redacted: Callable[[str], str]) -> Self:
        """The error of a lifecycle. Its message is all of the cause's, with the hint."""
        cause.redact(redacted)
        cause.__traceback__ = cause.__context__ = None  # frames hold what is secret
        made = cls(redacted(str(cause)))
        made.cause = cause
        return made

    @property
    def more(self) -> str | None:
        """The cause's page."""
        return super().more if self.cause is None else self.cause.more


class OutOfCredit(ProviderError):
    """The account has no credit left."""


@contextmanager
def user_errors(redacted: Callable[[str], str] = str) -> Iterator[None]:
    """Turns what a provider raises into a ProviderError, `redacted`.

    gpuform's lifecycles raise messages; of a program's own provider the traceback is what helps.
    """
    try:
        yield
    except (ProviderError, GeneratorExit):
        raise
    except GpuformError as error:
        kind = OutOfCredit if isinstance(error, NoCredit) else ProviderError
        raise kind.of(error, redacted) from None
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a provider may raise anything
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if not frame.filename.startswith(_HERE)]
        told = traceback.format_list(own) + traceback.format_exception_only(error)
        raise ProviderError(
            redacted("Traceback (most recent call last):\n" + "".join(told).rstrip())
        ) from None
