"""Every example as a Pulumi YAML program: right by the schema, and the same as its topology."""

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pulumi_yaml import Checked, Evaluated, references, steps

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.operations import Settings
from gpuform.providers.plugin import settings
from gpuform.providers.plugin.package_schema import build_package_schema
from gpuform.stacks.engine.language_host import Program, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.review.value_text import shown

EXAMPLES = sorted(
    path.parent for path in (Path(__file__).parents[3] / "examples").glob("[0-9]*/pulumi-yaml")
)
SCHEMA = build_package_schema()
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


@each_example
def test_it_is_right_by_the_schema(example: Path) -> None:
    checked = Checked.of(example / "pulumi-yaml" / "Pulumi.yaml", SCHEMA)
    assert checked.problems == []
    project = yaml.safe_load((example / "Pulumi.yaml").read_text())
    told = {key: checked.program[key] for key in project}
    assert told == {**project, "runtime": "yaml"}


@pytest.fixture(autouse=True)
def platforms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serve(seed="examples") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield


def sample(spec: dict[str, Any], place: str) -> Any:
    """A value of a type that tells its place; maps have the keys that the examples ask for."""
    if "$ref" in spec:
        spec = SCHEMA["types"].get(spec["$ref"].removeprefix("#/types/"), {})
    if "properties" in spec:
        return {key: sample(each, f"{place}.{key}") for key, each in spec["properties"].items()}
    if spec.get("type") == "array":
        return [sample(spec["items"], f"{place}[0]")]
    if "additionalProperties" in spec:
        inner = spec["additionalProperties"]
        return {key: sample(inner, f"{place}.{key}") for key in ("8888", "edge")}
    return {"integer": 7, "number": 0.5, "boolean": True}.get(spec.get("type", ""), place)


def outputs(type_: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """What a platform would answer, in either form."""
    properties = SCHEMA["resources"][type_]["properties"]
    found = {key: inputs.get(key) or sample(properties[key], f"{name}.{key}") for key in properties}
    return {**found, "id": f"id of {name}"}


def token_of(type_: str) -> str:
    platform, kind = kind_of(type_) or ("", "")
    return f"gpuform:{platform}:{kind}"


def answer(asked: Registration | Read) -> tuple[str, dict[str, Any]]:
    inputs = {key: value for key, value in asked.inputs.items() if key != "__provider"}
    found = outputs(token_of(asked.type), asked.name, inputs)
    return found.pop("id"), found


def invoke(token: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return dict(settings.call_function(token, arguments, Settings()))


def plain(values: Any, secret: Collection[str] = ()) -> Any:
    """Values as they are shown, with what is secret as a whole masked as a whole."""
    found = {key: "[secret]" if key in secret else value for key, value in values.items()}
    return json.loads(json.dumps(shown(found)))


@each_example
def test_it_declares_what_the_topology_declares(example: Path) -> None:
    program = Program("demo", "dev", example, example, {}, [], 16)
    with contextlib.chdir(example):
        found = record(program, answer, program.config)
    topology = {each.name: each for each in found.declared if each.type != STACK_TYPE}
    document = yaml.safe_load((example / "pulumi-yaml" / "Pulumi.yaml").read_text())
    evaluated = Evaluated(document, outputs, invoke)
    resources = document["resources"]
    assert set(resources) == set(topology)
    for name, resource in resources.items():
        told = topology[name]
        assert resource["type"] == token_of(told.type)
        secret = lifecycle_class(*kind_of(told.type) or ("", "")).list_secret_names()
        declared = {k: v for k, v in told.inputs.items() if k != "__provider" and v is not None}
        assert plain(evaluated.inputs(name), secret) == plain(declared, secret)
        used = {*references(resource["properties"]), *references(resource.get("options", {}))}
        needed = [told.deleted_with, *told.dependencies] if isinstance(told, Registration) else []
        assert used & set(resources) == {each.rpartition("::")[2] for each in needed if each}
        with_ = resource.get("options", {}).get("deletedWith", "")
        assert set(references(with_)) == {told.deleted_with.rpartition("::")[2]} - {""}
    declared = plain(found.outputs)
    evaluated_outputs = {key: evaluated.value(value) for key, value in document["outputs"].items()}
    assert set(evaluated_outputs) == set(declared)
    for key, value in evaluated_outputs.items():
        assert declared[key] in ("[secret]", plain({key: value})[key])


WRONG = """
name: demo
runtime: yaml
config:
  gpus: {type: integer, default: many}
variables:
  images: {"fn::invoke": {function: "gpuform:scp:image", arguments: {}}}
  pools: {"fn::invoke": {function: "gpuform:scp:images", arguments: {zone: a}, return: all}}
  joined: {"fn::sum": [1, 2]}
resources:
  data:
    type: gpuform:together:SharedVolume
    properties: {volume_name: 5, size_tib: "${train.status}", sise: 1}
    options: {dependsOn: ["${nothing}"], deletedWith: "${none}", depends: []}
  train:
    type: gpuform:together:Clusters
  gpus: {type: "gpuform:lens:HealthGate", properties: {condition: {healthy_node: {}}}}
  bench:
    type: gpuform:together:Cluster
    properties:
      cluster_name: "a-${data.id}-${data.ready}"
      region: ${data.regions}
      gpu_type: ${data.region[0}
      num_gpus: true
      billing_type: FREE
outputs:
  there: ${images[0].id}
  nowhere: ${no.where}
"""


def test_what_is_wrong_is_told(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.yaml"
    path.write_text(WRONG)
    assert sorted(Checked.of(path, SCHEMA).problems) == sorted(
        [
            "gpus: is several things",
            "config.gpus: has a default of another type",
            "variables.images: there is no function gpuform:scp:image",
            "variables.pools: has no zone",
            "variables.pools: lacks region_id",
            "variables.pools: there is no all in object",
            "variables.joined: fn::sum is not known",
            "resources.data: has no sise",
            "resources.data: lacks region",
            "resources.data.volume_name: is {'type': 'integer'}, not string",
            "resources.data.size_tib: there is no status in object",
            "resources.data.options: has no depends",
            "resources.data.options: ${nothing} is no resource",
            "resources.data.options: ${none} is no resource",
            "resources.train: has an unknown type gpuform:together:Clusters",
            "resources.gpus.condition: has no healthy_node",
            "resources.bench.cluster_name: data.ready is no text",
            "resources.bench.region: there is no regions in object",
            "resources.bench.gpu_type: data.region[0 is no property access",
            "resources.bench.num_gpus: is {'type': 'boolean'}, not integer",
            "resources.bench.billing_type: FREE is none of the values",
            "outputs.nowhere: there is no no",
        ]
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ["a"]),
        ("east-node-1.gpus.count", ["east-node-1", "gpus", "count"]),
        ('a.b["8888"][0].c', ["a", "b", "8888", 0, "c"]),
        ("", None),
        ("a[b]", None),
        ("a + b", None),
        (".a", None),
    ],
)
def test_property_accesses(text: str, path: list[str | int] | None) -> None:
    assert steps(text) == path
