"""Create, change and delete the record of a cluster in the AIOS registry.

The registry makes no hardware, and deleting a record deletes none.

Creating, changing and deleting are done when they are answered (AIOS registry reference); a record
is ready when its status is live, or what is declared.

A record has them as data (AIOS registry reference, 'Clusters registry': `reputation` is optional
and not used yet, the sums are "aggregated"); who else writes them is not documented. They are told,
and no change: gpuform sends them when it changes what they are made of.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.aios.client import client_for
from gpuform.providers.aios.records import (
    HARDWARE_STAYS,
    SENT,
    change,
    compared,
    confirm,
    find,
    find_others,
    find_present,
    gone,
    is_another,
    is_still_there,
    look_past_lag,
    others_in,
    require_gone,
    require_nodes,
    unfinished,
    warn_of_gaps,
)
from gpuform.providers.aios.taking import EntryTaking
from gpuform.providers.context import PollResult, ProviderContext, wait_until_done, wait_until_gone
from gpuform.providers.creating import SETTLE, Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import NotFound
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Target
from gpuform.schemas.access import Access
from gpuform.schemas.aios import wire
from gpuform.schemas.aios.documents import build_cluster_document, cluster_to_declared
from gpuform.schemas.aios.inputs import (
    LIVE_STATUS,
    ClusterInputs,
    ClusterOutputs,
    TotalsOutputs,
    UrlMapOutputs,
)
from gpuform.schemas.aios.parts import NODE_COUNT, get_value, set_value, sum_declared_nodes
from gpuform.schemas.aios.updates import (
    UpdateRequest,
    build_entries_request,
    build_field_changes,
    build_sums_request,
    changes_sums,
    remove_sums,
)
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.values import UNKNOWN, is_equal

PLACES: Final[Mapping[str, str]] = {
    "nodes": NODE_COUNT,
    "gpus": "gpus.count",
    "gpu_memory": "gpus.memory",
    "vcpus": "vcpus.count",
    "memory": "memory",
    "swap": "swap",
    "disks": "storage.disks",
    "storage": "storage.size",
    "interfaces": "network.interfaces",
    "tx_bandwidth": "network.tx_bandwidth",
    "rx_bandwidth": "network.rx_bandwidth",
}
"""Where a record has each sum of the outputs."""


def totals_of(found: wire.Cluster) -> tuple[TotalsOutputs, bool]:
    """The sums of a record, and whether they are those of its nodes."""
    values = cluster_to_declared(found)
    told = {name: get_value(values, path) for name, path in PLACES.items()}
    sums = sum_declared_nodes(values["nodes"]["node_data"])
    agree = all(is_equal(told[name] or 0, sums[path]) for name, path in PLACES.items())
    return TotalsOutputs(**told), agree


def without_totals(observed: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """What was observed, with the sums as they are known: they are told apart from drift."""
    values = dict(observed)
    for path in PLACES.values():
        if get_value(values, path) is not None:
            values = set_value(values, path, get_value(known, path))
    return values


def network_news(before: Mapping[str, Any], seen: Mapping[str, Any]) -> Iterator[Notice]:
    """What has become another value since these outputs; nothing for what was not told before.

    Sums of nodes that other resources declare change with them: they are news where they are not
    what the nodes add up to.
    """
    old, new = before.get("network_reputation"), seen.get("network_reputation")
    if old is not None and not is_equal(old, new):
        yield _notice("reputation", old, new)
    sums, now = before.get("totals"), seen.get("totals")
    is_own = get_value(seen, "nodes.node_data") is not None
    if isinstance(sums, Mapping) and isinstance(now, Mapping):
        for name, path in PLACES.items():
            is_news = sums.get(name) is not None and not is_equal(sums[name], now.get(name))
            if is_news and (is_own or seen.get("totals_agree") is False):
                yield _notice(path, sums[name], now.get(name))


def _notice(what: str, old: Any, new: Any) -> Notice:
    after = "nothing" if new is None else _number(new)
    text = f"its {what} in the registry has become {after}; it was {_number(old)}"
    return Notice(kind=NoticeKind.CHANGED, text=text)


def _number(value: Any) -> str:
    whole = isinstance(value, float) and value.is_integer()
    return f"{int(value):,}" if whole or isinstance(value, int) else str(value)


INTERVAL = 30.0
TELLING = ("region_id", "tags", "cluster_metadata")
"""What nobody but people writes, and so tells records of one id from each other."""

Seen = Observed[ClusterOutputs]


class ClusterActions:
    """The verbs of a record."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(
        self, call: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Find nothing wrong: the registry has nothing to look up.

        A new record needs the Parser, whose address may be missing: that is told to the call.
        """
        if (
            not call.stored_properties
            and values.get("create_mode") != "direct"
            and not self._client.has_parser
        ):
            call.on_skipped_check(
                f"cluster {values.get('cluster_id')} is created by the Parser of AIOS, whose "
                "address is missing: set AIOS_PARSER_URL, or declare create_mode: direct"
            )
        return iter(())

    def create(self, call: ProviderContext, inputs: ClusterInputs) -> str:
        """Through the Parser, which drops a declared status: `wait_until_ready` sets it."""
        directly = inputs.create_mode == "direct"
        document = build_cluster_document(inputs.dump_declared(), with_status=directly)
        declared = {
            name: inputs.dump_declared()[name] for name in TELLING if name in inputs.dump_declared()
        }

        def candidates() -> list[Candidate]:
            found = find_present(call, self._client, inputs.cluster_id)
            if found is None:
                return []
            shown = compared(cluster_to_declared(found), declared)
            return [Candidate(found.id, wire.parse_object_id_time(found.object_id), shown=shown)]

        def send() -> str:
            client = self._client
            make = client.create_directly if directly else client.create_by_parser
            return make(document).id

        target = Target("aios", "Cluster", inputs.cluster_id, region="")
        creation = Creation(
            target,
            candidates,
            exists=lambda _id: is_still_there(call, target, candidates()),
            attempts=[Attempt(send, sent=SENT)],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> Seen:
        """Live, or of the declared status, which is set once where the record has another."""
        left = [] if inputs.status is None else [UpdateRequest({"$set": {"status": inputs.status}})]
        began = call.clock.now()
        made = self._client.last_answered(object_id) if call.just_created else None

        def probe() -> PollResult[Any]:
            found = find(self._client, object_id)
            if found and made and found.object_id != made.object_id:
                found = None  # an earlier record of the same id, which is gone
            if found is None:  # a GET may be older than the record
                late = call.clock.now() - began >= SETTLE
                missing = f"cluster {object_id} is not in the registry" if late else None
                return PollResult(None, "not shown yet", failure=missing)
            if left and found.status not in (None, inputs.status):
                found = self._client.update(object_id, left[0])
                left.clear()
            return look_at(found, inputs.status)

        nodes = get_value(inputs.dump_declared(), "nodes.node_data")
        if call.stored_properties.get("ready") is False and nodes is not None:
            # An earlier change may be done in part, whatever was declared then.
            change(
                call,
                self._client,
                object_id,
                lambda record: build_entries_request(record, [], nodes),
            )
        seen: Seen = wait_until_done(call, probe, label=f"cluster {object_id}", interval=INTERVAL)
        return seen

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """Return the record without what Mongo and the system add; None when there is none.

        A status that was as declared when it was last seen still is. A record that differs from
        what the state knows is confirmed: a GET may be older. Entries that the state does not
        declare are somebody else's and stay so: no plan removes them, and a delete asks for them.
        """
        found = self._find_ours(call, object_id, known_inputs)
        if found is None:
            return None
        if get_value(known_inputs, "nodes.node_data") is not None:
            require_nodes(found)
        wanted = (
            call.stored_properties.get("status") if call.stored_properties.get("ready") else None
        )
        seen = look_at(found, wanted).value
        if not known_inputs:
            return seen
        own = _declared_nodes(known_inputs)
        if get_value(known_inputs, "nodes.node_data") is not None:
            _warn_of_others(call, found, own)
        return replace(seen, inputs=_without_others(without_totals(seen.inputs, known_inputs), own))

    def _find_ours(
        self, call: ProviderContext, id_: str, known: Mapping[str, Any] = MappingProxyType({})
    ) -> wire.Cluster | None:
        """Return the record that the state knows, or None if it is gone."""

        def look() -> wire.Cluster | None:
            found = find(self._client, id_)
            if found is not None and known and _is_changed(found, known):
                found = confirm(call, self._client, found)
            return None if found is None or is_another(call, found.object_id) else found

        return look_past_lag(call, self._client, look)

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - paths of free maps are ambiguous
    ) -> None:
        """The changed paths alone; entries of nodes are added and removed one by one."""
        before, after = dict(call.stored_properties), inputs.dump_declared()
        fields = build_field_changes(get_field_rules(ClusterInputs), before, after)
        old, new = (get_value(values, "nodes.node_data") for values in (before, after))
        entries = (old or [], new or []) if new is not None else ([], [])
        has_entries = new is not None and (not is_equal(*entries) or changes_sums(fields))
        if has_entries:  # the sums are those of all entries, not of the declared ones alone
            fields = remove_sums(fields)

        def plan(record: wire.Cluster) -> UpdateRequest | None:
            if is_another(call, record.object_id):
                raise gone(f"cluster {object_id}")
            return build_entries_request(record, *entries) if has_entries else None

        with _taking(call, object_id, after).taken(_gone(*entries)), unfinished():
            record = change(call, self._client, object_id, plan, fields)
            if has_entries:
                warn_of_gaps(call, record)

    def predict_removed_nodes(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> RemovedNodes | None:
        """The nodes whose entries would go."""
        after = inputs.dump_declared()
        old, new = (
            get_value(values, "nodes.node_data") for values in (call.stored_properties, after)
        )
        return (
            None if new is None else _taking(call, object_id, after).leaving(_gone(old or [], new))
        )

    def predict_nodes_removed_with_object(
        self,
        call: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,  # noqa: ARG002 - the shape of NodeRemovalOperations
    ) -> RemovedNodes | None:
        """Those that the record declares itself."""
        return _taking(call, object_id, known_inputs).leaving(_declared_nodes(known_inputs))

    def uncordon_leftover_nodes(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordons nodes whose record is gone."""
        _taking(call, object_id, known_inputs).release()

    def find_foreign_objects(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Sequence[str]:
        """Return the nodes of the record that neither it nor another resource of the stack has."""
        return find_others(call, self._client, object_id, _declared_nodes(known_inputs))

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Delete the record, when no job runs on the nodes that it declares itself any more.

        The answer of the registry to that is believed when it shows no record.
        """

        def is_ours(record: wire.Cluster) -> bool:
            return not is_another(call, record.object_id)

        def probe() -> PollResult[object] | None:
            found = find(self._client, object_id)
            is_there = found is not None and is_ours(found)
            return PollResult(None, found.status or "still there") if found and is_there else None

        if self._find_ours(call, object_id) is None:
            return
        with _taking(call, object_id, known_inputs).taken(_declared_nodes(known_inputs)):
            try:
                self._client.delete(object_id)
            except NotFound as error:
                require_gone(call, self._client, object_id, error, is_ours)
            wait_until_gone(call, probe, label=f"cluster {object_id}", interval=INTERVAL)


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A record of the AIOS registry."""

    platform = "aios"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=600)
    operations = ClusterActions
    id_example = "west-vision-001"
    planned_fields = frozenset({"status"})
    volatile_outputs = frozenset({"network_reputation", "totals"})
    deletion_note = HARDWARE_STAYS
    relevant_permissions = (Permission.DESTROY_OTHERS,)

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:
        """None: the registry has records alone."""
        keeps = "the AIOS registry keeps a record of the cluster and no credentials for it"
        name = str(outputs.get("cluster_id") or "")
        return Access(name=name, no_kubeconfig=keeps, no_hosts=keeps)

    @classmethod
    def get_owner_name(cls, outputs: Mapping[str, Any]) -> str:
        """Whom the record's own words name."""
        words = outputs.get("cluster_metadata")
        return str((isinstance(words, Mapping) and words.get("owner")) or "")

    @classmethod
    def find_observed_news(
        cls, old_outputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> Iterable[Notice]:
        """What the network has written."""
        return network_news(old_outputs, outputs)

    @classmethod
    def find_planned_changes(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Iterable[FieldChange]:
        """The status, where it is declared; some registries keep none."""
        before, after = old_outputs.get("status"), declared.get("status")
        if before is None or after is None or before == after:
            return
        because = KNOWN_AFTER_APPLY if after is UNKNOWN else ""
        yield FieldChange("status", Action.UPDATE, before, after, because=because)


def _warn_of_others(call: ProviderContext, record: wire.Cluster, declared: Collection[str]) -> None:
    """Warn of entries that somebody else has added to a list of nodes that is declared."""
    others = others_in(call, record, declared)
    if others:
        call.on_warning(
            f"cluster {record.id}: somebody else has added {', '.join(others)} to its nodes: no "
            "plan removes them"
        )


def _without_others(inputs: Mapping[str, Any], declared: Collection[str]) -> Mapping[str, Any]:
    """Return observed inputs without the entries of nodes that are not declared."""
    entries = get_value(inputs, "nodes.node_data")
    if entries is None:
        return inputs
    own = [entry for entry in entries if entry.get("id") in declared]
    return set_value(inputs, "nodes.node_data", own)


def _is_changed(found: wire.Cluster, known: Mapping[str, Any]) -> bool:
    """Return whether a record differs from the inputs that the state knows, but for its sums."""
    if remove_sums(
        build_field_changes(get_field_rules(ClusterInputs), cluster_to_declared(found), known)
    ):
        return True
    nodes = get_value(known, "nodes.node_data")
    request = None if nodes is None else build_entries_request(found, [], nodes)
    return request is not None and request != build_sums_request(found)


def _taking(call: ProviderContext, id_: str, declared: Mapping[str, Any]) -> EntryTaking:
    return EntryTaking(call, id_, f"cluster {id_}", declared)


def _declared_nodes(values: Mapping[str, Any]) -> list[str]:
    return [str(each["id"]) for each in get_value(values, "nodes.node_data") or ()]


def _gone(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> list[str]:
    """The ids of the nodes that are declared no more."""
    kept = {each["id"] for each in new}
    return [str(each["id"]) for each in old if each["id"] not in kept]


def look_at(found: wire.Cluster, wanted: str | None) -> PollResult[Seen]:
    """A record as seen by somebody who wants a status, or one that is live."""
    status = found.status
    done = status in (None, wanted or LIVE_STATUS)
    urls = found.config.url_map if found.config else None
    totals, agree = totals_of(found)
    outputs = ClusterOutputs(
        object_id=wire.parse_object_id(found.object_id),
        ready=done,
        not_ready_reason=None if done else f"its status is {status}",
        status=status,
        url_map=None if urls is None else UrlMapOutputs(**urls.model_dump()),
        network_reputation=found.reputation,
        totals=totals,
        totals_agree=agree,
    )
    return PollResult(
        Observed(cluster_to_declared(found), outputs), status or "no status", is_done=done
    )
