"""Describe one kind of resource beside its verbs: what plans, commands and reviews ask of it, and
its outputs without secrets.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.environment import Live
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import Power, Verdict, list_idleness_notices
from gpuform.providers.operations import Guard, Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.properties import Properties
from gpuform.providers.repairing import (
    RepairDecision,
    build_due_repair_notices,
    build_unrepaired_notices,
)
from gpuform.schemas.access import Access
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import InputModel, OutputModel
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.resource_facts import (
    Credit,
    Exposure,
    Notice,
    ResourcePlacement,
    ResourceUsage,
)
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import parse_count


class Traits:
    """A kind's names, models and answers. A kind overrides those that it has something to say to.

    None of them changes an object, and only `in_use`, `observe_work`, `idle`, `live` and
    `write_refusal` ask a platform.
    """

    platform: ClassVar[str]
    kind: ClassVar[str]
    inputs: ClassVar[type[InputModel]]
    outputs: ClassVar[type[OutputModel]]
    timeouts: ClassVar[Timeouts]
    gpus_field: ClassVar[str] = ""
    """The input that says how many GPUs the resource holds, if there is one (see `gpus`)."""
    import_field: ClassVar[str] = ""
    """The input that no read brings and an import is told with the id, `ID@VALUE`."""
    planned_fields: ClassVar[frozenset[str]] = frozenset()
    """The inputs that `planned_changes` compares, instead of their rules."""
    parts_field: ClassVar[str] = ""
    """The output that lists the ids of what the resource is made of, if of several objects."""
    parts_kind: ClassVar[str] = ""
    """The kind of those objects, each of which could be a resource of its own."""
    drift_outputs: ClassVar[frozenset[str]] = frozenset()
    """The outputs whose change is drift, too, though nothing that is declared has changed."""
    volatile_outputs: ClassVar[frozenset[str]] = frozenset()
    """The outputs that go on changing by themselves: no drift, also of what is only read (`.get`),
    all of whose other outputs are compared."""
    is_bound: ClassVar[bool] = False
    """Nothing is made or deleted: any number of resources may stand for one id."""
    is_eventually_consistent: ClassVar[bool] = False
    """Lists and lookups of the platform may lack an object that exists, for the settle time."""
    creates_no_object: ClassVar[bool] = False
    """No object is made that could be lost: where a host cannot store what is not ready, a create
    or update that ends so fails, so that nothing is made that depends on it."""
    deletion_note: ClassVar[str] = ""
    """What a deletion leaves as it is, for the plan to say; empty when that is nothing."""
    id_example: ClassVar[str] = ""
    """An id of such an object, as an import is given it."""
    relevant_permissions: ClassVar[tuple[Permission, ...]] = ()
    """What a run may have to be allowed, beside what holds for every kind."""
    is_recreated_by_repair: ClassVar[bool] = False
    """A repair makes another object in its place: it is a replacement."""
    power: ClassVar[Power | None] = None
    """How it is started and stopped, where the platform can do that."""

    @classmethod
    def count_gpus(cls, properties: Mapping[str, Any]) -> int | None:
        """How many GPUs a resource of these inputs or outputs holds; None when not known yet."""
        return parse_count(properties.get(cls.gpus_field)) if cls.gpus_field else 0

    @classmethod
    def list_property_names(cls) -> list[str]:
        """Every property of the resource: inputs in canonical spelling, then computed outputs."""
        rules = get_field_rules(cls.inputs)
        declared = [name for name in rules if not rules[name].spelling]
        return list(dict.fromkeys([*declared, *cls.outputs.model_fields]))

    @classmethod
    def list_secret_names(cls) -> list[str]:
        """The properties that are secret, sorted."""
        rules = get_field_rules(cls.inputs)
        secret = {name for name in rules if rules[name].secret}
        return sorted(secret | cls.outputs.get_secret_names())

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Whether an object of these outputs waits for people: then every plan of it says so."""
        return False

    @classmethod
    def get_planned_fields(cls, declared: Mapping[str, Any]) -> Collection[str]:  # noqa: ARG003 - a hook
        """`planned` for this declaration."""
        return cls.planned_fields

    @classmethod
    def find_planned_changes(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[FieldChange]:
        """What has to change beside the fields that the rules compare: pure, from old outputs.

        `declared` is canonical and may be UNKNOWN in places.
        """
        return ()

    @classmethod
    def decide_repairs(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> RepairDecision:
        """Which broken nodes an update repairs, and which it leaves: pure, from old outputs.

        Raises GpuformError for a node that is asked for and cannot be repaired so.
        """
        return RepairDecision()

    @classmethod
    def is_accepted(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Whether the platform's own tests, as declared, prove the nodes of these outputs.

        `seen` is empty for what is not there yet.
        """
        return False

    @classmethod
    def find_due_notices(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[Notice]:
        """What the next run does by itself, for who looks at a state and plans nothing."""
        return build_due_repair_notices(cls.decide_repairs(old_outputs, declared))

    @classmethod
    def should_create_first(cls, declared: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Whether a replacement makes the new object before the old one goes.

        By default the old one goes first: GPUs are scarce.
        """
        return False

    @classmethod
    def describe_replacement(cls, names: Collection[str], declared: Mapping[str, Any]) -> str:  # noqa: ARG003 - a hook
        """What to know of a replacement because of these inputs; empty when that is nothing.

        `declared` may be UNKNOWN in places.
        """
        return ""

    @classmethod
    def find_deletion_guard(cls, old_outputs: Mapping[str, Any]) -> Guard | None:  # noqa: ARG003 - a hook
        """What deleting or replacing an object of these outputs needs; nothing by default."""
        return None

    @classmethod
    def find_change_guard(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        declared: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Guard | None:
        """What changing an object of these outputs in place needs; nothing by default."""
        return None

    @classmethod
    def compute_resource_usage(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> ResourceUsage:
        """What a resource of these inputs takes up; nothing where it is no capacity of its own.

        `values` may be UNKNOWN in places; `seen` are the outputs of the object that has them, or
        nothing when there is none yet.
        """
        return ResourceUsage()

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:  # noqa: ARG003 - a hook
        """How people get on an object of these outputs, its credentials in the clear.

        None where there is nothing to get on.
        """
        return None

    @classmethod
    def get_placement(cls, outputs: Mapping[str, Any]) -> ResourcePlacement | None:  # noqa: ARG003 - a hook
        """Where the nodes of an object of these outputs are, as far as the platform tells it.

        None where it has no nodes of its own.
        """
        return None

    @classmethod
    def measure_gpu_usage(cls, settings: Settings, object_id: str) -> float | None:  # noqa: ARG003 - a hook
        """How much of the object's GPUs is used now, from 0 to 1; None if no platform tells it.

        Raises GpuformError when the platform cannot be asked, or does not say.
        """
        return None

    @classmethod
    def observe_gpu_work(cls, settings: Settings, object_id: str) -> Observation | None:  # noqa: ARG003 - a hook
        """Return what the platform measures now of the use of the object's GPUs.

        None where it measures nothing, or where a scheduler tells before its nodes are taken. Use,
        and a measurement that proves nothing, are gaps of the observation.

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
    ) -> Verdict | None:
        """Whether the object's GPUs are idle now; None if no platform tells it.

        Raises GpuformError when the platform cannot be asked.
        """
        return None

    @classmethod
    def read_live_metrics(cls, settings: Settings, ids: Sequence[str]) -> Mapping[str, Live]:  # noqa: ARG003 - a hook
        """What is measured now of the objects with these ids, by id; nothing where nobody measures.

        One that the platform does not tell of is left out. Sends one request for many objects where
        the platform can list them. Raises GpuformError when the platform does not answer.
        """
        return MappingProxyType({})

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:  # noqa: ARG003 - a hook
        """Whom the platform names as owner or maker of an object of these outputs, in its words.

        Empty where it names nobody.
        """
        return ""

    @classmethod
    def is_off(cls, outputs: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Whether an object of these outputs is stopped, or about to be; see `power`."""
        return False

    @classmethod
    def should_stay_off(cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:  # noqa: ARG003 - a hook
        """Whether an object of these outputs, which is off, stays so though it is to run."""
        return False

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:  # noqa: ARG003 - a hook
        """When an object of these outputs was made, in Unix seconds; None where nobody tells."""
        return None

    @classmethod
    def list_notices(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        now: float,  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """What there is to know at `now` (Unix seconds) of a resource of these inputs, but its end.

        `values` may be UNKNOWN in places; `seen` are the outputs of its object, if there is one.
        """
        broken = build_unrepaired_notices(cls.decide_repairs(outputs, inputs))
        return (*list_idleness_notices(inputs, is_off=cls.is_off(outputs)), *broken)

    @classmethod
    def find_observed_news(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Iterable[Notice]:
        """What somebody should know that changed by itself, and is no change of the declaration.

        `before` are the outputs that the state has, `seen` those of a look at the object now.
        States of older versions have fewer of them.
        """
        return ()

    @classmethod
    def get_exposure(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Exposure | None:
        """Which ports of a resource the whole world reaches; None where it has none to open.

        As for `notices`, of its inputs and of the outputs last seen.
        """
        return None

    @classmethod
    def get_credit(
        cls,
        inputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> Credit | None:
        """What lack of credit has done to a resource, or would do; None where nobody tells.

        As for `notices`, of its inputs and of the outputs last seen.
        """
        return None

    @classmethod
    def find_write_refusal(cls, settings: Settings) -> str | None:  # noqa: ARG003 - a hook
        """Why the key may not make, change or delete objects of this kind, with the key's role.

        Empty when it may; None where no platform tells it beforehand. Sends at most one request
        for each key and process, which changes nothing. Raises GpuformError when it is not
        answered.
        """
        return None


MESSAGES: Final = frozenset(
    {"not_ready_reason", "message", "status_message", "because", "reason", "error_message"}
)
"""The outputs, and members of them, that a platform writes for people."""


def extract_outputs(kind: Traits, context: ProviderContext, observed: Observed[Any]) -> Properties:
    """Computed outputs as plain values, without those that have none.

    Secret outputs are hidden by the call from now on.
    """
    dumped: Properties = observed.outputs.model_dump(mode="json", exclude_none=True)
    context.add_secrets(dumped.get(name) for name in kind.outputs.get_secret_names())
    return {name: _redact_messages(name, value, context) for name, value in dumped.items()}


def _redact_messages(name: str, value: Any, context: ProviderContext) -> Any:
    if isinstance(value, Mapping):
        return {key: _redact_messages(key, item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [_redact_messages(name, item, context) for item in value]
    return context.redact(value) if name in MESSAGES and isinstance(value, str) else value
