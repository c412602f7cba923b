"""The machines of `randomized.world` on a platform in files, for engines in processes of their own.

Copied beside each program. `platform.json` holds the objects, `faults.json` which calls fail, and
every call becomes a line of `calls.jsonl`. Ids are `<label>-<n>`, so that they do not depend on
the order in which resources are made; a label is what the names of a resource have in common.
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


def _said(values):
    return {key: _plain(value) for key, value in values.items() if key != "__provider"}


def _plain(value):
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return "<unknown>" if isinstance(value, Unknown) else value


def _own(props):
    return {k: v for k, v in props.items() if k not in ("__provider", "address", "label")}


def _asked(verb, label, **arguments):
    """Records the call that is being served; fails as it is to."""
    said = {key: _said(v) if isinstance(v, dict) else v for key, v in arguments.items()}
    with ONE_AT_A_TIME:
        with (FOLDER / "calls.jsonl").open("a") as file:
            file.write(json.dumps({"call": verb, **said}) + "\n")
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
    """Its objects by id; a change holds the lock and is kept."""

    file = FOLDER / "platform.json"

    def __enter__(self):
        ONE_AT_A_TIME.acquire()
        self.stored = json.loads(self.file.read_text())
        self.objects = self.stored["objects"]
        return self

    def __exit__(self, *_error):
        self.file.write_text(json.dumps(self.stored))
        ONE_AT_A_TIME.release()

    def counted(self, label):
        counts = self.stored["counts"]
        counts[label] = counts.get(label, 0) + 1
        return f"{label}-{counts[label]}"

    def changed(self, id_, props):
        """Gives an object these properties, and another address if the platform is `moving`."""
        address = self.objects[id_]["address"]
        if self.stored["moving"]:
            address = f"of {self.counted(f'{id_} moved')}"
        self.objects[id_] = {**_said(props), "address": address}
        return dict(self.objects[id_])


class Machines(ResourceProvider):
    def check(self, olds, news):
        how = _asked("check", news["label"], olds=olds, news=news)
        return CheckResult(news, [CheckFailure("size", "is refused")] if how else [])

    def diff(self, id_, olds, news):
        _asked("diff", news["label"], id=id_, olds=olds, news=news)
        if "lazy" in news:
            return DiffResult()
        before, after = _own(olds), _own(news)
        changed = [k for k in before.keys() | after.keys() if before.get(k) != after.get(k)]
        return DiffResult(
            changes=bool(changed),
            replaces=sorted(k for k in changed if k in ("rack", "slot")),
            delete_before_replace="slot" in changed,
        )

    def create(self, props):
        _asked("create", props["label"], props=props)
        with Platform() as platform:
            id_ = platform.counted(props["label"])
            platform.objects[id_] = {**_said(props), "address": f"of {id_}"}
            return CreateResult(id_, dict(platform.objects[id_]))

    def read(self, id_, props):
        _asked("read", props.get("label", id_), id=id_, props=props)
        with Platform() as platform:
            found = platform.objects.get(id_)
        if found is None:
            return ReadResult("", {})
        # The platform shows secrets only to those who know of them.
        return ReadResult(id_, {k: v for k, v in found.items() if k in props or k not in SECRETS})

    def update(self, id_, olds, news):
        _asked("update", news["label"], id=id_, olds=olds, news=news)
        with Platform() as platform:
            if id_ not in platform.objects:
                raise RuntimeError(f"there is no {id_}")
            return UpdateResult(platform.changed(id_, news))

    def delete(self, id_, props):
        _asked("delete", props.get("label", id_), id=id_, props=props)
        with Platform() as platform:
            platform.objects.pop(id_, None)


def label(name):
    return name.rpartition("-")[2][0]


class Machine(Resource, module="randomized", name="Machine"):
    """A machine; given an id among its options, it is only read."""

    address: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **props):
        declared = {"label": label(name), "address": None, "size": None, **props}
        super().__init__(Machines(), name, declared, opts)
