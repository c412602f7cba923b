"""The errors of gpuform's providers, each one message for the user.

GpuformError                  the root of all errors for users
├── ApiError                  the platform answered with an error
│   ├── AuthError             401: the key is not accepted
│   ├── NoCredit              402: the account has no credit left
│   ├── PermissionDenied      403: the key may not do this
│   ├── NotFound              404, in the platform's own error document
│   ├── Conflict              409: the state of the object forbids it
│   │   └── OutOfCapacity     the platform has no such GPUs at the moment
│   ├── InvalidRequest        400, 422: the platform refuses the values
│   ├── RateLimited           429
│   └── ServerError           5xx, or an answer that cannot be understood
│       ├── ForeignAnswer     it is not the platform's own
│       └── Contradicted      one says gone, another shows the object
├── Unreachable               the request certainly never left this machine
├── UnknownOutcome            the request may have had its effect; no answer shows
├── Unfinished                a change may be done, all of it or in part
├── MissingCredentials        no key is configured
├── NotReady                  waiting ended before the object was as wanted
│   └── NotShown              the platform does not show the object
├── Cancelled                 the run was interrupted
├── AmbiguousObject           several objects could be the one that was created
├── AdoptionQuestion          only the user can say whether objects are ours
├── NothingMade               a create that was looked for made nothing
├── NameTaken                 an object of that name exists and is not ours
├── NotAllowed                it destroys what only a named permission may destroy
├── UnplannedRemoval          it removes more nodes than the plan, or than were drained
├── UnsupportedKind           the platform has no such resource
└── BrokenPlatform            what announces the platform does not serve

Messages never contain credentials or whole bodies of answers. Library errors never cross this
room: nothing that httpx, pydantic or tenacity raises reaches a caller.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from gpuform.schemas.errors import GpuformError as GpuformError  # noqa: PLC0414 - the tree's root
from gpuform.schemas.safe_text import escape_invisible

T = TypeVar("T")


class ApiError(GpuformError):
    """The platform answered with an error status.

    `code` is the platform's own error code and `request_id` its name for the request, where the
    answer has them.
    """

    def __init__(  # noqa: PLR0913 - the facts of one answer, all by keyword
        self,
        message: str,
        *,
        method: str,
        path: str,
        status: int,
        code: str | None = None,
        request_id: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.method = method
        self.path = path
        self.status = status
        self.code = code
        self.request_id = request_id

    @property
    def is_definite(self) -> bool:
        """True if the request certainly had no effect: a 4xx other than a time-out.

        False if an earlier attempt may have had its effect: the platform may refuse a repetition
        because the first attempt is under way.
        """
        is_refusal = 400 <= self.status < 500 and self.status != 408
        return is_refusal and not self.has_unanswered_attempt


class AuthError(ApiError):
    """401: the platform does not accept the key."""

    help_page = "start/index"


class NoCredit(ApiError):
    """402: the account has no credit left; nothing was done."""

    help_page = "guides/capacity"


class PermissionDenied(ApiError):
    """403: the key is valid and may not do this."""

    help_page = "start/index"


class NotFound(ApiError):
    """404: there is no such object, and the platform itself says so."""


class Conflict(ApiError):
    """409: the state of the object, or of another one, forbids the request."""


class OutOfCapacity(Conflict):
    """The platform has no free GPUs of that kind at the moment; nothing was created."""

    help_page = "guides/capacity"


class InvalidRequest(ApiError):
    """400 or 422: the platform refuses the values."""


class RateLimited(ApiError):
    """429: too many requests, also after the retries. `retry_after` is in seconds."""

    help_page = "guides/troubleshooting"

    retry_after: float | None = None


class ServerError(ApiError):
    """5xx, or an answer that cannot be understood; the request may have had its effect.

    `retry_after` is in seconds.
    """

    help_page = "guides/troubleshooting"

    retry_after: float | None = None


class ForeignAnswer(ServerError):
    """An answer in no form of the platform's: a proxy's page, or another service at the address.

    It says nothing of any object.
    """

    @property
    def is_definite(self) -> bool:
        """False: an answer that is not the platform's proves nothing about the request."""
        return False


class Contradicted(ServerError):
    """An object answers that it is gone, and the platform shows it elsewhere."""

    help_page = "concepts/gone"

    @property
    def is_definite(self) -> bool:
        """False: the platform contradicts its own answer, so the 404 proves nothing."""
        return False


class Unreachable(GpuformError):
    """The platform could not be reached: the request certainly never left."""

    help_page = "guides/troubleshooting"


class UnknownOutcome(GpuformError):
    """The request may have reached the platform, and no answer shows its outcome."""

    help_page = "concepts/intents"


class Unfinished(GpuformError):
    """Nobody knows whether a change of an object is done, or all of it.

    The object keeps its old outputs and is not ready, so that the next run goes on.
    """

    help_page = "guides/troubleshooting"


class MissingCredentials(GpuformError):
    """No key for the platform is configured; `page` explains how to get one."""

    def __init__(self, message: str, hint: str | None = None, *, page: str = "start/index") -> None:
        super().__init__(message, hint)
        self.help_page = page


class NotReady(GpuformError, Generic[T]):
    """Waiting ended before the object was as wanted.

    `reason` is one line that fits into state; `last` is the last look at the object, if any.
    """

    help_page = "concepts/lifecycle"

    def __init__(self, reason: str, *, last: T | None = None) -> None:
        super().__init__(reason)
        self.reason = escape_invisible(reason)
        self.last = last

    def redact(self, redact_text: Callable[[str], str]) -> None:
        """Mask secrets in the error's texts, and drop the last observed value."""
        super().redact(redact_text)
        self.last = None


class NotShown(NotReady[T]):
    """The platform does not show the object: it is gone, or a replica lags behind."""


class Cancelled(NotReady[T]):
    """The run was interrupted: no new request is sent, and waiting ends."""

    def __init__(self, reason: str = "interrupted", *, last: T | None = None) -> None:
        super().__init__(reason, last=last)


class AmbiguousObject(GpuformError):
    """Several objects could be the one that a lost request created; none is taken."""

    help_page = "concepts/intents"


class AdoptionQuestion(GpuformError):
    """Objects may be what an interrupted create made, and nothing proves it; none is taken."""

    help_page = "concepts/intents"


class NothingMade(GpuformError):
    """An interrupted create was only looked for, and it has made nothing."""

    help_page = "concepts/intents"


class NameTaken(GpuformError):
    """An object of that name exists, and no record of this project says that it is ours."""

    help_page = "guides/adopt"


class NotAllowed(GpuformError):
    """It would destroy what only a permission of this run may destroy; nothing was sent."""

    help_page = "concepts/lifecycle"


class UnplannedRemoval(GpuformError):
    """It would remove more nodes or GPUs than planned, or than were drained; nothing was sent."""

    help_page = "concepts/saved-plans"


class UnsupportedKind(GpuformError):
    """The platform has no resource of that kind."""

    help_page = "reference/platforms/index"


class BrokenPlatform(GpuformError):
    """A platform is announced by an installed distribution, and cannot be used."""

    help_page = "guides/add-a-platform"
