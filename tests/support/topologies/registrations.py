"""Random topologies, and what a program or a topology registers, without a platform."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.stacks.engine.language_host import Program, Recorded, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.review.value_text import to_display_value

_PLACES = {"source_position", "stack_trace", "property_dependencies", "aliases", "dependencies"}


def program_in(folder: Path, config: Mapping[str, str] | None = None) -> Program:
    """The program of a folder, or its topology."""
    texts = {f"demo:{key}": value for key, value in (config or {}).items()}
    return Program("demo", "dev", folder, folder, texts, [], 16)


def answer(asked: Registration | Read) -> tuple[str, PropertyMap]:
    """Outputs that tell whose they are."""
    kind = kind_of(asked.type)
    assert kind is not None, asked.type
    names = load_lifecycle_class(*kind).list_property_names()
    own = f"{kind[0]}-{kind[1]}-{asked.name}"
    return f"id-of-{own}", {n: asked.inputs.get(n) or f"{n}-of-{own}" for n in names}


def registered(folder: Path, config: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Everything that Pulumi is told, by URN, without lines of programs."""
    program = program_in(folder, config)
    found: Recorded = record(program, answer, program.config)
    resources = {e.urn: _told(e) for e in found.declared if e.type != STACK_TYPE}
    return {"resources": resources, "outputs": _plain(found.outputs)}


def state_of(folder: Path) -> list[ResourceState]:
    """The state that a run would leave whose platform answers as `answer` does."""
    program = program_in(folder)
    found = record(program, answer, program.config)
    return [_entry(asked, found.outputs) for asked in found.declared]


def _entry(asked: Registration | Read, outputs: PropertyMap) -> ResourceState:
    entry = ResourceState(asked.urn, custom=asked.type != STACK_TYPE, type=asked.type)
    kept = {f.name for f in fields(ResourceState)} & {f.name for f in fields(asked)}
    for name in kept - {"urn", "type", "custom"}:
        value = getattr(asked, name)
        setattr(entry, name, dict(value) if isinstance(value, Mapping) else value)
    entry.external = isinstance(asked, Read)
    entry.protect, entry.retain_on_delete = bool(entry.protect), bool(entry.retain_on_delete)
    if asked.type == STACK_TYPE:
        entry.outputs = outputs
    else:
        entry.id, entry.outputs = answer(asked)
    entry.inputs = {key: value for key, value in entry.inputs.items() if value is not None}
    return entry


def _told(asked: Registration | Read) -> dict[str, Any]:
    told = {f.name: getattr(asked, f.name) for f in fields(asked) if f.name not in _PLACES}
    told["aliases"] = sorted(json.dumps(asdict(a)) for a in getattr(asked, "aliases", ()))
    told["dependencies"] = sorted(asked.dependencies)
    needs = getattr(asked, "property_dependencies", None) or {}
    told["property_dependencies"] = {key: sorted(urns) for key, urns in needs.items() if urns}
    told["inputs"] = _plain(asked.inputs)
    return told


def _plain(values: PropertyMap) -> Any:
    found = to_display_value(
        {k: v for k, v in values.items() if k != "__provider" and v is not None}
    )
    return json.loads(json.dumps(found, sort_keys=True))


NAMES = ("a", "b-c", "class", "d.e", "x_1", "train")
OTHER = "us-central-4"
"""Where no cluster is, so that no volume there can be mounted."""
_REGIONS = st.sampled_from(["us-central-8", OTHER])
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
    """A valid topology of volumes, clusters that mount them, and records of these."""
    volumes = {name: _volume(draw) for name in draw(st.lists(st.sampled_from(NAMES), unique=True))}
    single = [name for name, entry in volumes.items() if not ({"for_each", "when"} & entry.keys())]
    clusters = {
        name: _cluster(draw, [each for each in single if volumes[each]["region"] != OTHER])
        for name in draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    }
    alone = [name for name, entry in clusters.items() if "for_each" not in entry]
    document = {
        "config": CONFIG,
        "shared_volumes": volumes,
        "clusters": clusters,
        "outputs": _outputs(draw, volumes, single, alone),
    }
    return yaml.safe_dump({k: v for k, v in document.items() if v}, sort_keys=False)


def _volume(draw: st.DrawFn) -> dict[str, Any]:
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


def _cluster(draw: st.DrawFn, volumes: list[str]) -> dict[str, Any]:
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


def _outputs(
    draw: st.DrawFn, volumes: dict[str, Any], single: list[str], alone: list[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {"plain": "a \"quoted\" {'text'}", "size": "{{ config.size }}"}
    for name in alone:
        root = f"clusters['{name}']"
        forms: list[Any] = ["{{ # }}", "{{ #.status }}", "is {{ #.cluster_name }}"]
        forms += ["{{ #.status | upper }}", "{{ [#.id, #.status] | join('-') }}"]
        chosen = draw(st.sampled_from(forms)).replace("#", root)
        found[f"c-{name}"] = draw(st.sampled_from([chosen, {"nested": [chosen]}]))
    for name in single:
        found[f"v-{name}"] = f"{{{{ shared_volumes['{name}'].region }}}}"
    looped = [n for n, e in volumes.items() if e.get("for_each") == ["x", "y"] and "when" not in e]
    for name in looped:
        found[f"l-{name}"] = f"{{{{ shared_volumes['{name}'].x.id }}}}"
        found[f"m-{name}"] = (
            f"{{{{ shared_volumes['{name}'].values() | map(attribute='region') | list }}}}"
        )
    return found
