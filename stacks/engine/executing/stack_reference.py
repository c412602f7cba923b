"""What a program reads of other stacks: `pulumi.StackReference`."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import SecretsError, crypter_for
from gpuform.stacks.engine.state import Checkpoint
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import Crypter, PropertyMap, PropertyValue, value_json

_ORGANIZATION = "organization"

Foreseen = Callable[[str, str], PropertyMap | None]
"""The outputs that a project's stack will have once what is planned for it is done, unknown ones
among them; None where its state tells them."""


def full_name_of(name: str, project: str) -> str:
    """`organization/PROJECT/STACK` for the name that a program of `project` has for a stack.

    Raises EngineError for what is no name of one.
    """
    return "/".join((_ORGANIZATION, *_parts(name, project)))


def stacks_read(inputs: Iterable[PropertyMap], project: str) -> tuple[str, ...]:
    """The full names of the stacks that stack references with these inputs are of."""
    found = set()
    for each in inputs:
        name = each.get("name")
        if isinstance(name, str):
            with suppress(EngineError):  # what is no name was told where it was read
                found.add(full_name_of(name, project))
    return tuple(sorted(found))


def _parts(name: str, own: str) -> tuple[str, str]:
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
    """The stacks of the backend, by the names that programs use.

    `project` is the program's own, for names that say none. `load` gives the last checkpoint of a
    project's stack, None when there is no such stack. `passphrase` is asked when there is a secret
    to read; `warn` is told what cannot be read. `foreseen` is asked before the state.
    """

    project: str
    load: Callable[[str, str], Checkpoint | None]
    passphrase: Callable[[], str]
    warn: Callable[[str], None] = lambda _text: None
    foreseen: Foreseen = lambda _project, _stack: None

    def read(self, inputs: PropertyMap) -> PropertyMap:
        """The outputs of a stack reference: `name`, `outputs` and `secretOutputNames`.

        Secret outputs that the passphrase does not open are left out, with a warning.
        Raises EngineError when there is no such stack.
        """
        name = inputs.get("name")
        if not isinstance(name, str):
            raise EngineError("a stack reference needs the name of a stack")
        project, stack = _parts(name, self.project)
        outputs, lost = self.foreseen(project, stack), list[str]()
        if outputs is None:
            outputs, lost = self._outputs(self._checkpoint(name, project, stack))
        if lost:
            self.warn(
                f"stack reference {name!r}: the passphrase does not open its secret outputs "
                f"{', '.join(lost)}, which are left out"
            )
        secret: list[PropertyValue] = [
            key for key in sorted(outputs) if values.contains_secret(outputs[key])
        ]
        return {"name": name, "outputs": outputs, "secretOutputNames": secret}

    def _checkpoint(self, name: str, project: str, stack: str) -> Checkpoint:
        checkpoint = self.load(project, stack)
        if checkpoint is None:
            raise EngineError(
                f"unknown stack {name!r}",
                hint="name it as in `gpuform stack ls`: STACK, or organization/PROJECT/STACK; it "
                "must be in the same backend",
            )
        return checkpoint

    def _outputs(self, checkpoint: Checkpoint) -> tuple[PropertyMap, list[str]]:
        """The stack's outputs, and the names of those that cannot be decrypted."""
        resources = checkpoint.latest.get("resources") or []
        root: dict[str, Any] = next((e for e in resources if e.get("type") == STACK_TYPE), {})
        stored = checkpoint.secrets_provider
        made: PropertyMap = {}
        lost: list[str] = []
        crypter: Crypter | None = None
        for key, item in (root.get("outputs") or {}).items():
            try:
                if crypter is None and stored is not None and values.SIGNATURE_KEY in str(item):
                    crypter = crypter_for(stored, self.passphrase)
                made[key] = value_json.decode(item, crypter)
            except SecretsError:
                lost.append(key)
        return made, lost
