"""The record of creates that are under way, so that no object is ever lost or made twice.

Before a create is sent, an intent is written to `.gpuform/intents/` in the project and made
durable. When the answer is lost or the process dies, the next run reads the intent and finds the
object again; `gpuform.providers.creating` holds that flow.
"""

import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpuform.providers import durable
from gpuform.providers.errors import NameTaken

_under_way: set[tuple[Path, str]] = set()
_under_way_lock = threading.Lock()


@dataclass(frozen=True)
class Target:
    """The object that a create wants, as the platform's lists show it."""

    platform: str
    kind: str
    name: str
    region: str


@dataclass(frozen=True)
class Intent:
    """One create that was about to be sent.

    `started_at` is Unix time in seconds; `present_ids` are the objects of that name at that time;
    `id` is the object, once known. `urn` is None under hosts that do not tell it. `tried_region`
    and `tried_gpu_type` say where and as what the create was sent, which may be an alternative to
    `region`; they are empty where the kind has no such choice.

    A create that makes several parts of one resource has their `names`, and their `ids` once they
    are known; then `name` and `id` are the resource's.
    """

    urn: str | None
    platform: str
    kind: str
    name: str
    region: str
    started_at: float
    present_ids: tuple[str, ...] = ()
    id: str | None = None
    tried_region: str = ""
    tried_gpu_type: str = ""
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()

    def is_stored(self, stored: Collection[str] | None) -> bool:
        """Whether the state has all that it made, if those are the parts that the state has."""
        if not self.names or stored is None:
            return True
        return bool(self.ids) and set(self.ids) <= set(stored)

    @property
    def target(self) -> Target:
        """The object wanted."""
        return Target(self.platform, self.kind, self.name, self.region)


class Intents:
    """The intents of one project, a JSON file each; safe for many threads.

    Whose intents there are is read once: nobody else creates for the URNs of a stack meanwhile.
    `directory` defaults to `.gpuform/intents` under the working directory, which both engines set
    to the project's.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = Path.cwd() / ".gpuform" / "intents" if directory is None else directory
        self._lock = threading.Lock()
        self._by_owner: dict[str, set[str]] | None = None

    def record(self, intent: Intent) -> None:
        """Writes an intent durably, in place of an earlier one of the same resource."""
        path = self._path(intent)
        durable.write(path, asdict(intent))
        with self._lock:
            self._owners().setdefault(_owner(path.name), set()).add(path.name)

    def record_id(self, intent: Intent, id_: str) -> Intent:
        """Adds the object's id to an intent, durably."""
        known = replace(intent, id=id_)
        self.record(known)
        return known

    def find(self, urn: str | None, target: Target) -> Intent | None:
        """The intent of this resource for this object, left by an attempt that did not end.

        A host that tells no URN, now or then, is matched by the object wanted.
        """
        end = f"-{_digest(target)}.json"
        if urn:
            found = self._read([f"{_whose(urn)}{end}", f"{_NO_URN}{end}"])
        else:
            found = _by_age(self._read(name for name in self._listed() if name.endswith(end)))
        return next(iter(found), None)

    def of_parts(self, urn: str | None, target: Target) -> list[Intent]:
        """The intents of creates of this resource's parts, found as by `find`; oldest first."""
        names = [*self._of(_whose(urn)), *self._of(_NO_URN)] if urn else self._listed()
        found = self._read(name for name in names if f"-{_digest(target)}-" in name)
        return _by_age(found)

    def of_urn(self, urn: str) -> list[Intent]:
        """Every intent of one resource: more than one when it was renamed between attempts."""
        return _by_age(self._read(self._of(_whose(urn))))

    def forget(
        self,
        *,
        urn: str | None = None,
        id_: str | None = None,
        intent: Intent | None = None,
        stored: Collection[str] | None = None,
    ) -> None:
        """Removes the intents of a URN or of an object's id, or one intent; none is no error.

        With both a URN and an id, those of the URN and those without URN that name the id. With
        `stored`, the ids of the parts that the state has, none that made other parts.
        """
        gone = [] if intent is None else [intent]
        if urn:
            gone += self.of_urn(urn)
        if id_:
            names = self._of(_NO_URN) if urn else self._listed()
            gone += [each for each in self._read(names) if each.id == id_]
        for known in (each for each in gone if each.is_stored(stored)):
            path = self._path(known)
            path.unlink(missing_ok=True)
            with self._lock:
                self._owners().get(_owner(path.name), set()).discard(path.name)

    def all(self) -> list[Intent]:
        """Every intent of the project, oldest first."""
        return _by_age(self._read(self._listed()))

    @contextmanager
    def claim(self, target: Target) -> Iterator[None]:
        """Holds a name while it is being created: two creates of it in one process are refused."""
        key = (self.directory, repr(target))
        with _under_way_lock:
            if key in _under_way:
                raise NameTaken(
                    f"another resource of this program is creating the {target.kind} "
                    f"{target.name!r} on {target.platform}",
                    hint="give each of them a name of its own",
                )
            _under_way.add(key)
        try:
            yield
        finally:
            with _under_way_lock:
                _under_way.discard(key)

    def _read(self, names: Iterable[str]) -> list[Intent]:
        found = []
        for name in names:
            with suppress(FileNotFoundError):
                fields = json.loads((self.directory / name).read_text(encoding="utf-8"))
                lists = {key: tuple(value) for key, value in fields.items() if type(value) is list}
                found.append(Intent(**fields | lists))
        return found

    def _listed(self) -> list[str]:
        """The files that there are now."""
        try:
            return [path.name for path in self.directory.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []

    def _of(self, owner: str) -> list[str]:
        """The files of one URN."""
        with self._lock:
            return sorted(self._owners().get(owner, ()))

    def _owners(self) -> dict[str, set[str]]:
        """The files by owner, with the lock held."""
        if self._by_owner is None:
            self._by_owner = {}
            for name in self._listed():
                self._by_owner.setdefault(_owner(name), set()).add(name)
        return self._by_owner

    def _path(self, intent: Intent) -> Path:
        owner = _whose(intent.urn) if intent.urn else _NO_URN
        parts = f"-{_digest(' '.join(intent.names))}" if intent.names else ""
        return self.directory / f"{owner}-{_digest(intent.target)}{parts}.json"


_NO_URN = "no-urn"


def _by_age(intents: list[Intent]) -> list[Intent]:
    return sorted(intents, key=lambda intent: intent.started_at)


def _owner(name: str) -> str:
    """Whose intent a file holds."""
    return _NO_URN if name.startswith(f"{_NO_URN}-") else name.partition("-")[0]


def _whose(urn: str) -> str:
    """The owner, whichever form the stack is in: it may change between two attempts."""
    return _digest(re.sub(r"(?<=[:$])gpuform:(\w+):", r"pulumi-python:dynamic/gpuform.\1:", urn))


def _digest(value: str | Target) -> str:
    text = value if isinstance(value, str) else json.dumps(asdict(value))
    return hashlib.sha256(text.encode()).hexdigest()[:24]
