"""The machines of `randomized.memory_platform`, for engines in processes of their own.

This module is copied beside each program. `platform.json` holds the platform's objects,
`faults.json` the calls that fail, and every call becomes a line of `calls.jsonl`. Ids are
`<label>-<n>`, so that they do not depend on the order in which resources are created; a label is
what the names of a resource have in common.
"""

import json
import pathlib
import threading

from pulumi import Output
from pulumi.dynamic import (
    CheckFailure,
    CheckResult,
    CreateResult,
    DiffResult,
    ReadResult,
    Resource,
    ResourceProvider,
    UpdateResult,
)
from pulumi.output import Unknown

FOLDER = pathlib.Path(__file__).parent
ONE_AT_A_TIME = threading.Lock()
SECRETS = frozenset({"token", "tags"})


def _replace_unknown_values(values):
    return {key: _replace_unknown(value) for key, value in values.items() if key != "__provider"}


def _replace_unknown(value):
    if isinstance(value, dict):
        return {key: _replace_unknown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_replace_unknown(item) for item in value]
    return "<unknown>" if isinstance(value, Unknown) else value


def _remove_internal_properties(props):
    return {k: v for k, v in props.items() if k not in ("__provider", "address", "label")}


def _record_call(verb, label, **arguments):
    """Record a call, and fail or return the failure if `faults.json` has a matching fault.

    Returns "" if the call succeeds.
    """
    recorded = {
        key: _replace_unknown_values(v) if isinstance(v, dict) else v
        for key, v in arguments.items()
    }
    with ONE_AT_A_TIME:
        with (FOLDER / "calls.jsonl").open("a") as file:
            file.write(json.dumps({"call": verb, **recorded}) + "\n")
        faults = json.loads((FOLDER / "faults.json").read_text())
        for fault in faults:
            if (fault["verb"], fault["label"]) == (verb, label):
                if fault["once"]:
                    faults.remove(fault)
                    (FOLDER / "faults.json").write_text(json.dumps(faults))
                if fault["how"] == "raise":
                    raise RuntimeError(f"no {verb} today")
                return fault["how"]
    return ""


class Platform:
    """The objects by id; a change holds the lock and is saved when the block ends."""

    file = FOLDER / "platform.json"

    def __enter__(self):
        ONE_AT_A_TIME.acquire()
        self.stored = json.loads(self.file.read_text())
        self.objects = self.stored["objects"]
        return self

    def __exit__(self, *_error):
        self.file.write_text(json.dumps(self.stored))
        ONE_AT_A_TIME.release()

    def next_id(self, label):
        counts = self.stored["counts"]
        counts[label] = counts.get(label, 0) + 1
        return f"{label}-{counts[label]}"

    def change(self, id_, props):
        """Give an object these properties, and another address if the platform is `moving`."""
        address = self.objects[id_]["address"]
        if self.stored["moving"]:
            address = f"of {self.next_id(f'{id_} moved')}"
        self.objects[id_] = {**_replace_unknown_values(props), "address": address}
        return dict(self.objects[id_])


class Machines(ResourceProvider):
    def check(self, olds, news):
        how = _record_call("check", news["label"], olds=olds, news=news)
        return CheckResult(news, [CheckFailure("size", "is refused")] if how else [])

    def diff(self, id_, olds, news):
        _record_call("diff", news["label"], id=id_, olds=olds, news=news)
        if "lazy" in news:
            return DiffResult()
        before, after = _remove_internal_properties(olds), _remove_internal_properties(news)
        changed = [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
        return DiffResult(
            changes=bool(changed),
            replaces=sorted(k for k in changed if k in ("rack", "slot")),
            delete_before_replace="slot" in changed,
        )

    def create(self, props):
        _record_call("create", props["label"], props=props)
        with Platform() as platform:
            id_ = platform.next_id(props["label"])
            platform.objects[id_] = {**_replace_unknown_values(props), "address": f"of {id_}"}
            return CreateResult(id_, dict(platform.objects[id_]))

    def read(self, id_, props):
        _record_call("read", props.get("label", id_), id=id_, props=props)
        with Platform() as platform:
            machine = platform.objects.get(id_)
        if machine is None:
            return ReadResult("", {})
        # The platform shows secrets only to those who know of them.
        return ReadResult(id_, {k: v for k, v in machine.items() if k in props or k not in SECRETS})

    def update(self, id_, olds, news):
        _record_call("update", news["label"], id=id_, olds=olds, news=news)
        with Platform() as platform:
            if id_ not in platform.objects:
                raise RuntimeError(f"there is no {id_}")
            return UpdateResult(platform.change(id_, news))

    def delete(self, id_, props):
        _record_call("delete", props.get("label", id_), id=id_, props=props)
        with Platform() as platform:
            platform.objects.pop(id_, None)


def get_label(name):
    return name.rpartition("-")[2][0]


class Machine(Resource, module="randomized", name="Machine"):
    """A machine; given an id among its options, the machine is only read."""

    address: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **props):
        declared = {"label": get_label(name), "address": None, "size": None, **props}
        super().__init__(Machines(), name, declared, opts)
