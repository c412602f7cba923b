"""Hold what a run was asked: permissions, answers, requested repairs and the platforms' settings.

Commands, operations and Pulumi's hosts read the environment once, into a `RunContext`; the run's
child processes get its `environ` as theirs. `ProviderContext.run` passes it to lifecycles.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gpuform.providers import permissions
from gpuform.providers.context.clock import Clock, get_clock
from gpuform.providers.errors import NotAllowed
from gpuform.providers.permissions import Permission
from gpuform.schemas.errors import EngineError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

READS_ONLY: Final = "GPUFORM_READS_ONLY"
"""The environment variable under which a process changes neither a platform nor a state."""


@dataclass(frozen=True)
class RunContext:
    """What one run was asked, as environment variables, which its child processes understand too.

    Two runs of one process have a context each, and do not see each other's.
    """

    environ: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        # A copy: later changes of the process's variables belong to no run that has begun.
        object.__setattr__(self, "environ", MappingProxyType(dict(self.environ)))

    def with_variables(self, variables: Mapping[str, str]) -> "RunContext":
        """Return a copy in which these variables have these values."""
        return RunContext({**self.environ, **variables}) if variables else self

    def with_permissions(self, names: Iterable[str]) -> "RunContext":
        """Return a copy that has these permissions, too. Raises EngineError for an unknown name."""
        merged = self.permissions | permissions.parse_permissions(",".join(names))
        variables = {permissions.VARIABLE: ",".join(sorted(merged))} if merged else {}
        return self.with_variables(variables)

    @cached_property
    def permissions(self) -> frozenset[str]:
        """The permissions of the run. Raises EngineError for an unknown name."""
        try:
            return permissions.parse_permissions(self.environ.get(permissions.VARIABLE, ""))
        except EngineError as error:
            raise EngineError(f"{permissions.VARIABLE}: {error.message}", hint=error.hint) from None

    def require_permission(self, permission: Permission, refusal: str) -> None:
        """Raise NotAllowed with `refusal` and a hint, unless the run has the permission."""
        if permission not in self.permissions:
            raise NotAllowed(
                refusal,
                hint=f"to allow this: --allow {permission}, or {permissions.VARIABLE}={permission} "
                "in the environment (with `pulumi` only the variable)",
            )

    @cached_property
    def adopted_ids(self) -> frozenset[str]:
        """The ids of existing objects that the run takes over as its own (`--adopt ID`)."""
        text = self.environ.get(permissions.ADOPT_VARIABLE, "")
        return frozenset(filter(None, map(str.strip, text.split(","))))

    @property
    def creates_anew(self) -> bool:
        """True if the run may create an object beside same-named ones (`--create-anew`)."""
        return self.environ.get(permissions.ANEW_VARIABLE, "") in ("1", "true")

    @cached_property
    def requested_repairs(self) -> Mapping[str, str]:
        """The nodes whose repair the run was asked for, each with its mode.

        The mode is empty if any kind of repair will do.
        """
        text = self.environ.get(permissions.REPAIR_VARIABLE, "")
        pairs = (entry.strip().partition("=") for entry in text.split(",") if entry.strip())
        return MappingProxyType({name.strip(): mode.strip() for name, _, mode in pairs})

    @cached_property
    def reviewed_repairs(self) -> frozenset[str]:
        """The keys (`compute_repair_key`) of the repairs that a reviewed plan has shown."""
        text = self.environ.get(permissions.REVIEWED_VARIABLE, "")
        return frozenset(filter(None, text.split(",")))

    @property
    def is_read_only(self) -> bool:
        """True if the run may change neither a platform nor a state."""
        return bool(self.environ.get(READS_ONLY))

    @property
    def clock(self) -> Clock:
        """The clock of the run: the machine's, or that of the emulator at GPUFORM_CLOCK."""
        return get_clock(self.environ)


_current: ContextVar[RunContext | None] = ContextVar("gpuform_run", default=None)


@contextmanager
def use_run_context(run: RunContext) -> Iterator[RunContext]:
    """Make `run` the context of calls without one of their own, in this thread or task."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


def create_thread_pool(threads: int, name: str) -> "ThreadPoolExecutor":
    """Return a pool whose threads have the run context of this thread; `name` begins theirs."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - few commands need threads

    return ThreadPoolExecutor(threads, name, _current.set, (_current.get(),))


def read_run_context() -> RunContext:
    """Return the context of `use_run_context`, else read the environment of this process.

    Programs and Pulumi's hosts have a process each: its environment says what was asked.
    """
    return _current.get() or RunContext(os.environ)
