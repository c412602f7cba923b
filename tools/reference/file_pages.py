"""Render the pages of the files that people write: topologies, prices, gates, stacks and tests.

`tools/reference/pages.py` calls it. The fields are those of the models in `gpuform.schemas`.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.providers.catalog import list_platforms_with
from gpuform.schemas.cases_file import CasesInputs
from gpuform.schemas.gates import GateInputs, GatesInputs
from gpuform.schemas.prices import HOURS_PER_MONTH
from gpuform.schemas.stacks_plan import SINGLE_STACK_RULES, StacksInputs
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
)
from gpuform.stacks.pricing.price_book import get_price_book_model
from tools.reference.markdown import (
    escape_prose,
    join_as_code,
    render_file_tables,
    render_page,
    render_part_tables,
    render_table,
)
from tools.reference.resource_pages import page_name

_TOPOLOGY_LEAD: Final = """\
This page has every key of a topology file, `topology.yaml`: configuration, entries, options,
modules and outputs. The fields of each kind of resource are on [pages of their
own](resources/index.md), and so are [expressions](expressions.md).
"""
_TOPOLOGY_EXAMPLE: Final = """\
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


def render_topology_page() -> str:
    """Return the page as Markdown."""
    return render_page("Topology files", _TOPOLOGY_LEAD, _render_topology_parts())


def _render_topology_parts() -> Iterator[str]:
    yield _TOPOLOGY_EXAMPLE
    yield f"## Keys of the file\n\n{_render_topology_keys()}"
    yield f"{_CONFIG}\n{render_part_tables(ConfigInputs, 'config')}"
    yield f"{_ENTRIES}\n{render_part_tables(EntryInputs, 'an entry')}"
    yield f"{_MODULES}\n{render_part_tables(ModuleInputs, 'a module')}"
    yield _OUTPUTS


def _render_topology_keys() -> str:
    rows = [
        [f"`{name}`", escape_prose(field.description or "")]
        for name, field in TopologyInputs.model_fields.items()
    ]
    for section, kind in SECTIONS.items():
        on = [
            f"[{each}](resources/{page_name(each, kind)}.md)" for each in list_platforms_with(kind)
        ]
        rows.append([f"`{section}`", f"{kind} resources by name, on {', '.join(on)}."])
    rows.append(["`x-...`", "Ignored: a place for YAML's anchors."])
    return render_table(("key", "meaning"), rows)


PRICES: Final = """\
currency: USD
gpus:
  - {platform: together, gpu_type: H100_SXM, per_hour: 2.99}      # on demand, in all regions
  - {platform: together, gpu_type: H100_SXM, billing: reserved, region: us-central-8, per_hour: 2.2}
storage:
  - {platform: together, unit: TiB, per_month: 60}
"""
GATES: Final = """\
gates:
  budget:
    max_hourly_cost: {amount: 100, currency: USD}
    reason: the budget of the project
  place:
    allowed_regions: [us-central-8, us-central-4]
  in-use:
    not_busy: {above: 0.05}
  closed:
    no_open_ports: {allowed: [443]}
  proven:
    certified: true
    resources: [train]
  keep:
    protected: ["prod-*"]
  ends:
    expiry_required: true
    level: advisory
  own:
    python: policies:not_on_fridays
"""
POLICY: Final = '''\
from collections.abc import Iterator
from datetime import UTC, datetime

from gpuform.schemas.plan import Plan, PlanAction


def not_on_fridays(plan: Plan) -> Iterator[str]:
    """What is against the plan, a text for each thing."""
    replaced = [each.name for each in plan.changes if each.action is PlanAction.REPLACE]
    if replaced and datetime.now(UTC).weekday() == 4:
        yield f"nobody replaces {', '.join(replaced)} on a Friday"
'''
_PRICES_LEAD: Final = """\
This page has every field of `prices.yaml`, which says what things cost you, and of `gates.yaml`,
which says what a plan has to pass.
"""
_PRICES_ABOUT: Final = """\
Both files stand beside `Pulumi.yaml`. gpuform checks them with line and column.
`gpuform schema --of prices` and `gpuform schema --of gates` print the JSON Schemas for editors. The
guide [Gates and cost](../guides/gates-and-cost.md) has the whole way.
"""
_PRICES: Final = f"""\
A price of a region goes before one of all regions. What has no price is unknown: it is named, and
it is in no sum. A month has {HOURS_PER_MONTH} hours.
"""
_GATES: Final = """\
Each gate has one rule. A mandatory gate stops `preview`, `up`, `destroy` and `expire` with
[exit code 5](exit-codes.md) before anything is changed. An advisory gate only tells. `--allow
gate:NAME` lifts a gate for one run. What a rule cannot tell yet is against it.
"""
_PYTHON: Final = """\
## A gate in Python

`python: policies:not_on_fridays` names a function in `policies.py` beside `Pulumi.yaml`. It is
given the plan, whose fields are those of [a plan as JSON](plan-json.md).
"""


def render_prices_page() -> str:
    """Return the page as Markdown."""
    return render_page("Prices and gates", _PRICES_LEAD, _render_prices_parts())


def _render_prices_parts() -> Iterator[str]:
    yield _PRICES_ABOUT
    yield f"## prices.yaml\n\n```yaml\n{PRICES}```"
    yield _PRICES
    yield render_file_tables(get_price_book_model(), "prices")
    yield f"## gates.yaml\n\n```yaml\n{GATES}```"
    yield _GATES
    yield f"The rules are {join_as_code(GateInputs.rules)}."
    yield render_file_tables(GatesInputs, "gates")
    yield f"{_PYTHON}\n```python\n{POLICY}```"


STACKS: Final = """\
stacks:
  - {folder: network, stack: prod}
  - folder: clusters/*
  - folder: apps
    after: [network/prod]

gates:
  budget:
    max_hourly_cost: {amount: 900, currency: USD}
    reason: the budget of all stacks together
"""
_STACKS_LEAD: Final = """\
This page has every field of `stacks.yaml`, which says which stacks belong together.
"""
_STACKS_ABOUT: Final = """\
The file stands in a folder that all the projects are below. `--all` takes the nearest one upwards
from the current folder. `gpuform schema --of stacks` prints the JSON Schema for editors. The guide
[Several stacks](../guides/several-stacks.md) has the whole way.
"""
_FOLDERS: Final = """\
A `*` in a folder stands for any text, and `**` for any folders. They find no hidden folder, no
`venv` and no `node_modules`. A stack is named PROJECT/STACK in messages, in `after` and in
`--filter`; two of one name are an error.
"""
_ORDER: Final = """\
## The order

A stack comes after those that it reads: by `stack_references` in its topology, or by
`pulumi.StackReference` in its Python program, where the name is written out or made of texts,
`pulumi.get_stack()` and `pulumi.get_project()`. Nothing of a program is run for that. What only a
run can tell is told by `after`. A circle is an error. A stack reads stacks of its own backend only.
"""
_WITHOUT: Final = """\
## Without the file

`--all` then means every stack that has a `Pulumi.STACK.yaml`, in the projects below the current
folder.
"""


def render_stacks_page() -> str:
    """Return the page as Markdown."""
    return render_page("Stacks", _STACKS_LEAD, _render_stacks_parts())


def _render_stacks_parts() -> Iterator[str]:
    yield _STACKS_ABOUT
    yield f"```yaml\n{STACKS}```"
    yield _FOLDERS
    yield f"{_ORDER}\n{_WITHOUT}"
    yield "## Fields"
    rules = join_as_code(SINGLE_STACK_RULES)
    yield f"The rules {rules} are about one stack: no gate here has them."
    yield render_file_tables(StacksInputs, "stacks")


CASES: Final = """\
defaults:
  config: {gpus: 16}

cases:
  comes_up:
    expect:
      plan: {train: create, data: create}
      outputs: {status: Ready}
      takes: {at_most: 45m}

  degrades:
    start: {case: comes_up}
    config: {gpus: 24}
    events:
      - {at: 5m, status: {object: training, status: Degraded}}
    expect:
      plan: {train: update}
      error: [Degraded]
"""
_CASES_LEAD: Final = """\
This page has every field of the files in a project's `tests` folder, which `gpuform test` plays.
"""
_CASES_ABOUT: Final = """\
A file has cases, and a case is one run of the stack. `gpuform schema --of tests` prints the JSON
Schema for editors. The guide [Test a stack](../guides/test-a-stack.md) has the whole way.
"""
_CASES_RULES: Final = """\
## Rules

* A case is played on an emulator and a state of its own. The platform's clock begins at
  2026-01-01T00:00:00Z, and waiting moves it.
* `plan` is strict: a resource that it does not name has to stay the same. All else that `expect`
  does not name is not looked at.
* Of an object that is expected as a value only the keys that are named are compared.
* A resource is named as in the plan, or as SECTION.NAME: `train`, `clusters.train`. An object of a
  platform is named as it is called there, or as PLATFORM.KIND.NAME.
* An event that has not happened when the run ends fails the case: it tests nothing.
* A case that starts from another one begins with its state, its objects and its clock, and not
  with its configuration. It is skipped where that one does not pass.
* Nothing of the environment reaches a case that names a platform, a key, or a backend.
* A case reaches its emulator alone. It asks no real scheduler, whatever it allows; it connects to
  no other address, looks up no name and starts no program. What tries to fails.
"""


def render_tests_page() -> str:
    """Return the page as Markdown."""
    return render_page("Tests", _CASES_LEAD, _render_tests_parts())


def _render_tests_parts() -> Iterator[str]:
    yield _CASES_ABOUT
    yield f"```yaml\n{CASES}```"
    yield _CASES_RULES
    yield "## Fields"
    yield render_file_tables(CasesInputs, "tests")
