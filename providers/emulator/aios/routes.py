"""Serve the registry and the Parser under `/aios` (platform document, 'Cluster registry APIs').

A registry's errors are `{"error": message}`; the Parser answers 200 to what fails below it.
"""

import json
from typing import Any, Literal

from flask import Response, request

from gpuform.providers.emulator.aios.mongo import ApiError, failed, is_match
from gpuform.providers.emulator.aios.records import Document, Records
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.routing import (
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
)
from gpuform.providers.emulator.routing import PlatformSettings as _Settings
from gpuform.providers.emulator.store import Store


class Settings(_Settings):
    """Where deployed registries differ from each other."""

    kind = "aios.settings"

    query_envelope: Literal["both", "raw", "wrapped"] = "both"
    """What a query's body is: the filter itself, `{"query": filter}`, or either."""

    parser_failure: str | None = None
    """What the Parser says of creates, all of which fail below it, in an answer of 200."""

    keeps_status: bool = True
    """Whether records have a status: the reference says so, older code has none."""


_CLUSTERS = "/clusters"
_LIVE = "live"


class Aios(PlatformApi):
    """The platform as the app mounts it."""

    name = "aios"
    prefix = "/aios"

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", f"{_CLUSTERS}/query", self._query),
            ("POST", _CLUSTERS, self._create),
            ("GET", f"{_CLUSTERS}/<cluster_id>", self._get),
            ("PUT", f"{_CLUSTERS}/<cluster_id>", self._update),
            ("DELETE", f"{_CLUSTERS}/<cluster_id>", self._delete),
            ("POST", "/api/<action>", self._parse),
        )

    def answer_error(self, status: int, message: str) -> Response:
        return answer_json({"error": message}, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        records = self._load_platform().all()
        return {
            "clusters": [
                {"id": each["id"], "name": each["id"], "status": each.get("status") or ""}
                for each in records
            ],
            "gpu_nodes": [
                {"id": f"{each['id']}/{node['id']}", "name": node["id"], "status": ""}
                for each in records
                for node in each["nodes"]["nodeData"]
            ],
        }

    def _load_platform(self) -> Records:
        return Records(self._store, self._clock.now())

    def _create(self, records: Records) -> Response:
        return answer_json(records.add(_body()))

    def _get(self, records: Records, cluster_id: str) -> Response:
        return answer_json(self._shown([records.get(cluster_id)])[0])

    def _update(self, records: Records, cluster_id: str) -> Response:
        return answer_json(self._shown([records.update(cluster_id, _body())])[0])

    def _delete(self, records: Records, cluster_id: str) -> Response:
        records.remove(cluster_id)
        return answer_json({"message": "Cluster deleted"})

    def _query(self, records: Records) -> Response:
        """A filter that is not understood is none: all records are found."""
        body, envelope = _body(), Settings.load(self._store).query_envelope
        is_wrapped = set(body) == {"query"} and isinstance(body["query"], dict)
        wanted = body["query"] if is_wrapped and envelope != "raw" else body
        if envelope == "wrapped" and not is_wrapped:
            wanted = {}
        return answer_json(self._shown([each for each in records.all() if is_match(each, wanted)]))

    def _parse(self, records: Records, action: str) -> Response:
        """`createCluster`: the record has what the Parser passes on, and a status of its own."""
        if action != "createCluster":
            told = f"Action {action} is not implemented"
            return answer_json({"success": False, "message": told}, 400)
        try:
            values = _body()["body"]["spec"]["values"]
        except (KeyError, TypeError) as error:
            raise failed(f"{type(error).__name__}: {error}") from error
        failure = Settings.load(self._store).parser_failure
        try:
            if failure is not None:
                raise failed(failure)
            made = records.add({**values, "status": _LIVE})
        except ApiError as error:
            result: object = [False, error.message]
        else:
            result = made
        return answer_json({"success": True, "task_id": "", "result": result})

    def _shown(self, records: list[Document]) -> list[Document]:
        """With the status that an injected fault imposes, or without any."""
        if not Settings.load(self._store).keeps_status:
            return [{k: v for k, v in each.items() if k != "status"} for each in records]
        self._apply_status_overrides(records, _CLUSTERS)
        return records


def _body() -> Document:
    try:
        body = json.loads(request.get_data() or b"{}")
    except ValueError:
        raise ApiError(400, "Invalid JSON input") from None
    if not isinstance(body, dict):
        raise ApiError(400, "Invalid JSON input")
    return body


class AiosControls(PlatformControls):
    settings = Settings

    def _list_routes(self) -> RouteTable:
        return (
            ("DELETE", "/clusters/<cluster_id>", self._remove_cluster),
            ("DELETE", "/gpu-nodes/<cluster_id>/<node_id>", self._remove_node),
        )

    def _remove_cluster(self, cluster_id: str) -> Response:
        Records(self._store, self._clock.now()).remove(cluster_id)
        return answer_json({"id": cluster_id})

    def _remove_node(self, cluster_id: str, node_id: str) -> Response:
        """The entry alone; the sums stay as they are."""
        pull = {"$pull": {"nodes.nodeData": {"id": node_id}}}
        Records(self._store, self._clock.now()).update(cluster_id, pull)
        return answer_json({"id": f"{cluster_id}/{node_id}"})


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """AIOS's part of the emulator."""
    return EmulatorParts(
        (Aios(store, clock, faults),), {"aios": AiosControls(store, clock).create_blueprint()}
    )
