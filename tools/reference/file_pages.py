"""Render the pages of the files that people write: topologies, prices, gates, stacks and tests.

`tools/reference/pages.py` calls this module. The fields come from the models in `gpuform.schemas`.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.providers.catalog import list_platforms_with
from gpuform.schemas.cases_file import CasesInputs
from gpuform.schemas.gates import HOURS_PER_MONTH, GateInputs, GatesInputs
from gpuform.schemas.stacks_plan import SINGLE_STACK_RULES, StacksInputs
from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    TopologyInputs,
)
from gpuform.stacks.pricing import get_price_book_model
from tools.reference.markdown import (
    escape_prose,
    join_as_code,
    render_file_tables,
    render_page,
    render_part_tables,
    render_table,
)
from tools.reference.resource_pages import get_page_name

_TOPOLOGY_LEAD: Final = """\
This page lists every key of a topology file, `topology.yaml`: configuration, entries, options,
modules and outputs. The fields of each kind of resource and the [expressions](expressions.md) have
[pages of their own](resources/index.md).
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
[gpuform schema](commands/files/schema.md) writes the JSON Schema with which an editor completes and
checks the file. [gpuform fmt](commands/files/fmt.md) formats the file.
"""
_CONFIG: Final = """\
## Configuration

`config` declares the values that a stack can set, as with `gpuform config set gpus 24`. It cannot
contain expressions. [Configuration](configuration.md) lists where each value can come from.
"""
_ENTRIES: Final = """\
## Entries

An entry is one resource, or several with `for_each`. It has the keys below, and the properties of
its kind on its platform.

A property that an entry does not set has the value of `defaults`. A property of the entry replaces
the default completely. Options are merged one by one. Null removes a default property or option.
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

* `inputs` of the file declare the values that the module takes, with the fields of `config`.
  `{{ inputs.region }}` is the value. If a value is null or missing, the default applies.
* A module can use its inputs and its own declarations. It can use neither `config` nor
  `stack_references`.
* The topology can use only the module's `outputs`. An output that is a resource means the id of the
  resource, with a dependency on it.
* `depends_on` takes `{{ modules.NAME }}`: everything in the module.
* A module can include other modules.

The resource `data` of the instance `nlp` of `team` is called `team-nlp-data`. Its parent is the
component `team-nlp` of the type `gpuform:stacks:Module`, or, in a nested module, the component of
this module. Its URN is `urn:pulumi:STACK::PROJECT::gpuform:stacks:Module$TYPE::team-nlp-data`, and
does not depend on other includes.

You can move an entry into a module without recreating the resource. Declare the former name in the
module's entry:
`options: {aliases: [{name: data, parent: null}]}`.

In Python, write
`gpuform.stacks.Module("team", "pool.yaml", {"region": "us-central-8", "gpus": 16})`. Its
`outputs`, names and URNs are the same. The [guide](../guides/modules.md) explains every step.
"""
_OUTPUTS: Final = """\
## Outputs

`outputs` are values that the stack publishes: [gpuform stack output](commands/stack/stack.md)
prints them, and other stacks read them with `stack_references`. A value may have any type. A value
computed from a secret is secret.

```yaml
config:
  gpus: {type: integer, default: 16}
outputs:
  nodes: "{{ config.gpus // 8 }}"
```
"""


def render_topology_page() -> str:
    """Return the page of topology files, as Markdown."""
    return render_page("Topology files", _TOPOLOGY_LEAD, _render_topology_parts())


def _render_topology_parts() -> Iterator[str]:
    """Yield the parts of the page about `topology.yaml`."""
    yield _TOPOLOGY_EXAMPLE
    yield f"## Keys of the file\n\n{_render_topology_keys()}"
    yield f"{_CONFIG}\n{render_part_tables(ConfigInputs, 'config')}"
    yield f"{_ENTRIES}\n{render_part_tables(EntryInputs, 'an entry')}"
    yield f"{_MODULES}\n{render_part_tables(ModuleInputs, 'a module')}"
    yield _OUTPUTS


def _render_topology_keys() -> str:
    """Return a table of the top-level keys, with the platforms of each section of resources."""
    rows = [
        [f"`{name}`", escape_prose(field.description or "")]
        for name, field in TopologyInputs.model_fields.items()
    ]
    # The model of the file has no fields for the sections.
    for section, kind in SECTIONS.items():
        on = [
            f"[{platform}](resources/{get_page_name(platform, kind)}.md)"
            for platform in list_platforms_with(kind)
        ]
        rows.append([f"`{section}`", f"{kind} resources by name, on {', '.join(on)}."])
    rows.append(["`x-...`", "Ignored. Use such keys for YAML anchors."])
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
  safe:
    rehearsal: {max_lost_gpus: 0, max_gpu_hours_without_work: 8, jobs_ended: 0}
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
    """Yield an objection to the plan if it replaces resources on a Friday."""
    replaced = [change.name for change in plan.changes if change.action is PlanAction.REPLACE]
    if replaced and datetime.now(UTC).weekday() == 4:
        yield f"nobody replaces {', '.join(replaced)} on a Friday"
'''
_PRICES_LEAD: Final = """\
This page lists every field of `prices.yaml`, which declares your prices, and of `gates.yaml`, which
declares the rules that a plan must pass.
"""
_PRICES_ABOUT: Final = """\
Both files are beside `Pulumi.yaml`. gpuform reports problems with line and column.
`gpuform schema --of prices` and `gpuform schema --of gates` print the JSON Schemas for editors. The
guide [Gates and cost](../guides/gates-and-cost.md) explains every step.
"""
_PRICES: Final = f"""\
A price of one region counts before a price of all regions. A resource without a price has unknown
cost: plans name it and leave it out of every sum. A month has {HOURS_PER_MONTH} hours.
"""
_GATES: Final = """\
Each gate has one rule. A mandatory gate stops `preview`, `up`, `destroy` and `expire` with
[exit code 5](exit-codes.md) before anything is changed. An advisory gate only warns. `--allow
gate:NAME` lifts a gate for one run. A rule that cannot be checked yet counts as violated.
"""
_PYTHON: Final = """\
## A gate in Python

`python: policies:not_on_fridays` names a function in `policies.py` beside `Pulumi.yaml`. The
function receives the plan, with the fields of [a plan as JSON](plan-json.md).
"""


def render_prices_page() -> str:
    """Return the page of `prices.yaml` and `gates.yaml`, as Markdown."""
    return render_page("Prices and gates", _PRICES_LEAD, _render_prices_parts())


def _render_prices_parts() -> Iterator[str]:
    """Yield the parts of the page about `prices.yaml` and `gates.yaml`."""
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
This page lists every field of `stacks.yaml`, which says which stacks belong together.
"""
_STACKS_ABOUT: Final = """\
The file is in a folder above all of the projects. `--all` uses the nearest file upwards from the
current folder. `gpuform schema --of stacks` prints the JSON Schema for editors. The guide
[Several stacks](../guides/several-stacks.md) explains every step.
"""
_FOLDERS: Final = """\
A `*` in a folder stands for any text, and `**` for any folders. They match no hidden
folders, `venv` or `node_modules`. Messages, `after` and `--filter` call a stack PROJECT/STACK. Two
stacks with the same name are an error.
"""
_ORDER: Final = """\
## The order

A stack comes after the stacks that it reads: with `stack_references` in its topology, or with
`pulumi.StackReference` in its Python program, if the name is a literal or built from literals,
`pulumi.get_stack()` and `pulumi.get_project()`. gpuform does not run the program to find this out.
Declare other dependencies with `after`. A cycle is an error. A stack can read only stacks of its
own backend.
"""
_WITHOUT: Final = """\
## Without the file

`--all` then means every stack that has a `Pulumi.STACK.yaml`, in the projects below the current
folder.
"""


def render_stacks_page() -> str:
    """Return the page of `stacks.yaml`, as Markdown."""
    return render_page("Stacks", _STACKS_LEAD, _render_stacks_parts())


def _render_stacks_parts() -> Iterator[str]:
    """Yield the parts of the page about the file that lists several stacks."""
    yield _STACKS_ABOUT
    yield f"```yaml\n{STACKS}```"
    yield _FOLDERS
    yield f"{_ORDER}\n{_WITHOUT}"
    yield "## Fields"
    rules = join_as_code(SINGLE_STACK_RULES)
    yield f"The rules {rules} are about one stack and cannot be used here."
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
This page lists every field of the files in a project's `tests` folder, which `gpuform test` runs.
"""
_CASES_ABOUT: Final = """\
A file has cases, and a case is one run of the stack. `gpuform schema --of tests` prints the JSON
Schema for editors. The guide [Test a stack](../guides/test-a-stack.md) explains every step.
"""
_CASES_RULES: Final = """\
## Rules

* Each case has its own emulator and its own state. The platform's clock starts at
  2026-01-01T00:00:00Z, and waiting moves it.
* `plan` is strict: a resource that it does not name must stay the same. Everything else that
  `expect` does not name is ignored.
* If an expected value is an object, only its keys are compared.
* Name a resource as in the plan, or as SECTION.NAME: `train`, `clusters.train`. Name an object of a
  platform as on the platform, or as PLATFORM.KIND.NAME.
* A case fails if an event has not happened when the run ends: the case tested nothing.
* A case that starts from another case takes over the other case's state, objects and clock, but not
  its configuration. It is skipped if the other case does not pass.
* A case ignores environment variables that name platforms, keys, backends or permissions.
* A case can contact only its emulator. It contacts no real scheduler. It cannot connect to other
  addresses, look up names or start programs.
"""


def render_tests_page() -> str:
    """Return the page of test files, as Markdown."""
    return render_page("Tests", _CASES_LEAD, _render_tests_parts())


def _render_tests_parts() -> Iterator[str]:
    """Yield the parts of the page about files of test cases."""
    yield _CASES_ABOUT
    yield f"```yaml\n{CASES}```"
    yield _CASES_RULES
    yield "## Fields"
    yield render_file_tables(CasesInputs, "tests")
