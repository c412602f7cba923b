"""The reference of topology files, in Markdown: all of it but the introductions from the models."""

from collections.abc import Iterable, Iterator
from typing import Final

from gpuform.providers.catalog import (
    capability_table,
    lifecycle_class,
    lookup_names,
    platforms_with,
)
from gpuform.providers.platforms import platforms
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
)
from gpuform.stacks.expressions.filters import FILTERS
from gpuform.stacks.language.tables import (
    input_tables,
    link_to,
    output_tables,
    part_tables,
    table,
)

_HEAD: Final = """\
# Topology files

<!-- Generated from the models: python -m gpuform.stacks.generated -->

A topology file declares a stack's resources in YAML:

```yaml
# yaml-language-server: $schema=topology.schema.json
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
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
    billing_type: ON_DEMAND
    driver_version: CUDA_12_6_560
    volume: "{{ shared_volumes.data }}"
    options: {protect: true, timeouts: {create: 45m}}
outputs:
  kubeconfig: "{{ clusters.train.a.kube_config }}"
```

`gpuform schema --output topology.schema.json` writes what an editor needs to complete and check it.
"""
_CONFIG: Final = """\
`config` declares what a stack can set: `gpuform config set gpus 24`. It holds no expressions.
"""
_ENTRIES: Final = """\
An entry is one resource, or with `for_each` several. Beside the keys below it has the properties of
its kind on its platform, and what it does not say is as `defaults` have it. A property of the entry
takes the place of the whole default, options are put together one by one, and null undoes either.
"""
_MODULES: Final = """\
A module is a topology file that is included with a name and the values of its inputs:

```yaml
include:
  - file: pool.yaml
    name: team
    for_each: {nlp: us-central-8, vision: us-central-4}
    with: {region: "{{ each.value }}", gpus: "{{ config.gpus }}"}
outputs:
  kubeconfig: "{{ modules.team.nlp.kubeconfig }}"
```

`inputs` of the file declare what it is given, with the fields of `config`; `{{ inputs.region }}` is
the value, and null, or nothing, is the default. It sees its inputs and what it declares itself,
neither `config` nor `stack_references`; the topology sees its `outputs` alone. A module can include
others. An output that is a resource means its id, and a dependency. `depends_on` takes
`{{ modules.NAME }}`: all that is in it.

The resource `data` of the instance `nlp` of `team` is called `team-nlp-data`. Its parent is the
component `team-nlp` of the type `gpuform:stacks:Module`, or that of a module inside another one, so
that its URN is `urn:pulumi:STACK::PROJECT::gpuform:stacks:Module$TYPE::team-nlp-data` whatever else
the topology includes. To bring an entry into a module without making it anew, let the module's
entry say what it was: `options: {aliases: [{name: data, parent: null}]}`.

In Python it is `gpuform.stacks.Module("team", "pool.yaml", {"region": "us-central-8", "gpus": 16})`
with `outputs`, of the same names and URNs.
"""
_EXPRESSIONS: Final = """\
A value may be an expression of Jinja2, or a text with expressions in it:
`"{{ config.gpus // 8 }}"`, `"train-{{ each.key }}"`. YAML needs the quotes. `platform`, `options`
as a whole and what is under `include` and `config` are written out. An expression alone keeps the
type of its value; in a text, lists and objects are written as JSON. There are no statements
(`{% ... %}`): a choice is `{{ a if b else c }}`, and several resources are `for_each`.
"""
_AFTER_ROOTS: Final = """\
A name with a hyphen goes into brackets: `{{ clusters['train-big'].status }}`. `for_each`, `when`,
names of other stacks and most options have to be known while planning, so they ask for no resource,
no other stack and nothing secret. Options that name resources, `id` and `replacement_trigger` may.

What is not known yet becomes a Pulumi output: the plan shows it as known after apply, and a
resource that uses it depends on where it comes from. What is made of a secret stays secret.
"""
_ROOTS: Final = (
    ("config.NAME", "A value of the stack's configuration."),
    ("inputs.NAME", "In a module: what it is given."),
    (
        "modules.NAME.OUTPUT, modules.NAME.KEY.OUTPUT",
        "What a module gives out, with `for_each` one of its instances.",
    ),
    ("each.key, each.value", "The key of the instance, and what `for_each` has under it."),
    (
        "SECTION.NAME, SECTION.NAME.KEY",
        "A resource, with `for_each` one of them. As a value it means its id.",
    ),
    ("SECTION.NAME.PROPERTY", "What a resource gives out, or one of its own properties."),
    ("stack_references.NAME.OUTPUT", "An output of another stack."),
    ("pulumi.stack, pulumi.project", "The names of the stack and of the project."),
    (
        "PLATFORM.LOOKUP(...)",
        "What a platform has to offer: `{{ (scp.images('kr-west1') | first).id }}`.",
    ),
    ("range(N)", "The whole numbers from 0 to N - 1."),
)
_OUTPUTS: Final = """\
Every property is an output, too, under its own name, and so are `id` and `urn`. Beside them:
"""


def reference_page() -> str:
    """The whole page."""
    return "\n".join(_parts()).rstrip("\n") + "\n"


def _parts() -> Iterator[str]:
    yield _HEAD
    yield f"## Keys of the file\n\n{_keys()}"
    yield f"## Configuration\n\n{_CONFIG}\n{part_tables(ConfigInputs, 'config')}"
    yield f"## Entries\n\n{_ENTRIES}\n{part_tables(EntryInputs, 'an entry')}"
    yield f"## Modules\n\n{_MODULES}\n{part_tables(ModuleInputs, 'a module in include')}"
    yield f"## Expressions\n\n{_EXPRESSIONS}\n{_roots()}"
    yield _AFTER_ROOTS
    yield f"Lookups: {_listed(_lookups())}.\n"
    yield f"Filters: {_listed(sorted(FILTERS))}.\n"
    yield f"## Kinds\n\n{capability_table()}"
    for section, kind in SECTIONS.items():
        yield f"## {section}\n"
        for platform in platforms_with(kind):
            yield _resource(kind, platform)


def _keys() -> str:
    rows = [
        [f"`{name}`", field.description or ""]
        for name, field in TopologyInputs.model_fields.items()
    ]
    for section, kind in SECTIONS.items():
        on = [f"[{each}]({link_to(_title(kind, each))})" for each in platforms_with(kind)]
        rows.append([f"`{section}`", f"{kind} resources by name, on {', '.join(on)}."])
    rows.append(["`x-...`", "Ignored: a place for YAML's anchors."])
    return table(("key", "meaning"), rows)


def _roots() -> str:
    rows = [[_listed(form.split(", ")), text] for form, text in _ROOTS]
    return table(("reference", "means"), rows)


def _lookups() -> Iterator[str]:
    for platform in platforms():
        yield from (f"{platform}.{name}" for name in lookup_names(platform))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _title(kind: str, platform: str) -> str:
    return f"{kind} on {platform}"


def _resource(kind: str, platform: str) -> str:
    lifecycle, title = lifecycle_class(platform, kind), _title(kind, platform)
    inputs, outputs = lifecycle.inputs, lifecycle.outputs
    doc = (inputs.__doc__ or "").strip().partition("\n")[0]
    return (
        f"### {title}\n\n{doc}\n\n{input_tables(inputs, title)}\n"
        f"#### Outputs of {title}\n\n{_OUTPUTS}\n{output_tables(outputs, f'outputs of {title}')}"
    )
