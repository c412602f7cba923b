"""Draw random topologies, and return what a program or a topology registers, without a platform."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import read_run_context
from gpuform.providers.values import PropertyMap
from gpuform.stacks.engine.language_host import Program, Recorded, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.review.value_text import to_display_value

_SOURCE_FIELDS = {
    "source_position",
    "stack_trace",
    "property_dependencies",
    "aliases",
    "dependencies",
}


def build_program(folder: Path, config: Mapping[str, str] | None = None) -> Program:
    """Return the program or the topology of a folder, with configuration values by key."""
    texts = {f"demo:{key}": value for key, value in (config or {}).items()}
    return Program("demo", "dev", folder, folder, texts, [], 16, read_run_context())


def build_outputs(registration: Registration | Read) -> tuple[str, PropertyMap]:
    """Return the id and the outputs of a resource, which hold the resource's name."""
    kind = find_kind(registration.type)
    assert kind is not None, registration.type
    names = load_lifecycle_class(*kind).list_property_names()
    own = f"{kind[0]}-{kind[1]}-{registration.name}"
    return f"id-of-{own}", {n: registration.inputs.get(n) or f"{n}-of-{own}" for n in names}


def record_registrations(folder: Path, config: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the program's resources by URN and outputs, without source lines."""
    program = build_program(folder, config)
    recorded: Recorded = record(program, build_outputs, program.config)
    resources = {
        e.urn: _describe_registration(e) for e in recorded.declared if e.type != STACK_TYPE
    }
    return {"resources": resources, "outputs": _to_plain_json(recorded.outputs)}


def build_state(folder: Path) -> list[ResourceState]:
    """Return the state that a run leaves on a platform that answers as `build_outputs` does."""
    program = build_program(folder)
    recorded = record(program, build_outputs, program.config)
    return [_build_entry(registration, recorded.outputs) for registration in recorded.declared]


def _build_entry(registration: Registration | Read, outputs: PropertyMap) -> ResourceState:
    entry = ResourceState(
        registration.urn, custom=registration.type != STACK_TYPE, type=registration.type
    )
    common_fields = {f.name for f in fields(ResourceState)} & {f.name for f in fields(registration)}
    for name in common_fields - {"urn", "type", "custom"}:
        value = getattr(registration, name)
        setattr(entry, name, dict(value) if isinstance(value, Mapping) else value)
    entry.external = isinstance(registration, Read)
    entry.protect, entry.retain_on_delete = bool(entry.protect), bool(entry.retain_on_delete)
    if registration.type == STACK_TYPE:
        entry.outputs = outputs
    else:
        entry.id, entry.outputs = build_outputs(registration)
    entry.inputs = {key: value for key, value in entry.inputs.items() if value is not None}
    return entry


def _describe_registration(registration: Registration | Read) -> dict[str, Any]:
    description = {
        f.name: getattr(registration, f.name)
        for f in fields(registration)
        if f.name not in _SOURCE_FIELDS
    }
    description["aliases"] = sorted(
        json.dumps(asdict(a)) for a in getattr(registration, "aliases", ())
    )
    description["dependencies"] = sorted(registration.dependencies)
    property_dependencies = getattr(registration, "property_dependencies", None) or {}
    description["property_dependencies"] = {
        key: sorted(urns) for key, urns in property_dependencies.items() if urns
    }
    description["inputs"] = _to_plain_json(registration.inputs)
    return description


def _to_plain_json(values: PropertyMap) -> Any:
    displayed = to_display_value(
        {k: v for k, v in values.items() if k != "__provider" and v is not None}
    )
    return json.loads(json.dumps(displayed, sort_keys=True))


NAMES = ("a", "b-c", "class", "d.e", "x_1", "train")
OTHER_REGION = "us-central-4"
"""A region without a cluster: no volume there can be mounted."""
_REGIONS = st.sampled_from(["us-central-8", OTHER_REGION])
_SIZES = st.sampled_from(
    [3, "{{ config.size }}", "{{ config.size + 1 }}", "{{ config.size * 2 if config.big else 4 }}",
     "{{ [config.size, 7] | max }}"]
)  # fmt: skip
_WHEN = st.sampled_from(
    [None, True, "{{ config.big }}", "{{ pulumi.stack == 'dev' and not config.big }}",
     "{{ config.size > 2 or config.big }}"]
)  # fmt: skip
_LOOPS = st.sampled_from(
    [None, {"a": "us-central-8", "b": "us-central-4"}, ["x", "y"], "{{ range(2) }}",
     {"a": {"region": "us-central-8", "tib": 2}}, "{{ config.places }}", [1, 2]]
)  # fmt: skip
CONFIG = {
    "size": {"type": "integer", "default": 5, "minimum": 1, "multiple_of": 1},
    "big": {"type": "boolean", "default": False},
    "place": {"default": "us-central-8", "enum": ["us-central-8", "us-central-4"], "min_length": 2},
    "places": {"type": "object", "default": {"k": "v"}},
}


@st.composite
def topologies(draw: st.DrawFn) -> str:
    """Draw a valid topology of volumes, clusters that mount them, and outputs of both."""
    volumes = {
        name: _draw_volume(draw) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))
    }
    single_volumes = [
        name for name, entry in volumes.items() if not ({"for_each", "when"} & entry.keys())
    ]
    clusters = {
        name: _draw_cluster(
            draw,
            [
                volume_name
                for volume_name in single_volumes
                if volumes[volume_name]["region"] != OTHER_REGION
            ],
        )
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    }
    single_clusters = [name for name, entry in clusters.items() if "for_each" not in entry]
    document = {
        "config": CONFIG,
        "shared_volumes": volumes,
        "clusters": clusters,
        "outputs": _draw_outputs(draw, volumes, single_volumes, single_clusters),
    }
    return yaml.safe_dump({k: v for k, v in document.items() if v}, sort_keys=False)


def _draw_volume(draw: st.DrawFn) -> dict[str, Any]:
    loop, when = draw(_LOOPS), draw(_WHEN)
    name = (
        "data-{{ each.key }}" if loop else draw(st.sampled_from(["data", "d-{{ config.place }}"]))
    )
    region: Any = draw(_REGIONS | st.just("{{ config.place }}"))
    if loop == {"a": "us-central-8", "b": "us-central-4"}:
        region = "{{ each.value }}"
    if loop == {"a": {"region": "us-central-8", "tib": 2}}:
        region = "{{ each.value.region }}"
    entry = {
        "platform": "together", "volume_name": name, "region": region, "size_tib": draw(_SIZES)
    }  # fmt: skip
    if loop:
        entry["for_each"] = loop
    if when is not None:
        entry["when"] = when
    if draw(st.booleans()):
        entry["options"] = {
            "protect": draw(st.booleans() | st.just("{{ config.big }}")),
            "ignore_changes": ["size_tib"],
            "timeouts": {"create": "45m"},
            "aliases": [{"name": "old"}],
        }
    return entry


def _draw_cluster(draw: st.DrawFn, volumes: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "platform": "together",
        "cluster_name": draw(st.sampled_from(["training", "{{ pulumi.stack }}-t"])),
        "region": "{{ config.place }}",
        "gpu_type": "H100_SXM",
        "num_gpus": "{{ config.size // 3 * 8 }}",
        "driver_version": "CUDA_12_6_560",
        "billing_type": "ON_DEMAND",
    }
    if volumes:
        name = draw(st.sampled_from(volumes))
        form = draw(st.sampled_from(["", ".id", ".volume_name"]))
        entry["volume_id"] = f"{{{{ shared_volumes['{name}']{form} }}}}"
        after = f"{{{{ shared_volumes['{draw(st.sampled_from(volumes))}'] }}}}"
        entry["options"] = {draw(st.sampled_from(["depends_on", "deleted_with"])): after}
    return entry


def _draw_outputs(
    draw: st.DrawFn, volumes: dict[str, Any], single_volumes: list[str], single_clusters: list[str]
) -> dict[str, Any]:
    outputs: dict[str, Any] = {"plain": "a \"quoted\" {'text'}", "size": "{{ config.size }}"}
    for name in single_clusters:
        root = f"clusters['{name}']"
        forms: list[Any] = ["{{ # }}", "{{ #.status }}", "is {{ #.cluster_name }}"]
        forms += ["{{ #.status | upper }}", "{{ [#.id, #.status] | join('-') }}"]
        chosen = draw(st.sampled_from(forms)).replace("#", root)
        outputs[f"c-{name}"] = draw(st.sampled_from([chosen, {"nested": [chosen]}]))
    for name in single_volumes:
        outputs[f"v-{name}"] = f"{{{{ shared_volumes['{name}'].region }}}}"
    looped = [n for n, e in volumes.items() if e.get("for_each") == ["x", "y"] and "when" not in e]
    for name in looped:
        outputs[f"l-{name}"] = f"{{{{ shared_volumes['{name}'].x.id }}}}"
        outputs[f"m-{name}"] = (
            f"{{{{ shared_volumes['{name}'].values() | map(attribute='region') | list }}}}"
        )
    return outputs
