"""The rules that every snapshot keeps: Pulumi refuses a state that breaks one of them.

Checked after loading and before each write, in one pass over the entries.
"""

from collections.abc import Iterator

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state.checkpoint import ResourceState, Snapshot, magic_of
from gpuform.stacks.engine.urn import is_provider, is_urn, type_of


class IntegrityError(EngineError):
    """A snapshot that breaks rules; `violations` names each of them."""

    help_page = "guides/state-for-a-team"

    def __init__(self, violations: list[str]) -> None:
        super().__init__(
            "snapshot integrity failure; refusing to use it:\n  " + "\n  ".join(violations),
            hint="`gpuform state repair` puts right what can be; --from-backup brings back the "
            ".bak file or one of .pulumi/backups.",
        )
        self.violations = violations


def check(snapshot: Snapshot) -> None:
    """Raise IntegrityError when the snapshot breaks a rule."""
    violations = verify(snapshot)
    if violations:
        raise IntegrityError(violations)


def verify(snapshot: Snapshot) -> list[str]:
    """Every rule that the snapshot breaks, one sentence each; empty when it is sound."""
    found = []
    if snapshot.manifest.magic != magic_of(snapshot.manifest.version):
        found.append(f"the manifest's magic does not fit version {snapshot.manifest.version!r}")
    everywhere = {state.urn for state in snapshot.resources}
    earlier: set[str] = set()
    live: set[str] = set()
    providers: set[str] = set()
    for index, state in enumerate(snapshot.resources):
        found.extend(_own_violations(index, state))
        if is_provider(state.type):
            providers.add(f"{state.urn}::{state.id}")
        if state.provider and state.provider not in providers and not state.pending_replacement:
            found.append(f"{state.urn} refers to the unknown provider {state.provider}")
        for role, urn in _references(state):
            if urn not in earlier:
                fault = "comes after it" if urn in everywhere else "is missing"
                found.append(f"{state.urn}: its {role} {urn} {fault}")
        if not state.delete and state.urn in live:
            found.append(f"{state.urn} occurs twice and is not marked for deletion")
        if not state.delete:
            live.add(state.urn)
        earlier.add(state.urn)
    return found


def _own_violations(index: int, state: ResourceState) -> Iterator[str]:
    if not state.urn:
        yield f"entry {index} has no urn"
    if not state.type:
        yield f"{state.urn or f'entry {index}'} has no type"
    if state.id and not state.custom:
        yield f"{state.urn} is not custom but has an id"
    if state.custom and not state.id and not state.view_of:
        yield f"{state.urn} has no id: what it stands for would be forgotten and made again"
    if state.urn and not is_urn(state.urn):
        yield f"{state.urn} is no URN"
    elif state.urn and state.type and type_of(state.urn) != state.type:
        yield f"{state.urn} has the type {state.type}, which is not its URN's"


def _references(state: ResourceState) -> Iterator[tuple[str, str]]:
    if state.parent:
        yield "parent", state.parent
    for urn in state.dependencies:
        yield "dependency", urn
    for name, urns in state.property_dependencies.items():
        for urn in urns:
            yield f"dependency of property {name!r},", urn
    if state.deleted_with:
        yield "deletedWith", state.deleted_with
    for urn in state.replace_with:
        yield "replaceWith", urn
