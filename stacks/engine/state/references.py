"""The URNs that an entry of the state holds: its own and those of what it refers to."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuform.stacks.engine.state.checkpoint import ResourceState
from gpuform.stacks.engine.state.graph import provider_urn
from gpuform.stacks.engine.values import PropertyMap, PropertyValue, ResourceReference


def rename_references(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """The entry with `new` applied to every URN in it, but not to those among its properties."""

    def each(urns: list[str]) -> list[str]:
        return [new(urn) for urn in urns]

    def maybe(urn: str) -> str:
        return new(urn) if urn else ""

    provider = provider_urn(entry.provider)
    return replace(
        entry,
        urn=new(entry.urn),
        parent=maybe(entry.parent),
        provider=entry.provider and new(provider) + entry.provider.removeprefix(provider),
        dependencies=each(entry.dependencies),
        property_dependencies={k: each(urns) for k, urns in entry.property_dependencies.items()},
        deleted_with=maybe(entry.deleted_with),
        replace_with=each(entry.replace_with),
        view_of=maybe(entry.view_of),
    )


def rename_used_resources(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to the URNs of the resources among its properties.

    Secrets stay as they are, as under the Pulumi CLI.
    """

    def rename_map(properties: PropertyMap) -> PropertyMap:
        return {key: rename_value(value) for key, value in properties.items()}

    def rename_value(value: PropertyValue) -> PropertyValue:
        if isinstance(value, ResourceReference):
            return replace(value, urn=new(value.urn))
        if isinstance(value, list):
            return [rename_value(item) for item in value]
        return rename_map(value) if isinstance(value, dict) else value

    return replace(
        entry,
        inputs=rename_map(entry.inputs),
        outputs=rename_map(entry.outputs),
        replacement_trigger=rename_value(entry.replacement_trigger),
    )


@dataclass(frozen=True, slots=True)
class DroppedReference:
    """A reference that was taken out of an entry; `role` is Pulumi's word for it."""

    entry: str
    role: str
    urn: str

    def describe(self) -> str:
        """One line that names all three."""
        return f"{self.entry}: {self.role} {self.urn}"


def without(
    entry: ResourceState, is_gone: Callable[[str], bool]
) -> tuple[ResourceState, list[DroppedReference]]:
    """The entry without the references to what is gone, and those references.

    Parents and providers stay: nothing can be said without them.
    """
    dropped: list[DroppedReference] = []

    def left(role: str, urns: list[str]) -> list[str]:
        dropped.extend(DroppedReference(entry.urn, role, urn) for urn in urns if is_gone(urn))
        return [urn for urn in urns if not is_gone(urn)]

    freed = replace(
        entry,
        dependencies=left("dependency", entry.dependencies),
        property_dependencies={
            key: left(f"dependency of property {key!r}", urns)
            for key, urns in entry.property_dependencies.items()
        },
        replace_with=left("replaceWith", entry.replace_with),
        deleted_with="".join(
            left("deletedWith", [entry.deleted_with] if entry.deleted_with else [])
        ),
    )
    return (freed if dropped else entry), dropped
