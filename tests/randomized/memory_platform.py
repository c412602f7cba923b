"""A platform in memory whose calls can fail, and the Pulumi resource that random programs declare.

A machine's `rack` forces a replacement and its `slot` one that deletes first; while it has a
`lazy`, the comparison is left to the engine; everything else changes in place.
"""

import threading
from dataclasses import dataclass, field
from typing import Any

from pulumi import Output
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)

from gpuform.providers.context import get_current_context
from gpuform.stacks.engine.urn import name_of

TYPE = "pulumi-python:dynamic/randomized:Machine"
OUTSIDE = ("o-1", "o-2")
"""Objects of somebody else that programs read."""
SECRETS = frozenset({"token", "tags"})
MUTATING = frozenset({"create", "update", "delete"})


@dataclass(frozen=True)
class Fault:
    """The calls of a verb for the resources of a name fail, all of them or the first alone.

    `how`: `raise`; `refuse` an input (check); leave an object that is not ready (create, update).
    """

    verb: str
    name: str
    how: str
    once: bool = False


@dataclass(frozen=True)
class ProviderCall:
    """One call of a provider; `id` is that of the created object for a successful create."""

    verb: str
    urn: str
    id: str = ""


@dataclass
class MemoryPlatform:
    """The objects by id, and all calls and faults of their platform.

    With `moving` an update gives the object another address, as a replacement does.
    """

    moving: bool = False
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[ProviderCall] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    before_create: Any = None
    _used: set[Fault] = field(default_factory=set)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin_run(self, *faults: Fault) -> None:
        """Forget earlier calls, and set the faults of the next run."""
        self.calls, self.faults, self._used = [], list(faults), set()

    def create(self, properties: dict[str, Any]) -> str:
        """Create an object and return the id."""
        with self._lock:
            id_ = f"m-{self._next()}"
            self.objects[id_] = {**properties, "address": f"10.0.0.{self._number}"}
        return id_

    def change(self, id_: str, properties: dict[str, Any]) -> None:
        """Replace all properties of an object."""
        with self._lock:
            address = self.objects[id_]["address"]
            if self.moving:
                address = f"10.0.0.{self._next()}"
            self.objects[id_] = {**properties, "address": address}

    def record_call(self, verb: str, urn: str, id_: str = "") -> str:
        """Record a call, and return the failure, or "" for a success."""
        with self._lock:
            self.calls.append(ProviderCall(verb, urn, id_))
            for fault in self.faults:
                if (fault.verb, fault.name) == (verb, name_of(urn)) and fault not in self._used:
                    if fault.once:
                        self._used.add(fault)
                    return fault.how
        return ""

    def _next(self) -> int:
        self._number += 1
        return self._number


CURRENT = MemoryPlatform()


def use_platform(platform: MemoryPlatform) -> MemoryPlatform:
    """Make `platform` the platform of this process's providers, and return `platform`."""
    global CURRENT  # noqa: PLW0603 - pickled providers find their platform by this name
    CURRENT = platform
    return platform


def _remove_internal_properties(props: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in props.items() if key not in ("__provider", "address")}


def _record_call(verb: str, id_: str = "") -> str:
    """Record the current call, and raise or return the failure, or "" for a success."""
    how = CURRENT.record_call(verb, get_current_context().urn or "", id_)
    if how == "raise":
        raise RuntimeError(f"no {verb} today")
    return how


class Machines(ResourceProvider):
    """The provider: check and diff are pure, the other calls work on the current platform."""

    def check(self, olds, news):
        refused = _record_call("check") == "refuse"
        return CheckResult(news, [CheckFailure("size", "is refused")] if refused else [])

    def diff(self, id, olds, news):  # noqa: A002 - Pulumi's name
        _record_call("diff", id)
        if "lazy" in news:
            return DiffResult()
        before, after = _remove_internal_properties(olds), _remove_internal_properties(news)
        changed = [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
        return DiffResult(
            changes=bool(changed),
            replaces=sorted(k for k in changed if k in ("rack", "slot")),
            delete_before_replace="slot" in changed,
        )

    def create(self, props):
        urn = get_current_context().urn or ""
        if CURRENT.before_create:
            CURRENT.before_create(urn)
        how = _record_call("create")
        id_ = CURRENT.create(_remove_internal_properties(props))
        CURRENT.calls.append(ProviderCall("made", urn, id_))
        if how:
            get_current_context().progress.init_errors.append("still booting")
        return CreateResult(id_, dict(CURRENT.objects[id_]))

    def read(self, id, props):  # noqa: A002 - Pulumi's name
        _record_call("read", id)
        machine = CURRENT.objects.get(id)
        if machine is None:
            return ReadResult("", {})
        # The platform shows secrets only to those who know of them.
        return ReadResult(id, {k: v for k, v in machine.items() if k in props or k not in SECRETS})

    def update(self, id, olds, news):  # noqa: A002 - Pulumi's name
        how = _record_call("update", id)
        if id not in CURRENT.objects:
            raise RuntimeError(f"there is no {id}")
        CURRENT.change(id, _remove_internal_properties(news))
        if how:
            get_current_context().progress.init_errors.append("booting again")
        return UpdateResult(dict(CURRENT.objects[id]))

    def delete(self, id, props):  # noqa: A002 - Pulumi's name
        _record_call("delete", id)
        CURRENT.objects.pop(id, None)


class Machine(Resource, module="randomized", name="Machine"):
    """A machine; given an id among its options, the machine is only read."""

    address: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **props):
        super().__init__(Machines(), name, {"address": None, "size": None, **props}, opts)
