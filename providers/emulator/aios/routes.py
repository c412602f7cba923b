"""Serve the registry and the Parser under `/aios` (platform document, 'Cluster registry APIs').

`app` mounts the routes through `create_parts`. A registry's errors are `{"error": message}`; the
Parser answers 200 to what fails below it.
"""

import json
from typing import Any, Literal

from flask import Response, request

from gpuform.providers.emulator.aios.mongo import AiosApiError, make_server_error, matches_filter
from gpuform.providers.emulator.aios.records import Document, RegistryRecords
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.routing import (
    EmulatorParts,
    PlatformApi,
    PlatformControls,
    PlatformSettings,
    RouteTable,
    answer_json,
)
from gpuform.providers.emulator.store import Store


class AiosSettings(PlatformSettings):
    """What tests can set of AIOS: where deployed registries differ from each other."""

    kind = "aios.settings"

    query_envelope: Literal["both", "raw", "wrapped"] = "both"
    """The form of a query's body: the filter itself, `{"query": filter}`, or either."""

    parser_failure: str | None = None
    """The message with which all creates fail below the Parser, in an answer of 200."""

    keeps_status: bool = True
    """Whether records have a status: the reference says so, older code has none."""


_CLUSTERS = "/clusters"
_LIVE = "live"


class AiosApi(PlatformApi):
    """The registry's and the Parser's API, as `app` mounts it."""

    name = "aios"
    prefix = "/aios"

    def _list_routes(self) -> RouteTable:
        """Return method, path and view of the registry's endpoints and of the Parser's actions."""
        return (
            ("POST", f"{_CLUSTERS}/query", self._query_clusters),
            ("POST", _CLUSTERS, self._create_cluster),
            ("GET", f"{_CLUSTERS}/<cluster_id>", self._get_cluster),
            ("PUT", f"{_CLUSTERS}/<cluster_id>", self._update_cluster),
            ("DELETE", f"{_CLUSTERS}/<cluster_id>", self._delete_cluster),
            ("POST", "/api/<action>", self._run_parser_action),
        )

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error answer in AIOS's form: `{"error": message}`."""
        return answer_json({"error": message}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the clusters of all records and their GPU nodes, each with id, name and status.

        Clusters are under `clusters`, nodes under `gpu_nodes`; nodes have the status "".
        """
        records = self._load_platform().list_all()
        return {
            "clusters": [
                {"id": record["id"], "name": record["id"], "status": record.get("status") or ""}
                for record in records
            ],
            "gpu_nodes": [
                {"id": f"{record['id']}/{node['id']}", "name": node["id"], "status": ""}
                for record in records
                for node in record["nodes"]["nodeData"]
            ],
        }

    def _load_platform(self) -> RegistryRecords:
        """Return the registry's records as of the clock's present time."""
        return RegistryRecords(self._store, self._clock.now())

    def _create_cluster(self, records: RegistryRecords) -> Response:
        """Add a record of the request's body, and answer with the completed record.

        Raises `Refusal` 500 for values that Mongoose refuses.
        """
        return answer_json(records.add(_parse_body()))

    def _get_cluster(self, records: RegistryRecords, cluster_id: str) -> Response:
        """Answer with the record of a cluster, with an injected fault's status.

        Raises `Refusal` 404.
        """
        return answer_json(self._prepare_records([records.get(cluster_id)])[0])

    def _update_cluster(self, records: RegistryRecords, cluster_id: str) -> Response:
        """Apply the Mongo update in the request's body to a record, and answer with it.

        Raises `Refusal`: 404 without a record, 500 for a refused update.
        """
        return answer_json(self._prepare_records([records.update(cluster_id, _parse_body())])[0])

    def _delete_cluster(self, records: RegistryRecords, cluster_id: str) -> Response:
        """Remove the record of a cluster, and answer with a message.

        Raises `Refusal` 404.
        """
        records.remove(cluster_id)
        return answer_json({"message": "Cluster deleted"})

    def _query_clusters(self, records: RegistryRecords) -> Response:
        """Answer with the records matching the body's Mongo filter, by their true statuses.

        Injected faults' statuses are set after the match. The setting `query_envelope` decides
        whether the filter stands in `query`: `raw` never, `wrapped` always, otherwise both forms
        are understood. With `wrapped`, a bare filter counts as empty and matches all records.
        """
        body, envelope = _parse_body(), AiosSettings.load(self._store).query_envelope
        is_wrapped = set(body) == {"query"} and isinstance(body["query"], dict)
        query = body["query"] if is_wrapped and envelope != "raw" else body
        # A registry that expects an envelope takes a bare filter for an empty query.
        if envelope == "wrapped" and not is_wrapped:
            query = {}
        return answer_json(
            self._prepare_records(
                [record for record in records.list_all() if matches_filter(record, query)]
            )
        )

    def _run_parser_action(self, records: RegistryRecords, action: str) -> Response:
        """Run the Parser's action `createCluster`: add a record of the values in the body.

        The record has the status live. Answers 200 with `success` true and the record as `result`.
        A refused record, or the setting `parser_failure`, is answered likewise, but with `[false,
        message]` as the result. Other actions answer 400; a body without values raises `Refusal`
        500.
        """
        if action != "createCluster":
            message = f"Action {action} is not implemented"
            return answer_json({"success": False, "message": message}, 400)
        try:
            values = _parse_body()["body"]["spec"]["values"]
        except (KeyError, TypeError) as error:
            raise make_server_error(f"{type(error).__name__}: {error}") from error
        failure = AiosSettings.load(self._store).parser_failure
        try:
            if failure is not None:
                raise make_server_error(failure)
            record = records.add({**values, "status": _LIVE})
        except AiosApiError as error:
            # The Parser reports its own success, and the failure below it as a pair.
            result: object = [False, error.message]
        else:
            result = record
        return answer_json({"success": True, "task_id": "", "result": result})

    def _prepare_records(self, records: list[Document]) -> list[Document]:
        """Return the records for an answer, with statuses of injected faults set in place.

        With the setting `keeps_status` off, copies without any status are returned.
        """
        if not AiosSettings.load(self._store).keeps_status:
            return [{k: v for k, v in record.items() if k != "status"} for record in records]
        self._apply_status_overrides(records, _CLUSTERS)
        return records


def _parse_body() -> Document:
    """Return the request's JSON object, {} without a body.

    Raises `Refusal` 400 for a body that is not a JSON object.
    """
    try:
        body = json.loads(request.get_data() or b"{}")
    except ValueError:
        raise AiosApiError(400, "Invalid JSON input") from None
    if not isinstance(body, dict):
        raise AiosApiError(400, "Invalid JSON input")
    return body


class AiosControls(PlatformControls):
    """What tests do to AIOS past its API: settings, records and nodes that vanish."""

    settings = AiosSettings

    def _list_routes(self) -> RouteTable:
        """Return the routes by which tests remove clusters and GPU nodes from the registry."""
        return (
            ("DELETE", "/clusters/<cluster_id>", self._remove_cluster),
            ("DELETE", "/gpu-nodes/<cluster_id>/<node_id>", self._remove_node),
        )

    def _remove_cluster(self, cluster_id: str) -> Response:
        """Remove a cluster's record for a test, and answer with the id. Raises `Refusal` 404."""
        RegistryRecords(self._store, self._clock.now()).remove(cluster_id)
        return answer_json({"id": cluster_id})

    def _remove_node(self, cluster_id: str, node_id: str) -> Response:
        """Remove a node's entry from a cluster's record for a test; answer with the node's path.

        The record's totals of nodes, GPUs and memory stay as they were. An unknown node changes
        nothing. Raises `Refusal` 404 without the cluster.
        """
        pull = {"$pull": {"nodes.nodeData": {"id": node_id}}}
        RegistryRecords(self._store, self._clock.now()).update(cluster_id, pull)
        return answer_json({"id": f"{cluster_id}/{node_id}"})


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return AIOS's part of the emulator: the API, and the test controls under `aios`."""
    return EmulatorParts(
        (AiosApi(store, clock, faults),), {"aios": AiosControls(store, clock).create_blueprint()}
    )
