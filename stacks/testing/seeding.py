"""A stack's state taken over to an emulator: objects like those that it names are made there.

Each resource of gpuform is created from its inputs, and has the emulator's id from then on, also
where others refer to it. Secrets of the state are encrypted by a key that nobody needs to have
here: each is taken to be what the program declares in its place.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.environment import StackEnvironment, record_environment
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState, Snapshot, StateError, parse_checkpoint
from gpuform.stacks.engine.values import (
    PropertyMap,
    Secret,
    contains_unknown,
    unwrap,
    value_json,
)
from gpuform.stacks.resource_rules import kind_of

STAND_IN: Final = "Stands4Secret!"
"""What a secret of the state is on the emulator where the program declares none."""
_WORD: Final = re.compile(r"[\w.-]{8,}")
"""What may be an id inside another text; shorter ones may be anything."""


class SeedError(EngineError):
    """A state that an emulator cannot be made to hold."""

    help_page = "guides/test-a-stack"


class _Sealed:
    """Stands for the key of the state's secrets."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:  # noqa: ARG002 - the protocol's
        raise AssertionError("a state that is taken over is written with its stack's own key")

    def decrypt(self, ciphertext: str) -> str:
        del ciphertext
        return json.dumps(STAND_IN)


def read_state(data: bytes, where: str) -> Snapshot:
    """A state as `gpuform stack export` writes it, without its secrets. Raises SeedError."""
    hint = "write it with `gpuform stack export --file FILE`"
    try:
        document = value_json.load(data)
    except ValueError as error:
        raise SeedError(f"{where} is not JSON: {error}", hint) from error
    if not isinstance(document, dict) or not isinstance(document.get("deployment"), dict):
        raise SeedError(f"{where} is not the state of a stack", hint)
    whole = {key: document[key] for key in ("version", "features") if key in document}
    whole["checkpoint"] = {"stack": "", "latest": document["deployment"]}
    try:
        return Snapshot.from_json(parse_checkpoint(whole), _Sealed())
    except StateError as error:
        raise SeedError(f"{where}: {error.message}", hint) from error


def last_change(snapshot: Snapshot) -> float | None:
    """When the state was changed last, in unix seconds, as far as it tells."""
    texts = [entry.modified or entry.created for entry in snapshot.resources]
    moments = [datetime.fromisoformat(text).timestamp() for text in texts if text]
    return max(moments, default=None)


def stack_of(snapshot: Snapshot) -> tuple[str, str]:
    """The names of the stack and of its project. Raises SeedError for a state without any."""
    if not snapshot.resources:
        raise SeedError("the state has no resources", "leave `state` out: the start is empty")
    head, project, *_ = snapshot.resources[0].urn.split("::")
    return head.removeprefix("urn:pulumi:"), project


def seed(stack: Stack, snapshot: Snapshot, declared: Mapping[str, PropertyMap]) -> None:
    """Makes the objects of a state on the emulator that the environment leads to, and keeps the
    state as the stack's. `declared` are the inputs that the program declares, by URN.

    Raises SeedError for a resource that the emulator refuses.
    """
    seeding = _Seeding.of(stack, declared)
    entries = [seeding.taken_over(entry) for entry in snapshot.resources]
    record_environment(stack.get_intents().records, StackEnvironment(emulated=True, emulator=""))
    with stack.create_lock():
        stack.save(replace(snapshot, resources=entries, pending_operations=[]))


@dataclass(frozen=True, slots=True)
class _Seeding:
    host: ProviderHost
    declared: Mapping[str, PropertyMap]
    ids: dict[str, str]
    """The emulator's ids by those of the state."""

    @classmethod
    def of(cls, stack: Stack, declared: Mapping[str, PropertyMap]) -> "_Seeding":
        # What creates are under way is of no interest: all of it happens before the run.
        intents = Intents(EphemeralRecords())
        program = stack.build_target().program
        host = ProviderHost(
            program.project,
            program.config,
            lambda urn, timeout: ProviderContext(urn=urn, timeout=timeout, intents=intents),
        )
        return cls(host, declared, {})

    def taken_over(self, entry: ResourceState) -> ResourceState:
        inputs = _opened(entry.inputs, self.declared.get(entry.urn, {}))
        inputs, outputs = self._known(inputs), self._known(entry.outputs)
        if not entry.id or entry.external or kind_of(entry.type) is None:
            return replace(entry, inputs=inputs, outputs=outputs)
        try:
            self.host.plugins.configure_from_state([entry])
            made = self.host.create(entry.urn, inputs, None, entry.provider)
        except EngineError as error:
            raise SeedError(
                f"the emulator cannot have {entry.urn} of the state: {error.message}", error.hint
            ) from error
        self.ids[entry.id] = made.id
        return replace(entry, id=made.id, inputs=inputs, outputs=made.outputs, init_errors=[])

    def _known(self, properties: PropertyMap) -> PropertyMap:
        return {name: self._value(value) for name, value in properties.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, Secret):
            return Secret(self._value(value.value))
        if isinstance(value, Mapping):
            return {key: self._value(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._value(each) for each in value]
        if isinstance(value, str):
            found = self.ids.get(value)
            return found or _WORD.sub(lambda word: self.ids.get(word[0], word[0]), value)
        return value


def _opened(sealed: Any, declared: Any) -> Any:
    """The value with each secret that nobody can read as it is declared, where it is."""
    if isinstance(sealed, Secret):
        known = unwrap(declared)
        is_known = sealed.value == STAND_IN and known is not None and not contains_unknown(known)
        return Secret(known) if is_known else sealed
    declared = unwrap(declared)
    if isinstance(sealed, Mapping):
        others = declared if isinstance(declared, Mapping) else {}
        return {key: _opened(value, others.get(key)) for key, value in sealed.items()}
    if isinstance(sealed, list):
        items = declared if isinstance(declared, list) and len(declared) == len(sealed) else []
        rest = [*items, *([None] * (len(sealed) - len(items)))]
        return [_opened(value, other) for value, other in zip(sealed, rest, strict=True)]
    return sealed
