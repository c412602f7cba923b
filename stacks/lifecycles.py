"""The lifecycles of gpuform's own resources, by the types that states and plans have for them."""

from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import has_kind, lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.stacks.engine.urn import own_type

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle


def kind_of(type_: str) -> tuple[str, str] | None:
    """Platform and kind of a gpuform resource's type, in either form; None for any other type."""
    platform, _, kind = own_type(type_).partition(":")
    return (platform, kind) if has_kind(platform, kind) else None


def is_secret_property(type_: str, name: str) -> bool:
    """Whether a property of a gpuform resource is secret by its model, whatever it is made of."""
    kind = kind_of(type_)
    return kind is not None and name in lifecycle_class(*kind).secret_names()


def lifecycle_of(type_: str) -> "type[Lifecycle[Any, Any]] | None":
    """The lifecycle of a gpuform resource's type, imported now; None for any other type."""
    kind = kind_of(type_)
    return lifecycle_class(*kind) if kind else None


def write_refusal(lifecycle: "type[Lifecycle[Any, Any]]", settings: Settings) -> str | None:
    """Why the key may not change objects of this kind; empty when it may.

    None when nobody can tell beforehand, or the platform does not answer: then it refuses the
    change itself.
    """
    try:
        return lifecycle.write_refusal(settings)
    except GpuformError:
        return None
