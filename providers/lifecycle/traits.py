"""Describe a kind of resource beyond its operations, for plans, commands and reviews.

Platforms override the members of `Traits`; `extract_outputs` builds outputs without secrets.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.environment import Live
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import IdlenessVerdict, Power, list_idleness_notices
from gpuform.providers.operations import Guard, Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.properties import Properties
from gpuform.providers.repairing import (
    RepairDecision,
    build_due_repair_notices,
    build_unrepaired_notices,
)
from gpuform.schemas.access import Access
from gpuform.schemas.agenda import AgendaEntry
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import InputModel, OutputModel
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.resource_facts import (
    Credit,
    Exposure,
    NodeRecord,
    Notice,
    ResourcePlacement,
    ResourceUsage,
)
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import parse_count

if TYPE_CHECKING:
    from gpuform.schemas.explanation import ExplainedRepair


class Traits:
    """The names, models and facts of a kind. A kind overrides the members that apply.

    No method changes an object; only `measure_gpu_usage`, `observe_gpu_work`, `judge_idleness`,
    `read_live_metrics` and `find_write_refusal` send requests.
    """

    platform: ClassVar[str]
    kind: ClassVar[str]
    inputs: ClassVar[type[InputModel]]
    outputs: ClassVar[type[OutputModel]]
    timeouts: ClassVar[Timeouts]
    gpus_field: ClassVar[str] = ""
    """The input with the number of GPUs of the resource, if there is one (see `count_gpus`)."""
    import_field: ClassVar[str] = ""
    """The input that no read returns and that an import names beside the id, `ID@VALUE`."""
    planned_fields: ClassVar[frozenset[str]] = frozenset()
    """The inputs that `find_planned_changes` compares, instead of their rules."""
    parts_field: ClassVar[str] = ""
    """The output with the ids of the parts, if the resource consists of several objects."""
    parts_kind: ClassVar[str] = ""
    """The kind of these parts, each of which could be a resource of its own."""
    drift_outputs: ClassVar[frozenset[str]] = frozenset()
    """The outputs whose change is drift, too, although no declared value has changed."""
    volatile_outputs: ClassVar[frozenset[str]] = frozenset()
    """The outputs that change all the time. Their changes are not drift, also after `.get`."""
    is_bound: ClassVar[bool] = False
    """The resource only binds an existing object: any number of resources may have the same id."""
    is_eventually_consistent: ClassVar[bool] = False
    """Lists and lookups of the platform may lack an existing object during the propagation time."""
    creates_no_object: ClassVar[bool] = False
    """The kind creates no object that could be lost.

    A create or update that ends not ready fails under a host that cannot store a resource that is
    not ready, so that no dependent is created.
    """
    deletion_note: ClassVar[str] = ""
    """What a deletion leaves as it is, for plans; empty for nothing."""
    id_example: ClassVar[str] = ""
    """An example of an id, as an import gets it."""
    relevant_permissions: ClassVar[tuple[Permission, ...]] = ()
    """The permissions that a run may need, beyond those of every kind."""
    is_recreated_by_repair: ClassVar[bool] = False
    """A repair creates another object instead: it is a replacement."""
    power: ClassVar[Power | None] = None
    """How the object is started and stopped, if the platform can do that."""

    @classmethod
    def count_gpus(cls, properties: Mapping[str, Any]) -> int | None:
        """Return the number of GPUs in these inputs or outputs; None if the number is UNKNOWN yet.

        0 for a kind without GPUs, and for a number that is not declared or no number.
        """
        return parse_count(properties.get(cls.gpus_field)) if cls.gpus_field else 0

    @classmethod
    def list_property_names(cls) -> list[str]:
        """Return the names of all properties: inputs first, then computed outputs.

        Inputs that are only another way to write other inputs are left out.
        """
        rules = get_field_rules(cls.inputs)
        declared = [name for name in rules if not rules[name].spelling]
        return list(dict.fromkeys([*declared, *cls.outputs.model_fields]))

    @classmethod
    def list_secret_names(cls) -> list[str]:
        """Return the names of secret inputs and outputs, sorted."""
        rules = get_field_rules(cls.inputs)
        secret = {name for name in rules if rules[name].secret}
        return sorted(secret | cls.outputs.get_secret_names())

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Return True if the object waits for a person's action, so that every plan says so.

        False by default.
        """
        return False

    @classmethod
    def get_planned_fields(cls, declared: Mapping[str, Any]) -> Collection[str]:  # noqa: ARG003 - a hook
        """Return the inputs that `find_planned_changes` compares for this declaration.

        By default the kind's `planned_fields`.
        """
        return cls.planned_fields

    @classmethod
    def find_planned_changes(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[FieldChange]:
        """Return the kind's own changes, beyond the comparison of fields, from old outputs alone.

        None by default. `declared` has valid inputs in normal form, and may be UNKNOWN in places.
        """
        return ()

    @classmethod
    def decide_repairs(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> RepairDecision:
        """Return which broken nodes an update repairs, and which not, from old outputs alone.

        No repairs by default.

        Raises:
            GpuformError: a requested node cannot be repaired as requested.
        """
        return RepairDecision()

    @classmethod
    def tests_nodes_of(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        repairs: Sequence[NodeRepair],  # noqa: ARG003 - a hook
    ) -> bool:
        """Return True if the resource tests a node of these repairs, which then is tested again.

        False by default.
        """
        return False

    @classmethod
    def is_accepted(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Return True if the platform's own tests, as declared, prove all the nodes sound.

        `outputs` is empty before the object exists. False by default.
        """
        return False

    @classmethod
    def find_due_notices(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[Notice]:
        """Return notices of actions that the next run takes by itself.

        For commands that read a state without a plan. By default one for each due repair of a
        broken node.
        """
        return build_due_repair_notices(cls.decide_repairs(old_outputs, declared))

    @classmethod
    def should_create_first(cls, declared: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Return True if a replacement creates the new object before deleting the old one.

        By default the old object is deleted first: GPUs are scarce.
        """
        return False

    @classmethod
    def describe_replacement(cls, names: Collection[str], declared: Mapping[str, Any]) -> str:  # noqa: ARG003 - a hook
        """Return a sentence for people about a replacement because of these inputs, or "".

        `declared` may be UNKNOWN in places. By default "".
        """
        return ""

    @classmethod
    def find_deletion_guard(cls, old_outputs: Mapping[str, Any]) -> Guard | None:  # noqa: ARG003 - a hook
        """Return the permission that deleting or replacing the object needs, or None.

        This default returns None.
        """
        return None

    @classmethod
    def find_change_guard(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Guard | None:
        """Return the permission that changing the object in place needs, or None.

        This default returns None.
        """
        return None

    @classmethod
    def compute_resource_usage(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> ResourceUsage:
        """Return the GPUs, storage and other capacity of the resource; empty without any.

        Empty by default. `inputs` may be UNKNOWN in places; `outputs` is empty before the object
        exists.
        """
        return ResourceUsage()

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:  # noqa: ARG003 - a hook
        """Return how people log in to the object, with credentials in the clear, or None.

        None by default, for a kind without a login.
        """
        return None

    @classmethod
    def get_placement(cls, outputs: Mapping[str, Any]) -> ResourcePlacement | None:  # noqa: ARG003 - a hook
        """Return where the nodes of the object are, as far as reported; None without nodes.

        This default returns None.
        """
        return None

    @classmethod
    def list_node_records(
        cls,
        object_id: str,  # noqa: ARG003 - a hook
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Sequence[NodeRecord]:
        """Return the object's GPU nodes for an inventory, from stored values alone.

        None by default. `outputs` may be those of an older version of gpuform, with fewer fields.
        """
        return ()

    @classmethod
    def list_agenda_entries(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Sequence[AgendaEntry]:
        """Return the kind's own lines of the calendar, such as a reservation or a rollout.

        None by default. Lines about `expires`, `ttl` and `schedule` are left out. `inputs` may be
        UNKNOWN in places; `outputs` is empty before the object exists.
        """
        return ()

    @classmethod
    def list_observed_repairs(cls, outputs: Mapping[str, Any]) -> "Sequence[ExplainedRepair]":  # noqa: ARG003 - a hook
        """Return the repairs of nodes that the platform itself reports, whoever requested them.

        From stored outputs alone, with `run` None. None by default.
        """
        return ()

    @classmethod
    def measure_gpu_usage(cls, settings: Settings, object_id: str) -> float | None:  # noqa: ARG003 - a hook
        """Return the used share of the GPUs now, from 0 to 1; None without a measurement.

        This default returns None.

        Raises:
            GpuformError: the platform does not answer.
        """
        return None

    @classmethod
    def observe_gpu_work(cls, settings: Settings, object_id: str) -> Observation | None:  # noqa: ARG003 - a hook
        """Return the platform's measurement of whether the object's GPUs are used now.

        None, also by default, if the platform measures nothing, or if a scheduler reports before
        nodes are removed. Idle GPUs are an observation without `missing` texts: GPUs in use, and a
        measurement that proves nothing, each add a text.

        Raises:
            GpuformError: the platform cannot be asked.
        """
        return None

    @classmethod
    def judge_idleness(
        cls,
        settings: Settings,  # noqa: ARG003 - a hook
        object_id: str,  # noqa: ARG003 - a hook
        idleness: Idleness,  # noqa: ARG003 - a hook
    ) -> IdlenessVerdict | None:
        """Return whether the object's GPUs are idle now by a declared rule; None if not measured.

        This default returns None.

        Raises:
            GpuformError: the platform cannot be asked.
        """
        return None

    @classmethod
    def read_live_metrics(cls, settings: Settings, ids: Sequence[str]) -> Mapping[str, Live]:  # noqa: ARG003 - a hook
        """Return current measurements of the objects with these ids, by id.

        Unmeasured objects are left out; by default all are. Sends one request for many objects
        where the platform can list them.

        Raises:
            GpuformError: the platform does not answer.
        """
        return MappingProxyType({})

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:  # noqa: ARG003 - a hook
        """Return the owner or maker that the platform names, in its words; empty for none.

        Empty by default.
        """
        return ""

    @classmethod
    def is_off(cls, outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Return True if the outputs show the object as stopped or stopping; see `power`.

        False by default, for a kind that cannot be stopped.
        """
        return False

    @classmethod
    def should_stay_off(cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Return True if a stopped object stays off even though declared to run.

        False by default. Not asked for an object with a declared schedule.
        """
        return False

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:  # noqa: ARG003 - a hook
        """Return when the object was created, in Unix seconds; None if nobody reports it.

        This default returns None.
        """
        return None

    @classmethod
    def list_notices(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        now: float,  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """Return the notices that a plan shows for the resource at `now` (Unix seconds).

        By default one for a declared idle rule, and one for each broken node that is not repaired.
        Notices of the resource's expiry are left out. `inputs` may be UNKNOWN in places; `outputs`
        is empty before the object exists.
        """
        broken = build_unrepaired_notices(cls.decide_repairs(outputs, inputs))
        return (*list_idleness_notices(inputs, is_off=cls.is_off(outputs)), *broken)

    @classmethod
    def find_observed_news(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """Return notices of changes since the stored outputs that the platform made by itself.

        None by default. `old_outputs` are stored outputs, `outputs` the current ones. States of
        older versions have fewer outputs.
        """
        return ()

    @classmethod
    def get_exposure(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Exposure | None:
        """Return which ports everybody can reach; None for a kind without ports to open.

        This default returns None.
        """
        return None

    @classmethod
    def get_credit(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Credit | None:
        """Return what missing credit has done or may do to the resource; None if not reported.

        This default returns None.
        """
        return None

    @classmethod
    def find_write_refusal(cls, settings: Settings) -> str | None:  # noqa: ARG003 - a hook
        """Return why the API key may not change objects of this kind, or "" if allowed.

        The text names the key's role. None, as here, if the platform does not report permissions
        beforehand. An override sends at most one request for each key and process that changes
        nothing.

        Raises:
            GpuformError: the platform does not answer.
        """
        return None


MESSAGES: Final = frozenset(
    {"not_ready_reason", "message", "status_message", "because", "reason", "error_message"}
)
"""The outputs, and members of outputs, with texts of the platform for people."""


def extract_outputs(kind: Traits, context: ProviderContext, observed: Observed[Any]) -> Properties:
    """Return computed outputs as unwrapped values, without outputs that are None.

    Adds the secret outputs to the secrets of the context, and masks secrets in the platform's
    messages (`MESSAGES`).
    """
    dumped: Properties = observed.outputs.model_dump(mode="json", exclude_none=True)
    context.add_secrets(dumped.get(name) for name in kind.outputs.get_secret_names())
    return {name: _redact_messages(name, value, context) for name, value in dumped.items()}


def _redact_messages(name: str, value: Any, context: ProviderContext) -> Any:
    """Return a value with the secrets masked in the platform's messages at any depth.

    Messages are the members whose name is in `MESSAGES`; `name` is the value's own name.
    """
    if isinstance(value, Mapping):
        return {key: _redact_messages(key, item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact_messages(name, item, context) for item in value]
    return context.redact(value) if name in MESSAGES and isinstance(value, str) else value
