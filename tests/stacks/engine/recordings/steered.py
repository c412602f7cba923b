"""The provider of the recordings, controlled by the properties of its resources.

Copied into each replayed stack. The platform is `platform.json`, every call is a line of
`calls.jsonl`, both beside this file.

- check refuses a `size` of -1
- diff: any property that differs is a change; `region` and `zone` force a replacement, `zone` one
  that deletes first; `made` is the platform's own
- `fail_diff`, `fail_create`, `fail_read`, `fail_update` and `fail_delete` make the verb fail
- ids are `<label>-<n>`, counted for each label and never used twice
"""

import json
import pathlib
import threading

from pulumi import ComponentResource, Output, dynamic
from pulumi.output import Unknown

FOLDER = pathlib.Path(__file__).parent
ONE_AT_A_TIME = threading.Lock()


def record_properties(values):
    """Return properties in the form of a recording."""
    return {
        key: "<unknown>" if isinstance(value, Unknown) else value
        for key, value in values.items()
        if key != "__provider"
    }


def record(call, **arguments):
    line = json.dumps({"call": call, **arguments})
    with ONE_AT_A_TIME, (FOLDER / "calls.jsonl").open("a") as file:
        file.write(line + "\n")


class Platform:
    """Its objects by id; a change holds the lock and is kept."""

    file = FOLDER / "platform.json"

    def __enter__(self):
        ONE_AT_A_TIME.acquire()
        stored = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.objects, self.counts = stored.get("objects", {}), stored.get("counts", {})
        return self

    def __exit__(self, *_error):
        self.file.write_text(json.dumps({"objects": self.objects, "counts": self.counts}))
        ONE_AT_A_TIME.release()

    def next_id(self, label):
        self.counts[label] = self.counts.get(label, 0) + 1
        return f"{label}-{self.counts[label]}"


def refuse(verb, properties):
    if properties.get(f"fail_{verb}"):
        raise RuntimeError(f"{verb} refused")


def build_outputs(id_, properties):
    return {**record_properties(properties), "made": f"made-{id_}"}


class Steered(dynamic.ResourceProvider):
    def check(self, olds, news):
        record("check", olds=record_properties(olds), news=record_properties(news))
        failures = []
        if news.get("size") == -1:
            failures.append(dynamic.CheckFailure("size", "size must not be -1"))
        return dynamic.CheckResult(news, failures)

    def diff(self, id_, olds, news):
        record("diff", id=id_, olds=record_properties(olds), news=record_properties(news))
        refuse("diff", news)
        differing = {key for key in news if olds.get(key) != news[key]} - {"__provider", "made"}
        forcing = differing & {"region", "zone"}
        return dynamic.DiffResult(
            changes=differing != set(),
            replaces=sorted(forcing),
            delete_before_replace="zone" in forcing,
        )

    def create(self, props):
        record("create", props=record_properties(props))
        refuse("create", props)
        with Platform() as platform:
            id_ = platform.next_id(props["label"])
            platform.objects[id_] = record_properties(props)
        return dynamic.CreateResult(id_, build_outputs(id_, props))

    def read(self, id_, props):
        record("read", id=id_, props=record_properties(props))
        refuse("read", props)
        with Platform() as platform:
            stored_object = platform.objects.get(id_)
        if stored_object is None:
            return dynamic.ReadResult("", {})
        return dynamic.ReadResult(id_, build_outputs(id_, {**props, **stored_object}))

    def update(self, id_, olds, news):
        record("update", id=id_, olds=record_properties(olds), news=record_properties(news))
        refuse("update", news)
        with Platform() as platform:
            platform.objects[id_] = record_properties(news)
        return dynamic.UpdateResult(build_outputs(id_, news))

    def delete(self, id_, props):
        record("delete", id=id_, props=record_properties(props))
        refuse("delete", props)
        with Platform() as platform:
            platform.objects.pop(id_, None)


class Thing(dynamic.Resource):
    made: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **properties):
        declared = {"label": name, "made": None} | properties
        super().__init__(Steered(), name, declared, opts)


class Folder(ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("toy:index:Group", name, {}, opts)
