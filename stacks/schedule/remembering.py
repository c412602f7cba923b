"""What has expired is remembered, so that the next `up` does not simply make it again.

Of an end that is a moment, the declaration itself tells that it is over. A time to live starts anew
with each object: that one has ended is kept beside the stack's state, until something else is
declared or its return is allowed.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.lifetime import written
from gpuform.providers.permissions import Permission
from gpuform.schemas.models import Problem
from gpuform.stacks.engine.registration import Registered, Registration
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import unwrap_secrets

KIND: Final = "expired"
"""The name under which the backend keeps it."""


@dataclass(slots=True)
class Expired:
    """The URNs of what has expired, each with its `ttl` and when that was; read when asked for."""

    stack: Stack
    _known: dict[str, dict[str, Any]] | None = field(default=None)

    def refused(self, registration: Registration, _others: Registered) -> Iterator[Problem]:
        """A rule of the engine's: what expired by this `ttl` is made again only if allowed."""
        ttl = unwrap_secrets(registration.inputs.get("ttl"))
        if not isinstance(ttl, str) or registration.urn in self._there():
            return
        ended = self._read().get(_key(registration.urn))
        if ended is None or ended.get("ttl") != ttl:
            return
        if Permission.RENEW_EXPIRED not in permissions.given():
            yield Problem(
                "ttl",
                f"`gpuform expire` destroyed it at {ended.get('at')}, when its ttl of {ttl} was "
                "over: remove the resource, declare another ttl, or make it again for "
                f"{ttl} with --allow {Permission.RENEW_EXPIRED}",
            )

    def add(self, entries: Iterable[ResourceState], now: float) -> None:
        """Remembers what is about to expire: what is there is never taken for expired."""
        ended = {
            _key(entry.urn): {"ttl": ttl, "at": written(now)}
            for entry in entries
            if isinstance(ttl := unwrap_secrets(entry.inputs.get("ttl")), str)
        }
        if ended:
            self._write({**self._read(), **ended})

    def settle(self, there: Collection[str]) -> None:
        """After a run: what is there again has not expired. Asks nobody if nothing was asked."""
        keys = set(map(_key, there))
        if self._known is not None and keys & self._known.keys():
            self._write({key: each for key, each in self._known.items() if key not in keys})

    def _there(self) -> set[str]:
        return {entry.urn for entry in self.stack.snapshot.resources if not entry.delete}

    def _read(self) -> Mapping[str, dict[str, Any]]:
        if self._known is None:
            stack = self.stack
            kept = stack.backend.read_own(stack.project.name, stack.name, KIND)
            try:
                found = json.loads(kept) if kept else {}
            except ValueError:
                found = {}
            self._known = found if isinstance(found, dict) else {}
        return self._known

    def _write(self, known: dict[str, dict[str, Any]]) -> None:
        self._known, stack = known, self.stack
        data = json.dumps(known, indent=2, sort_keys=True).encode() if known else None
        stack.backend.write_own(stack.project.name, stack.name, KIND, data)


def _key(urn: str) -> str:
    """The URN without the name of the stack, which may get another one."""
    return urn.partition("::")[2]
