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
class Called:
    """One call of a provider; `id` is the made one for a create that made something."""

    verb: str
    urn: str
    id: str = ""


@dataclass
class World:
    """The objects by id, and everything that was asked of their platform.

    With `moving` an update gives the object another address, as a replacement does.
    """

    moving: bool = False
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[Called] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    before_create: Any = None
    _used: set[Fault] = field(default_factory=set)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, *faults: Fault) -> None:
        """Before a run: what fails in it."""
        self.calls, self.faults, self._used = [], list(faults), set()

    def made(self, properties: dict[str, Any]) -> str:
        """Makes an object."""
        with self._lock:
            id_ = f"m-{self._next()}"
            self.objects[id_] = {**properties, "address": f"10.0.0.{self._number}"}
        return id_

    def changed(self, id_: str, properties: dict[str, Any]) -> None:
        """Changes an object to exactly these properties."""
        with self._lock:
            address = self.objects[id_]["address"]
            if self.moving:
                address = f"10.0.0.{self._next()}"
            self.objects[id_] = {**properties, "address": address}

    def note(self, verb: str, urn: str, id_: str = "") -> str:
        """Records a call; how it is to fail, empty when it is not."""
        with self._lock:
            self.calls.append(Called(verb, urn, id_))
            for fault in self.faults:
                if (fault.verb, fault.name) == (verb, name_of(urn)) and fault not in self._used:
                    if fault.once:
                        self._used.add(fault)
                    return fault.how
        return ""

    def _next(self) -> int:
        self._number += 1
        return self._number


CURRENT = World()


def use(world: World) -> World:
    """Lets the providers of this process work on it."""
    global CURRENT  # noqa: PLW0603 - pickled providers find their world by this name
    CURRENT = world
    return world


def _own(props: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in props.items() if key not in ("__provider", "address")}


def _asked(verb: str, id_: str = "") -> str:
    """Records the call that is being served; fails as it is to."""
    how = CURRENT.note(verb, get_current_context().urn or "", id_)
    if how == "raise":
        raise RuntimeError(f"no {verb} today")
    return how


class Machines(ResourceProvider):
    """The provider: check and diff are pure, the rest works on the current world."""

    def check(self, olds, news):
        refused = _asked("check") == "refuse"
        return CheckResult(news, [CheckFailure("size", "is refused")] if refused else [])

    def diff(self, id, olds, news):  # noqa: A002 - Pulumi's name
        _asked("diff", id)
        if "lazy" in news:
            return DiffResult()
        before, after = _own(olds), _own(news)
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
        how = _asked("create")
        id_ = CURRENT.made(_own(props))
        CURRENT.calls.append(Called("made", urn, id_))
        if how:
            get_current_context().init_errors.append("still booting")
        return CreateResult(id_, dict(CURRENT.objects[id_]))

    def read(self, id, props):  # noqa: A002 - Pulumi's name
        _asked("read", id)
        found = CURRENT.objects.get(id)
        if found is None:
            return ReadResult("", {})
        # The platform shows secrets only to those who know of them.
        return ReadResult(id, {k: v for k, v in found.items() if k in props or k not in SECRETS})

    def update(self, id, olds, news):  # noqa: A002 - Pulumi's name
        how = _asked("update", id)
        if id not in CURRENT.objects:
            raise RuntimeError(f"there is no {id}")
        CURRENT.changed(id, _own(news))
        if how:
            get_current_context().init_errors.append("booting again")
        return UpdateResult(dict(CURRENT.objects[id]))

    def delete(self, id, props):  # noqa: A002 - Pulumi's name
        _asked("delete", id)
        CURRENT.objects.pop(id, None)


class Machine(Resource, module="randomized", name="Machine"):
    """A machine; given an id among its options, it is only read."""

    address: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **props):
        super().__init__(Machines(), name, {"address": None, "size": None, **props}, opts)
