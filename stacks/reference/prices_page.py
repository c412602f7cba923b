"""The page of `prices.yaml` and `gates.yaml`, from their models."""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.gates import GateInputs, GatesInputs
from gpuform.schemas.prices import HOURS_OF_A_MONTH
from gpuform.stacks.pricing.book import price_book_model
from gpuform.stacks.reference.markdown import listed, page
from gpuform.stacks.reference.tables import file_tables

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
_LEAD: Final = """\
This page has every field of `prices.yaml`, which says what things cost you, and of `gates.yaml`,
which says what a plan has to pass.
"""
_ABOUT: Final = """\
Both files stand beside `Pulumi.yaml`. gpuform checks them with line and column.
`gpuform schema --of prices` and `gpuform schema --of gates` print the JSON Schemas for editors. The
guide [Gates and cost](../guides/gates-and-cost.md) has the whole way.
"""
_PRICES: Final = f"""\
A price of a region goes before one of all regions. What has no price is unknown: it is named, and
it is in no sum. A month has {HOURS_OF_A_MONTH} hours.
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


def prices_page() -> str:
    """The whole page."""
    return page("Prices and gates", _LEAD, _parts())


def _parts() -> Iterator[str]:
    yield _ABOUT
    yield f"## prices.yaml\n\n```yaml\n{PRICES}```"
    yield _PRICES
    yield file_tables(price_book_model(), "prices")
    yield f"## gates.yaml\n\n```yaml\n{GATES}```"
    yield _GATES
    yield f"The rules are {listed(GateInputs.rules)}."
    yield file_tables(GatesInputs, "gates")
    yield f"{_PYTHON}\n```python\n{POLICY}```"
