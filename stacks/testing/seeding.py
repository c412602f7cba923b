"""Create on the emulator the objects that an exported state names, for cases with `start.state`.

Each resource of gpuform is created from its inputs and has the emulator's id from then on, also
where other resources refer to it. Secrets of the state are encrypted with a key that `gpuform test`
does not need: each is replaced by the value that the program declares in its place.
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
from gpuform.providers.values import PropertyMap, Secret, contains_unknown, unwrap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.engine import urn, value_json
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState, Snapshot, StateError, parse_checkpoint
from gpuform.stacks.resource_rules import find_kind

SECRET_PLACEHOLDER: Final = "Stands4Secret!"  # noqa: S105 - no secret, but what stands for one
"""The value on the emulator of a secret of the state for which the program declares no value."""
_POSSIBLE_ID: Final = re.compile(r"[\w.-]{8,}")
"""A part of a text that may be an id; shorter words may be anything."""


class SeedError(EngineError):
    """The emulator cannot be started from a state."""

    help_page = "guides/test-a-stack"


class _PlaceholderCrypter:
    """Decrypts every secret of a state to SECRET_PLACEHOLDER."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:  # noqa: ARG002 - the protocol's
        """Raise AssertionError: nothing is encrypted with this class."""
        raise AssertionError("the state is written with the key of its new stack")

    def decrypt(self, ciphertext: str) -> str:
        """Return SECRET_PLACEHOLDER as JSON, whatever the ciphertext is."""
        del ciphertext
        return json.dumps(SECRET_PLACEHOLDER)


def read_state(data: bytes, label: str) -> Snapshot:
    """Return the state in an exported file, with placeholders for the secrets.

    Args:
        data: the content of the file, as `gpuform stack export` writes it.
        label: the file's name for error messages.

    Raises:
        SeedError: the file is not JSON, or not the state of a stack.
    """
    hint = "write it with `gpuform stack export --file FILE`"
    try:
        document = value_json.load(data)
    except ValueError as error:
        raise SeedError(f"{label} is not JSON: {error}", hint) from error
    if not isinstance(document, dict) or not isinstance(document.get("deployment"), dict):
        raise SeedError(f"{label} is not the state of a stack", hint)
    checkpoint = {key: document[key] for key in ("version", "features") if key in document}
    checkpoint["checkpoint"] = {"stack": "", "latest": document["deployment"]}
    try:
        return Snapshot.from_json(parse_checkpoint(checkpoint), _PlaceholderCrypter())
    except StateError as error:
        raise SeedError(f"{label}: {error.message}", hint) from error


def find_last_change(snapshot: Snapshot) -> float | None:
    """Return when a resource of the state last changed, in Unix seconds, or None if unknown."""
    # A resource that never changed has only `created`.
    moments = [resource.modified or resource.created for resource in snapshot.resources]
    timestamps = (datetime.fromisoformat(moment).timestamp() for moment in moments if moment)
    return max(timestamps, default=None)


def get_stack_and_project(snapshot: Snapshot) -> tuple[str, str]:
    """Return the names of the stack and the project, from the first resource's URN.

    Raises:
        SeedError: the state has no resources.
    """
    if not snapshot.resources:
        raise SeedError(
            "the state has no resources",
            "remove `state`: a case without it starts with an empty stack",
        )
    return urn.get_stack_and_project(snapshot.resources[0].urn)


def seed_emulator(
    stack: Stack,
    snapshot: Snapshot,
    declared_inputs: Mapping[str, PropertyMap],
    emulator_ids: Mapping[str, str],
) -> Mapping[str, str]:
    """Create the objects of a state on the emulator, and save it as the stack's own.

    Returns the emulator's ids by those of the states, with the given ones.

    Args:
        stack: the stack, which has no state yet.
        snapshot: the exported state; its pending operations are dropped.
        declared_inputs: the inputs that the program declares, by URN, for the secrets of the state.
        emulator_ids: the ids of objects that the emulator has already, by those of the states.

    Raises:
        SeedError: the emulator cannot create an object.
    """
    seeder = _Seeder.for_stack(stack, declared_inputs, emulator_ids)
    created = [seeder.create_object(resource) for resource in snapshot.resources]
    # The outputs of the stack come first in its state, and name objects that come later.
    resources = [
        replace(item, outputs=replace_ids(item.outputs, seeder.emulator_ids)) for item in created
    ]
    # Later runs refuse a stack whose objects are elsewhere: these are on the emulator.
    record_environment(stack.get_intents().records, StackEnvironment(emulated=True, emulator=""))
    with stack.create_lock():
        stack.save(replace(snapshot, resources=resources, pending_operations=[]))
    return seeder.emulator_ids


def seed_objects(
    stack: Stack,
    snapshot: Snapshot,
    emulator_ids: Mapping[str, str],
    *,
    only_dependents: bool = False,
) -> Mapping[str, str]:
    """Create the objects of another stack's state on the emulator.

    Returns the emulator's ids by those of the states, with the given ones.

    Args:
        stack: the stack with the configuration; its state stays as it is.
        snapshot: the state of the other stack.
        emulator_ids: the ids of objects that the emulator has already, by those of the states.
        only_dependents: create only objects that use one which the emulator has.

    Raises:
        SeedError: the emulator cannot create an object.
    """
    seeder = _Seeder.for_stack(stack, {}, emulator_ids)
    for resource in snapshot.resources:
        # Several stacks may use one object.
        if resource.id in seeder.emulator_ids:
            continue
        if not only_dependents or seeder.uses_emulated_object(resource):
            seeder.create_object(resource)
    return seeder.emulator_ids


def replace_ids(properties: Mapping[str, Any], emulator_ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties with the states' ids replaced by the emulator's, at any depth."""
    return {name: _replace_ids_in(value, emulator_ids) for name, value in properties.items()}


@dataclass(frozen=True, slots=True)
class _Seeder:
    """Creates the objects of a state on the emulator, in the state's order."""

    host: ProviderHost
    declared_inputs: Mapping[str, PropertyMap]
    emulator_ids: dict[str, str]
    """The emulator's ids by those of the state."""

    @classmethod
    def for_stack(
        cls,
        stack: Stack,
        declared_inputs: Mapping[str, PropertyMap],
        emulator_ids: Mapping[str, str],
    ) -> "_Seeder":
        """Return a seeder with the stack's configuration and empty records of creates."""
        # Nobody resumes these creates: they all end before the run starts.
        intents = Intents(EphemeralRecords())
        program = stack.build_target().program
        run = program.run_context
        host = ProviderHost(
            program.project,
            program.config,
            lambda urn, timeout: ProviderContext(urn, timeout=timeout, run=run, intents=intents),
            run,
        )
        return cls(host, declared_inputs, dict(emulator_ids))

    def create_object(self, resource: ResourceState) -> ResourceState:
        """Create the object on the emulator, and return the resource with the new id.

        A resource that is external, has no id, or is not one of gpuform's keeps its id; only the
        ids in its properties are replaced. Raises SeedError if the emulator cannot create the
        object.
        """
        inputs = _fill_in_secrets(resource.inputs, self.declared_inputs.get(resource.urn, {}))
        inputs = replace_ids(inputs, self.emulator_ids)
        outputs = replace_ids(resource.outputs, self.emulator_ids)
        if not resource.id or resource.external or find_kind(resource.type) is None:
            return replace(resource, inputs=inputs, outputs=outputs)
        try:
            self.host.plugins.configure_from_state([resource])
            created = self.host.create(resource.urn, inputs, None, resource.provider)
        except EngineError as error:
            raise SeedError(
                f"the emulator cannot create {resource.urn} of the state: {error.message}",
                error.hint,
            ) from error
        self.emulator_ids[resource.id] = created.id
        return replace(
            resource, id=created.id, inputs=inputs, outputs=created.outputs, init_errors=[]
        )

    def uses_emulated_object(self, resource: ResourceState) -> bool:
        """Return True if an input of the resource has the id of an object on the emulator."""
        return replace_ids(resource.inputs, self.emulator_ids) != resource.inputs


def _replace_ids_in(value: Any, emulator_ids: Mapping[str, str]) -> Any:
    """Return the value with the states' ids replaced, also in secrets and in longer texts."""

    def replace_leaf(leaf: Any) -> Any:
        if isinstance(leaf, Secret):
            return Secret(_replace_ids_in(leaf.value, emulator_ids))
        if not isinstance(leaf, str):
            return leaf
        # An id may stand inside another text, as in the address of an API.
        return emulator_ids.get(leaf) or _POSSIBLE_ID.sub(
            lambda match: emulator_ids.get(match[0], match[0]), leaf
        )

    return convert_leaves(value, replace_leaf)


def _fill_in_secrets(state_value: Any, declared_value: Any) -> Any:
    """Return the state's value with each placeholder replaced by the declared secret, if any.

    Lists of different lengths are not matched: their placeholders stay.
    """
    if isinstance(state_value, Secret):
        plain_value = unwrap(declared_value)
        is_declared = (
            state_value.value == SECRET_PLACEHOLDER
            and plain_value is not None
            and not contains_unknown(plain_value)
        )
        return Secret(plain_value) if is_declared else state_value
    declared_value = unwrap(declared_value)
    if isinstance(state_value, Mapping):
        declared_items = declared_value if isinstance(declared_value, Mapping) else {}
        return {
            key: _fill_in_secrets(value, declared_items.get(key))
            for key, value in state_value.items()
        }
    if isinstance(state_value, list):
        # A list of another length cannot be matched item by item.
        has_list = isinstance(declared_value, list) and len(declared_value) == len(state_value)
        declared_list = declared_value if has_list else []
        padded_list = [*declared_list, *([None] * (len(state_value) - len(declared_list)))]
        return [
            _fill_in_secrets(value, declared_item)
            for value, declared_item in zip(state_value, padded_list, strict=True)
        ]
    return state_value
