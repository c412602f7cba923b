"""Describe a kind of resource beyond its operations, and convert property maps of Pulumi's hosts.

Platforms override the members of `Traits`, and give functions as `KindHooks`; `extract_outputs`
builds outputs without secrets. Hosts pass unwrapped values, every number as a double, Pulumi's own
unknowns, and `__provider`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeVar

from pulumi.output import Unknown as PulumiUnknown

from gpuform.providers.context import ProviderContext, get_current_context
from gpuform.providers.environment import Live, enter_environment
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import IdlenessVerdict, Power, list_idleness_notices
from gpuform.providers.operations import Guard, Observed, ResourceOperations, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.repairing import (
    RepairDecision,
    build_due_repair_notices,
    build_unrepaired_notices,
)
from gpuform.schemas.access import Access
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
from gpuform.schemas.timeline import AgendaEntry
from gpuform.schemas.values import UNKNOWN, convert_leaves

if TYPE_CHECKING:
    from gpuform.schemas.timeline import ExplainedRepair


Properties = dict[str, Any]
"""A property map: unwrapped values by name."""


Values = Mapping[str, Any]


Default = TypeVar("Default")


def _always(value: Default) -> Callable[..., Default]:
    """Return the default of a hook: a function that returns `value` for any arguments."""
    return lambda *_values: value


_NOTHING: Final = _always(None)
_EMPTY: Final = _always(())
_FALSE: Final = _always(False)
_NO_TEXT: Final = _always("")
_ZERO: Final = _always(0)
_NO_REPAIRS: Final = _always(RepairDecision())
_NO_USAGE: Final = _always(ResourceUsage())
_NO_METRICS: Final[Callable[..., Mapping[str, Live]]] = _always(MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class KindHooks:
    """What a kind decides and describes beyond its operations: functions, each with a default.

    No function changes an object; only `measure_gpu_usage`, `observe_gpu_work`, `judge_idleness`,
    `read_live_metrics` and `find_write_refusal` send requests, and raise GpuformError if the
    platform does not answer.

    `inputs` are declared values, and may be UNKNOWN in places; `declared` are valid inputs in
    normal form. `outputs` are empty before the object exists, and have fewer fields in states of
    older versions of gpuform; `old_outputs` are those of the state.
    """

    is_stuck: Callable[[Values], bool] = _FALSE
    """(old_outputs) Does the object wait for a person's action, so that every plan says so?"""
    list_planned_fields: Callable[[Values], Collection[str]] = _EMPTY
    """(declared) The inputs that `find_planned_changes` compares, beside `planned_fields`."""
    find_planned_changes: Callable[[Values, Values], Iterable[FieldChange]] = _EMPTY
    """(old_outputs, declared) The kind's own changes, beyond the comparison of fields, from old
    outputs alone."""
    decide_repairs: Callable[[Values, Values], RepairDecision] = _NO_REPAIRS
    """(old_outputs, declared) Which broken nodes an update repairs, and which not, from old outputs
    alone. Raises GpuformError if a requested node cannot be repaired as requested."""
    tests_nodes_of: Callable[[Values, Sequence[NodeRepair]], bool] = _FALSE
    """(old_outputs, repairs) Does the resource test a node of these repairs, which then is tested
    again?"""
    is_accepted: Callable[[Values, Values], bool] = _FALSE
    """(inputs, outputs) Do the platform's own tests, as declared, prove all the nodes sound?"""
    find_kind_due_notices: Callable[[Values, Values], Iterable[Notice]] = _EMPTY
    """(old_outputs, declared) Notices of actions that the next run takes by itself, beside repairs;
    see `find_due_notices`."""
    should_create_first: Callable[[Values], bool] = _FALSE
    """(declared) Does a replacement create the new object before it deletes the old one? By default
    the old object is deleted first: GPUs are scarce."""
    describe_replacement: Callable[[Collection[str], Values], str] = _NO_TEXT
    """(names, declared) A sentence for people about a replacement because of the inputs `names`, or
    ""."""
    find_deletion_guard: Callable[[Values], Guard | None] = _NOTHING
    """(old_outputs) The permission that deleting or replacing the object needs, or None."""
    find_change_guard: Callable[[Values, Values], Guard | None] = _NOTHING
    """(old_outputs, declared) The permission that changing the object in place needs, or None."""
    count_gpus: Callable[[Values], int | None] = _ZERO
    """(inputs or outputs) The number of GPUs; None if the number is UNKNOWN yet, 0 if it is not
    declared or no number."""
    compute_resource_usage: Callable[[Values, Values], ResourceUsage] = _NO_USAGE
    """(inputs, outputs) The GPUs, storage and other capacity of the resource; empty without any."""
    get_access: Callable[[Values], Access | None] = _NOTHING
    """(outputs) How people log in to the object, with credentials in the clear; None for a kind
    without a login."""
    get_placement: Callable[[Values], ResourcePlacement | None] = _NOTHING
    """(outputs) Where the nodes of the object are, as far as reported; None without nodes."""
    list_node_records: Callable[[str, Values, Values], Sequence[NodeRecord]] = _EMPTY
    """(object_id, inputs, outputs) The object's GPU nodes for an inventory, from stored values
    alone."""
    list_agenda_entries: Callable[[Values, Values], Sequence[AgendaEntry]] = _EMPTY
    """(inputs, outputs) The kind's own lines of the calendar, such as a reservation or a rollout,
    without lines about `expires`, `ttl` and `schedule`."""
    list_observed_repairs: "Callable[[Values], Sequence[ExplainedRepair]]" = _EMPTY
    """(outputs) The repairs of nodes that the platform itself reports, whoever requested them, from
    stored outputs alone, with `run` None."""
    measure_gpu_usage: Callable[[Settings, str], float | None] = _NOTHING
    """(settings, object_id) The used share of the GPUs now, from 0 to 1; None without a
    measurement."""
    observe_gpu_work: Callable[[Settings, str], Observation | None] = _NOTHING
    """(settings, object_id) The platform's measurement of whether the object's GPUs are used now.

    None if the platform measures nothing, or if a scheduler reports before nodes are removed. Idle
    GPUs are an observation without `missing` texts: GPUs in use, and a measurement that proves
    nothing, each add a text."""
    judge_idleness: Callable[[Settings, str, Idleness], IdlenessVerdict | None] = _NOTHING
    """(settings, object_id, idleness) Are the object's GPUs idle now by a declared rule? None if
    not measured."""
    read_live_metrics: Callable[[Settings, Sequence[str]], Mapping[str, Live]] = _NO_METRICS
    """(settings, ids) Current measurements of the objects with these ids, by id, without unmeasured
    objects. Sends one request for many objects where the platform can list them."""
    get_owner_name: Callable[[Values], str] = _NO_TEXT
    """(outputs) The owner or maker that the platform names, in its words; empty for none."""
    is_off: Callable[[Values], bool] = _FALSE
    """(outputs) Do the outputs show the object as stopped or stopping? See `Traits.power`."""
    should_stay_off: Callable[[Values, Values], bool] = _FALSE
    """(old_outputs, declared) Does a stopped object stay off even though declared to run? Not asked
    for an object with a declared schedule."""
    get_creation_time: Callable[[Values], float | None] = _NOTHING
    """(outputs) When the object was created, in Unix seconds; None if nobody reports it."""
    find_kind_notices: Callable[[Values, Values, float], Iterable[Notice]] = _EMPTY
    """(inputs, outputs, now) The kind's own notices of plans at `now`; see `list_notices`."""
    find_observed_news: Callable[[Values, Values], Iterable[Notice]] = _EMPTY
    """(old_outputs, outputs) Notices of changes since the stored outputs that the platform made by
    itself."""
    get_exposure: Callable[[Values, Values], Exposure | None] = _NOTHING
    """(inputs, outputs) Which ports everybody can reach; None for a kind without ports to open."""
    get_credit: Callable[[Values, Values], Credit | None] = _NOTHING
    """(inputs, outputs) What missing credit has done or may do to the resource; None if not
    reported."""
    find_write_refusal: Callable[[Settings], str | None] = _NOTHING
    """(settings) Why the API key may not change objects of this kind, or "" if allowed.

    The text names the key's role. None if the platform does not report permissions beforehand.
    Sends at most one request for each key and process, which changes nothing."""

    def find_due_notices(self, old_outputs: Values, declared: Values) -> Iterable[Notice]:
        """Return notices of actions that the next run takes by itself.

        For commands that read a state without a plan: one for each due repair of a broken node, and
        the kind's own.
        """
        repairs = build_due_repair_notices(self.decide_repairs(old_outputs, declared))
        return (*repairs, *self.find_kind_due_notices(old_outputs, declared))

    def list_notices(self, inputs: Values, outputs: Values, now: float) -> Iterable[Notice]:
        """Return the notices that a plan shows for the resource at `now` (Unix seconds).

        One for a declared idle rule, one for each broken node that is not repaired, and the kind's
        own. Notices of the resource's expiry are left out.
        """
        broken = build_unrepaired_notices(self.decide_repairs(outputs, inputs))
        idleness = list_idleness_notices(inputs, is_off=self.is_off(outputs))
        return (*idleness, *broken, *self.find_kind_notices(inputs, outputs, now))


class Traits:
    """The names and models of a kind, and its `hooks`. A kind overrides the members that apply."""

    platform: ClassVar[str]
    kind: ClassVar[str]
    inputs: ClassVar[type[InputModel]]
    outputs: ClassVar[type[OutputModel]]
    timeouts: ClassVar[Timeouts]
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
    hooks: ClassVar[KindHooks] = KindHooks()
    """What the kind decides and describes, as functions."""
    operations: ClassVar[type[ResourceOperations[Any, Any]]]

    _settings: Settings | None = None

    @classmethod
    def with_settings(cls, settings: Settings) -> Self:
        """Return a lifecycle that uses these settings for address and credentials."""
        lifecycle = cls()
        lifecycle._settings = settings
        return lifecycle

    def open_operations(self) -> ResourceOperations[Any, Any]:
        """Return the kind's operations in the stack's own environment. Raises WrongEnvironment."""
        settings = self._settings or Settings()
        # Before any request: a run on the emulator must never reach a real platform.
        enter_environment(get_current_context(), self.platform, settings)
        return type(self).operations(settings)

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


def to_properties(properties: Mapping[str, Any]) -> Properties:
    """Return a property map without `__provider` and with gpuform's own unknowns."""
    return {
        key: convert_leaves(
            value, lambda leaf: UNKNOWN if isinstance(leaf, PulumiUnknown) else leaf
        )
        for key, value in properties.items()
        if key != PROVIDER_KEY
    }


def to_pulumi(value: Any) -> Any:
    """Return a value with Pulumi's unknowns at every depth, as the hosts accept."""
    # The SDK's class has no types.
    create_unknown: Callable[[], Any] = PulumiUnknown
    return convert_leaves(value, lambda leaf: create_unknown() if leaf is UNKNOWN else leaf)


_LARGEST = 1e15

EXPIRES = "expires"
"""The tag with the end of an object, on platforms without a field for it."""


def find_text(values: Mapping[str, Any], *names: str) -> str:
    """Return the first text that is not empty among these declared fields, else "".

    Empty, too, if a field before that text is UNKNOWN.
    """
    for name in names:
        value = values.get(name)
        if value is UNKNOWN:
            return ""
        if isinstance(value, str) and value:
            return value
    return ""


def find_number(values: Mapping[str, Any], name: str) -> float | None:
    """Return a declared number; 0 if absent or no number, None if UNKNOWN or absurdly large."""
    value = values.get(name)
    if value is UNKNOWN:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value if abs(value) < _LARGEST else None


def list_member_names(values: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the sorted keys of an object in the declaration, such as its tags."""
    value = values.get(name)
    return tuple(sorted(map(str, value))) if isinstance(value, Mapping) else ()


def list_unknown_fields(values: Mapping[str, Any], **fields: str) -> tuple[str, ...]:
    """Return the labels of the declared fields that are UNKNOWN: `region="region_id"`.

    Each keyword is a label, and its value the name of the field.
    """
    return tuple(label for label, name in fields.items() if values.get(name) is UNKNOWN)


def extract_placement(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the region and type in which an object was created after a search for capacity.

    By input names; empty for outputs of older versions.
    """
    placement = {name: outputs.get(f"placed_{name}") for name in ("region", "gpu_type")}
    return {name: value for name, value in placement.items() if isinstance(value, str)}
