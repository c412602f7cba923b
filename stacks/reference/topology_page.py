"""The page of topology files: keys, configuration, entries, options, modules, outputs."""

from collections.abc import Iterator
from typing import Final

from gpuform.providers.catalog import platforms_with
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
)
from gpuform.stacks.reference.markdown import page, plain, table
from gpuform.stacks.reference.resource_pages import page_name
from gpuform.stacks.reference.tables import part_tables

_LEAD: Final = """\
This page has every key of a topology file, `topology.yaml`: configuration, entries, options,
modules and outputs. The fields of each kind of resource are on [pages of their
own](resources/index.md), and so are [expressions](expressions.md).
"""
_EXAMPLE: Final = """\
## An example

```yaml
# yaml-language-server: $schema=topology.schema.json
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
defaults:
  clusters: {together: {billing_type: ON_DEMAND, driver_version: CUDA_12_6_560}}
shared_volumes:
  data: {platform: together, volume_name: data, region: us-central-8, size_tib: 5}
clusters:
  train:
    platform: together
    for_each: {a: us-central-8, b: us-central-8}
    cluster_name: "train-{{ each.key }}"
    region: "{{ each.value }}"
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    volume: "{{ shared_volumes.data }}"
    options: {protect: true, timeouts: {create: 45m}}
outputs:
  kubeconfig: "{{ clusters.train.a.kube_config }}"
```

[gpuform validate](commands/files/validate.md) checks a file without keys and without a network.
[gpuform schema](commands/files/schema.md) writes the JSON Schema by which an editor completes and
checks it. [gpuform fmt](commands/files/fmt.md) formats it.
"""
_CONFIG: Final = """\
## Configuration

`config` declares what a stack can set, such as `gpuform config set gpus 24`. It holds no
expressions. [Configuration](configuration.md) says where each value can come from.
"""
_ENTRIES: Final = """\
## Entries

An entry is one resource, or with `for_each` several. It has the keys below, and the properties of
its kind on its platform.

What an entry does not say is as `defaults` have it. A property of the entry takes the place of the
whole default. Options are put together one by one. Null undoes either.
"""
_MODULES: Final = """\
## Modules

A module is a topology file that you include with a name and the values of its inputs:

```yaml
include:
  - file: pool.yaml
    name: team
    for_each: {nlp: us-central-8, vision: us-central-4}
    with: {region: "{{ each.value }}", gpus: "{{ config.gpus }}"}
outputs:
  kubeconfig: "{{ modules.team.nlp.kubeconfig }}"
```

* `inputs` of the file declare what it is given, with the fields of `config`. `{{ inputs.region }}`
  is the value. Null, or nothing, is the default.
* A module sees its inputs and what it declares itself. It sees neither `config` nor
  `stack_references`.
* The topology sees the module's `outputs` alone. An output that is a resource means its id, and a
  dependency.
* `depends_on` takes `{{ modules.NAME }}`: all that is in the module.
* A module can include others.

The resource `data` of the instance `nlp` of `team` is called `team-nlp-data`. Its parent is the
component `team-nlp` of the type `gpuform:stacks:Module`, or that of a module inside another one.
Its URN is `urn:pulumi:STACK::PROJECT::gpuform:stacks:Module$TYPE::team-nlp-data`, whatever else the
topology includes.

You can bring an entry into a module without making it anew. Let the module's entry say what it was:
`options: {aliases: [{name: data, parent: null}]}`.

In Python it is `gpuform.stacks.Module("team", "pool.yaml", {"region": "us-central-8", "gpus": 16})`
with `outputs`, of the same names and URNs. The [guide](../guides/modules.md) has the whole way.
"""
_OUTPUTS: Final = """\
## Outputs

`outputs` are what the stack tells: [gpuform stack output](commands/stack/stack.md) prints them, and
other stacks read them by `stack_references`. A value may be of any type. One that is made of a
secret is secret.

```yaml
config:
  gpus: {type: integer, default: 16}
outputs:
  nodes: "{{ config.gpus // 8 }}"
```
"""


def topology_page() -> str:
    """The whole page."""
    return page("Topology files", _LEAD, _parts())


def _parts() -> Iterator[str]:
    yield _EXAMPLE
    yield f"## Keys of the file\n\n{_keys()}"
    yield f"{_CONFIG}\n{part_tables(ConfigInputs, 'config')}"
    yield f"{_ENTRIES}\n{part_tables(EntryInputs, 'an entry')}"
    yield f"{_MODULES}\n{part_tables(ModuleInputs, 'a module')}"
    yield _OUTPUTS


def _keys() -> str:
    rows = [
        [f"`{name}`", plain(field.description or "")]
        for name, field in TopologyInputs.model_fields.items()
    ]
    for section, kind in SECTIONS.items():
        on = [f"[{each}](resources/{page_name(each, kind)}.md)" for each in platforms_with(kind)]
        rows.append([f"`{section}`", f"{kind} resources by name, on {', '.join(on)}."])
    rows.append(["`x-...`", "Ignored: a place for YAML's anchors."])
    return table(("key", "meaning"), rows)
