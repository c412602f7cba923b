"""Read the outputs of other stacks for `pulumi.StackReference`.

The step executor and refreshes call this module; checkpoints come from the backend, or planned
outputs from a multi-stack run.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuform.providers import values
from gpuform.providers.values import PropertyMap, PropertyValue
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import SecretsError, create_stored_crypter
from gpuform.stacks.engine.state import Checkpoint
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.value_json import Crypter

# Pulumi's DIY backends have one organization, of this literal name.
_ORGANIZATION = "organization"

PlannedOutputs = Callable[[str, str], PropertyMap | None]
"""Return the outputs that a stack will have after its planned run, given project and stack.

Values may be unknown. None means that the checkpoint of the stack has the outputs.
"""


def qualify_stack_name(name: str, project: str) -> str:
    """Return `organization/PROJECT/STACK` for a stack name in a program of `project`.

    Raises:
        EngineError: `name` is not a valid stack name.
    """
    return "/".join((_ORGANIZATION, *_parse_stack_name(name, project)))


def find_referenced_stacks(inputs: Iterable[PropertyMap], project: str) -> tuple[str, ...]:
    """Return the sorted full names of the stacks named by inputs of stack references.

    Invalid names are left out.
    """
    full_names = set()
    for reference_inputs in inputs:
        name = reference_inputs.get("name")
        if isinstance(name, str):
            with suppress(EngineError):  # `StackReferences.read` reports an invalid name
                full_names.add(qualify_stack_name(name, project))
    return tuple(sorted(full_names))


def _parse_stack_name(name: str, own: str) -> tuple[str, str]:
    """Return project and stack of a reference's name; `own` is the project for a name without one.

    In a name of two parts the first is the organization, not the project.

    Raises:
        EngineError: the name has another form or organization.
    """
    organization, project, stack = _ORGANIZATION, own, name
    parts = name.split("/")
    if len(parts) == 2:
        organization, stack = parts
    elif len(parts) == 3:
        organization, project, stack = parts
    if organization != _ORGANIZATION or "/" in stack:
        raise EngineError(
            f"{name!r} is not the name of a stack in this backend",
            hint="write STACK, or organization/PROJECT/STACK (the word `organization` itself)",
        )
    return project, stack


@dataclass(frozen=True, slots=True)
class StackReferences:
    """Reads stacks of the backend by the names that programs use.

    `project` is the program's own project, for names without one. `load` returns the last
    checkpoint of a stack given project and stack, or None if the stack does not exist. `passphrase`
    is called when a secret has to be decrypted, `warn` with a message about outputs that cannot be.
    `planned_outputs` is asked before `load`.
    """

    project: str
    load: Callable[[str, str], Checkpoint | None]
    passphrase: Callable[[], str]
    warn: Callable[[str], None] = lambda _text: None
    planned_outputs: PlannedOutputs = lambda _project, _stack: None

    def read(self, inputs: PropertyMap) -> PropertyMap:
        """Return the outputs of a stack reference: `name`, `outputs` and `secretOutputNames`.

        `outputs` are the planned ones for a stack planned in the same multi-stack run, else the
        stored ones. Secret outputs that the passphrase does not decrypt are left out, with a
        warning.

        Raises:
            EngineError: the name is missing or invalid, or the stack does not exist.
        """
        name = inputs.get("name")
        if not isinstance(name, str):
            raise EngineError("a stack reference needs the name of a stack")
        project, stack = _parse_stack_name(name, self.project)
        outputs, undecryptable = self.planned_outputs(project, stack), list[str]()
        if outputs is None:
            outputs, undecryptable = self._decrypt_outputs(
                self._require_checkpoint(name, project, stack)
            )
        if undecryptable:
            self.warn(
                f"stack reference {name!r}: the passphrase does not decrypt its secret "
                f"outputs {', '.join(undecryptable)}; these outputs are omitted"
            )
        secret: list[PropertyValue] = [
            key for key in sorted(outputs) if values.contains_secret(outputs[key])
        ]
        return {"name": name, "outputs": outputs, "secretOutputNames": secret}

    def _require_checkpoint(self, name: str, project: str, stack: str) -> Checkpoint:
        """Return the stack's checkpoint. Raises EngineError if the stack does not exist."""
        checkpoint = self.load(project, stack)
        if checkpoint is None:
            raise EngineError(
                f"unknown stack {name!r}",
                hint="name it as in `gpuform stack ls`: STACK, or organization/PROJECT/STACK; it "
                "must be in the same backend",
            )
        return checkpoint

    def _decrypt_outputs(self, checkpoint: Checkpoint) -> tuple[PropertyMap, list[str]]:
        """Return the stack's outputs, and the names of undecryptable outputs."""
        resources = checkpoint.latest.get("resources") or []
        root: dict[str, Any] = next((e for e in resources if e.get("type") == STACK_TYPE), {})
        secrets_provider = checkpoint.secrets_provider
        outputs: PropertyMap = {}
        undecryptable: list[str] = []
        crypter: Crypter | None = None
        for key, item in (root.get("outputs") or {}).items():
            try:
                if (
                    # The derivation of the key takes about 0.3 s, so only outputs with a secret pay
                    # for it.
                    crypter is None
                    and secrets_provider is not None
                    and values.SIGNATURE_KEY in str(item)
                ):
                    crypter = create_stored_crypter(secrets_provider, self.passphrase)
                outputs[key] = value_json.decode(item, crypter)
            except SecretsError:
                undecryptable.append(key)
        return outputs, undecryptable
