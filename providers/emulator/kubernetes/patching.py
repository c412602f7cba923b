"""The three forms of PATCH: JSON merge patch, strategic merge patch and JSON patch."""

from copy import deepcopy
from typing import Any

from gpuform.providers.emulator.kubernetes.errors import StatusError

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"

# Lists that a strategic patch merges by a key of their items (the API's `patchMergeKey`).
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "conditions": "type",
    "addresses": "type",
    "ownerReferences": "uid",
    "imagePullSecrets": "name",
}
_PLAIN_LISTS = {"finalizers"}


def patched(old: dict[str, Any], patch: Any, form: str) -> dict[str, Any]:
    """A new object. Raises StatusError: 415 for another form, 400 or 422 for a bad patch."""
    if form == JSON:
        return _json_patched(old, patch)
    if form not in {MERGE, STRATEGIC}:
        raise StatusError(415, f"the body of the request was in an unknown format: {form}")
    if not isinstance(patch, dict):
        raise StatusError(400, "a merge patch is a JSON object")
    merged: dict[str, Any] = _merged(old, patch, is_strategic=form == STRATEGIC)
    return merged


def _merged(old: Any, patch: Any, *, is_strategic: bool, name: str = "") -> Any:
    if is_strategic and isinstance(patch, list) and isinstance(old, list):
        return _merged_list(old, patch, name)
    if not isinstance(patch, dict):
        return deepcopy(patch)
    patch = dict(patch)
    directive = patch.pop("$patch", None) if is_strategic else None
    new = deepcopy(old) if isinstance(old, dict) and directive != "replace" else {}
    for key, value in patch.items():
        if is_strategic and key.startswith("$"):
            _delete_plain(new, key, value)
        elif value is None or (is_strategic and _is_deletion(value)):
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value, is_strategic=is_strategic, name=key)
    return new


def _is_deletion(value: Any) -> bool:
    return isinstance(value, dict) and value.get("$patch") == "delete"


def _merged_list(old: list[Any], patch: list[Any], name: str) -> list[Any]:
    if name in _PLAIN_LISTS:
        return [*old, *(value for value in patch if value not in old)]
    key = _MERGE_KEYS.get(name)
    if key is None:
        return deepcopy(patch)
    new = {item[key]: deepcopy(item) for item in old}
    for item in patch:
        if item == {"$patch": "replace"}:
            return [each for each in deepcopy(patch) if "$patch" not in each]
        if item.get("$patch") == "delete":
            new.pop(item[key], None)
        else:
            new[item[key]] = _merged(new.get(item[key]), item, is_strategic=True)
    return list(new.values())


def _delete_plain(new: dict[str, Any], directive: str, values: Any) -> None:
    """`$deleteFromPrimitiveList/finalizers`; the order of list items is of no consequence here."""
    what, _, name = directive.partition("/")
    if what == "$deleteFromPrimitiveList" and name in new:
        new[name] = [value for value in new[name] if value not in values]
    if what == "$retainKeys":
        for key in set(new) - set(values):
            del new[key]


def _json_patched(old: dict[str, Any], patch: Any) -> dict[str, Any]:
    whole = {"": deepcopy(old)}
    try:
        for step in patch:
            _apply(whole, step)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        told = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, told, reason="Invalid") from error
    result: dict[str, Any] = whole[""]
    return result


def _apply(whole: dict[str, Any], step: dict[str, Any]) -> None:
    operation, path = step["op"], step["path"]
    if operation in {"move", "copy"}:
        value = deepcopy(_looked_up(whole, step["from"]))
        if operation == "move":
            _apply(whole, {"op": "remove", "path": step["from"]})
        _apply(whole, {"op": "add", "path": path, "value": value})
        return
    if operation == "test":
        if _looked_up(whole, path) != step["value"]:
            raise ValueError(f"testing path {path} failed")
        return
    if operation not in {"add", "replace", "remove"}:
        raise ValueError(f"unknown operation {operation!r}")
    parent, last = _parent(whole, path)
    if isinstance(parent, list):
        _apply_to_list(parent, last, step)
        return
    if operation != "add":
        del parent[last]  # it has to be there
    if operation != "remove":
        parent[last] = step["value"]


def _apply_to_list(items: list[Any], last: str, step: dict[str, Any]) -> None:
    at = len(items) if last == "-" else int(last)
    if step["op"] != "add":
        del items[at]
    if step["op"] != "remove":
        items.insert(at, step["value"])


def _parent(whole: dict[str, Any], path: str) -> tuple[Any, str]:
    folder, _, last = path.rpartition("/")
    return _looked_up(whole, folder) if path else whole, _unescaped(last)


def _looked_up(whole: dict[str, Any], path: str) -> Any:
    here: Any = whole[""]
    for part in path.split("/")[1:]:
        here = here[int(part)] if isinstance(here, list) else here[_unescaped(part)]
    return here


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
