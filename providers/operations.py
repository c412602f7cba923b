"""What a platform writes for one kind of resource, and what its lifecycle hands to it."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from gpuform.providers.context import ProviderContext
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import all_settings, plugin_key
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import InputModel, OutputModel, Problem
from gpuform.schemas.policies.drain import RemovedNodes

In_contra = TypeVar("In_contra", bound=InputModel, contravariant=True)
Out = TypeVar("Out", bound=OutputModel)


@dataclass(frozen=True)
class Timeouts:
    """How long each verb may take by default, in seconds."""

    create: float
    update: float
    delete: float


@dataclass(frozen=True)
class Guard:
    """What an object may not be destroyed without, and what it is that makes it so."""

    permission: Permission
    because: str


@dataclass(frozen=True)
class Observed(Generic[Out]):
    """An object as the platform shows it.

    `inputs` has the input fields that the platform returns, and only those whose value is to be
    compared with what is declared.
    """

    inputs: Mapping[str, Any]
    outputs: Out


def _no_config(key: str) -> str | None:  # noqa: ARG001 - the shape of a look-up
    return None


@dataclass(frozen=True)
class Settings:
    """Where credentials and addresses come from: the environment, then the stack's config.

    `given` has, by full config keys, what an explicit provider was declared with: it comes first
    and keeps two accounts of one stack apart. `region` is asked where a resource names none, by
    platforms with an address for each region.
    """

    config: Callable[[str], str | None] = _no_config
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    region: str | None = None
    given: Mapping[str, str] = field(default_factory=dict, repr=False)

    def value(self, variable: str, config_key: str | None = None) -> str | None:
        """What was given, the environment variable, else the config key's; empty is absent.

        The plugin's key (`gpuform:togetherApiKey`) counts as the platform's (`together:apiKey`), so
        that a stack's configuration serves both of its forms.
        """
        found = self.given.get(config_key or "") or self.environ.get(variable)
        if not found and config_key:
            found = self.config(config_key) or self.config(plugin_key(config_key))
        return found or None

    def secrets(self) -> list[str]:
        """Every key and token of them, whatever the platform."""
        found = (self.value(each.variable, each.config) for each in all_settings() if each.secret)
        return [each for each in found if each]


_looking_up: ContextVar[Settings | None] = ContextVar("gpuform_looking_up", default=None)


@contextmanager
def looking_up(settings: Settings) -> Iterator[None]:
    """Makes these the settings of what asks a platform in the block (of this thread or task)."""
    token = _looking_up.set(settings)
    try:
        yield
    finally:
        _looking_up.reset(token)


def lookup_settings() -> Settings:
    """Those of `looking_up`, else those of the running program."""
    found = _looking_up.get()
    if found is None:
        from pulumi.runtime import get_config  # noqa: PLC0415 - only a program has a configuration

        found = Settings(config=get_config)
    return found


class ResourceOperations(Protocol[In_contra, Out]):
    """The verbs of one kind of resource: typed, synchronous, safe for many threads.

    They know nothing of Pulumi, raise only `GpuformError`s, and wait only through their call, whose
    `known` has what is stored of the object.
    """

    def __init__(self, settings: Settings) -> None:
        """Sends nothing: a client is made, at most."""

    def planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterable[Problem]:
        """What the platform says against declared values while planning.

        `values` is canonical and may be UNKNOWN in places. A check that cannot be made is told to
        `call.on_skipped_check`; it is never an error.
        """

    def create(self, context: ProviderContext, inputs: In_contra) -> str:
        """Makes the object and returns its id at once, without waiting.

        Raises only when nothing exists, or when an intent is left for the next attempt.
        """

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: In_contra
    ) -> Observed[Out]:
        """Waits until the object is as wanted. Raises NotReady with the last Observed."""

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Observed[Out] | None:
        """The object now, from its id alone; None when it is gone.

        `known` has the inputs declared last time, or nothing when the object is imported.
        """

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: In_contra,
        changes: Sequence[FieldChange],
    ) -> None:
        """Sends the changed fields without waiting for the object.

        None are changed where only what an interrupted run left is to be ended (see `drains`).
        """

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Deletes the object and waits until it is gone; one that is gone already is no error."""


@runtime_checkable
class ForeignObjectLookup(Protocol):
    """The verbs of a kind whose objects hold what other people and stacks have put into them."""

    def find_foreign_objects(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the names of what others have put into the object, and what goes with it.

        `known` has the inputs declared last time. Raises GpuformError when the platform does not
        say what the object holds.
        """


@runtime_checkable
class NodeRemovalOperations(Protocol[In_contra]):
    """The verbs of a kind whose nodes run jobs: a plan asks which of them it takes."""

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: In_contra
    ) -> RemovedNodes | None:
        """The nodes that an update would take now; None when it takes none, or nobody tells."""

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """All nodes, where they go with the object; `because` says what is done to it."""

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons what an interrupted taking has left of an object that is gone.

        Raises GpuformError when nodes may stay cordoned.
        """
