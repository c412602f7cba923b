"""Define what a platform implements for one kind of resource, and what a lifecycle passes to it.

Platforms implement `ResourceOperations`; `Lifecycle` calls them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from gpuform.providers.context import ProviderContext, get_run_context
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import build_plugin_key, list_settings
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import InputModel, OutputModel, Problem
from gpuform.schemas.policies.drain import RemovedNodes

In_contra = TypeVar("In_contra", bound=InputModel, contravariant=True)
Out = TypeVar("Out", bound=OutputModel)


@dataclass(frozen=True)
class Timeouts:
    """Default durations of the operations, in seconds."""

    create: float
    update: float
    delete: float


@dataclass(frozen=True)
class Guard:
    """The permission without which an object may not be destroyed, and the reason."""

    permission: Permission
    because: str


@dataclass(frozen=True)
class Observed(Generic[Out]):
    """An object as the platform shows it.

    `inputs` has only the input fields that the platform returns and that are to be compared with
    the declaration.
    """

    inputs: Mapping[str, Any]
    outputs: Out


@dataclass(frozen=True)
class Settings:
    """The source of credentials and addresses: the environment, then the stack's configuration.

    `given` has the settings of an explicit provider by full configuration keys: they come first,
    and keep two accounts of one stack apart. `region` applies where a resource names none, on
    platforms with an address for each region.
    """

    config: Callable[[str], str | None] = lambda _key: None  # without a stack
    environ: Mapping[str, str] = field(
        default_factory=lambda: get_run_context().environ, repr=False
    )
    region: str | None = None
    given: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get_value(self, variable: str, config_key: str | None = None) -> str | None:
        """Return a setting's value: given by the caller, else from the environment, else the stack.

        None if nothing sets the value. The plugin's key (`gpuform:togetherApiKey`) counts as the
        platform's (`together:apiKey`), so that a stack's configuration serves both of its forms.
        """
        value = self.given.get(config_key or "") or self.environ.get(variable)
        if not value and config_key:
            value = self.config(config_key) or self.config(build_plugin_key(config_key))
        return value or None

    def list_secrets(self) -> list[str]:
        """Return every key and token in the settings, of all platforms."""
        values = (
            self.get_value(setting.variable, setting.config)
            for setting in list_settings()
            if setting.secret
        )
        return [value for value in values if value]


_current_settings: ContextVar[Settings | None] = ContextVar("gpuform_looking_up", default=None)


@contextmanager
def use_lookup_settings(settings: Settings) -> Iterator[None]:
    """Use these settings for lookups in the block, in this thread or task."""
    token = _current_settings.set(settings)
    try:
        yield
    finally:
        _current_settings.reset(token)


def get_lookup_settings() -> Settings:
    """Return the settings of `use_lookup_settings`, else those of the running program."""
    settings = _current_settings.get()
    if settings is None:
        from pulumi.runtime import get_config  # noqa: PLC0415 - only a program has a configuration

        settings = Settings(config=get_config)
    return settings


class ResourceOperations(Protocol[In_contra, Out]):
    """The operations on one kind of resource: typed, synchronous, safe for many threads.

    Operations know nothing of Pulumi, raise only `GpuformError`s, and wait only through their
    context, whose `stored_properties` has the stored properties of the object.
    """

    def __init__(self, settings: Settings) -> None:
        """Create at most a client; send nothing."""

    def create(self, context: ProviderContext, inputs: In_contra) -> str:
        """Send the create and return the object's id at once, without waiting for readiness.

        Raises only if nothing exists, or if an intent is left for the next attempt.
        """

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: In_contra
    ) -> Observed[Out]:
        """Wait until the object is as declared, and return its inputs and outputs.

        Raises NotReady with the last Observed.
        """

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Observed[Out] | None:
        """Return the object as it is now, or None if it is gone.

        `known_inputs` has the inputs declared last time, or nothing during an import.
        """

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: In_contra,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send the changed fields without waiting for the object.

        `changes` is empty if an interrupted run only has to be completed.
        """

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Delete the object and wait until it is gone; a missing object is no error."""


@runtime_checkable
class PlanningChecks(Protocol):
    """The additional operation of a kind whose declaration the platform's lists may contradict."""

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterable[Problem]:
        """Yield a problem for each declared value that the platform would refuse, while planning.

        `values` has valid inputs in normal form and may be UNKNOWN in places.
        `context.on_skipped_check` receives a check that is impossible; that is never an error.
        """


@runtime_checkable
class ForeignObjectLookup(Protocol):
    """The additional operation of a kind whose objects contain objects of others."""

    def find_foreign_objects(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the names of objects by others inside this one, which a deletion would delete.

        `known_inputs` has the inputs declared last time.

        Raises:
            GpuformError: the platform does not report what the object contains.
        """


@runtime_checkable
class NodeRemovalOperations(Protocol[In_contra]):
    """The additional operations of a kind whose nodes run jobs."""

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: In_contra
    ) -> RemovedNodes | None:
        """Return the nodes that an update would remove now, with their GPUs and jobs.

        Without nodes if there are none, or without jobs if no scheduler reports them. None if the
        nodes are unknown, as those of a missing object.
        """

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """Return all nodes that the object's end removes now, with their GPUs and jobs.

        Without nodes, without jobs, and None as `predict_removed_nodes`. `because` says what
        happens to the object: deleted, replaced, stopped or moved.
        """

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon the nodes of a deleted object that an interrupted removal left cordoned.

        Raises:
            GpuformError: nodes may stay cordoned.
        """
