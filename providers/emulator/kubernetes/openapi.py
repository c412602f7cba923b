"""The part of the OpenAPI documents that clients ask for before they write: what can be patched."""

from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import KINDS, Kind


def index(base: str) -> dict[str, Any]:
    """Where the document of each group and version is; `base` is the path of the API."""
    folders = {kind.folder for kind in KINDS}
    urls = {each: {"serverRelativeURL": f"{base}/openapi/v3/{each}"} for each in sorted(folders)}
    return {"paths": urls}


def document(folder: str) -> dict[str, Any] | None:
    """The document of a group and version."""
    kinds = [kind for kind in KINDS if kind.folder == folder]
    if not kinds:
        return None
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.32.0"},
        "paths": {_path(kind): {"patch": _patch(kind)} for kind in kinds},
    }


def _path(kind: Kind) -> str:
    home = "namespaces/{namespace}/" if kind.is_namespaced else ""
    return f"/{kind.folder}/{home}{kind.plural}/{{name}}"


def _patch(kind: Kind) -> dict[str, Any]:
    """`fieldValidation` says that the server checks fields: then clients do not."""
    return {
        "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {
            "group": kind.group,
            "kind": kind.name,
            "version": kind.version,
        },
    }
