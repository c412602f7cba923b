"""The price book: read with every mistake at its place, looked up, and never guessed."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas.errors import EngineError
from gpuform.schemas.resource_facts import Billing, Expense, ResourceUsage
from gpuform.stacks.pricing import PriceBook, price_usage, sum_costs

BOOK = """\
currency: USD
gpus:
  - {platform: together, gpu_type: H100_SXM, per_hour: 3}
  - {platform: together, gpu_type: H100_SXM, region: r2, per_hour: 2.5}
  - {platform: together, gpu_type: H100_SXM, billing: stopped, per_hour: 0}
  - {platform: together, gpu_type: B200_SXM, region: r2, per_hour: 5}
storage:
  - {platform: together, unit: TiB, per_month: 73}
"""


@pytest.fixture
def book(tmp_path: Path) -> PriceBook:
    (tmp_path / "prices.yaml").write_text(BOOK)
    return PriceBook.read(tmp_path)


def create_gpu_expense(**more: object) -> Expense:
    facts = {"what": "gpus", "amount": 8, "platform": "together", "gpu_type": "H100_SXM"}
    return Expense.model_validate({**facts, "region": "r1", **more})


@pytest.mark.parametrize(
    ("more", "hourly", "source"),
    [
        ({}, 24, "prices.yaml:3:5"),
        ({"region": "r2"}, 20, "prices.yaml:4:5"),
        ({"billing": "stopped"}, 0, "prices.yaml:5:5"),
        ({"what": "storage", "unit": "TiB", "amount": 5}, 0.5, "prices.yaml:8:5"),
        ({"amount": 0, "gpu_type": "other"}, 0, ""),
    ],
)
def test_a_price(book: PriceBook, more: dict[str, object], hourly: float, source: str) -> None:
    priced = book.price_expense(create_gpu_expense(**more))
    assert (priced.hourly, priced.currency, priced.source) == (hourly, "USD", source)


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ({"billing": "reserved"}, "prices.yaml has no price of together H100_SXM reserved"),
        ({"gpu_type": "B200_SXM"}, "prices.yaml has no price of together B200_SXM on_demand in r1"),
        ({"amount": None}, "the quantity is known only after apply"),
        ({"gpu_type": ""}, "the GPU type is known only after apply"),
        (
            {"what": "storage", "unit": "GB"},
            "prices.yaml has no price of together storage by the GB",
        ),
    ],
)
def test_what_has_no_price_is_unknown(
    book: PriceBook, more: dict[str, object], because: str
) -> None:
    priced = book.price_expense(create_gpu_expense(**more))
    assert (priced.hourly, priced.because) == (None, because)
    assert PriceBook().price_expense(create_gpu_expense()).because == "prices.yaml does not exist"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("currency: usd\n", "prices.yaml:1:11: currency: must be a currency's code"),
        ("gpus: []\n", "prices.yaml:1:1: currency: is required"),
        ("currency: USD\ngpu: []\n", "prices.yaml:2:1: gpu: is not known: did you mean gpus?"),
        (
            BOOK + "  - {platform: together, unit: TiB, per_month: 9}\n",
            "prices.yaml:9:5: storage[1]: already has a price",
        ),
        (
            BOOK.replace("per_hour: 3}", "billing: on_demand, per_hour: -3}"),
            "prices.yaml:3:76: gpus[0].per_hour: -3 is too small: the least is 0",
        ),
        (
            BOOK.replace("H100_SXM, per_hour: 3}", "H100_SXM, per_hour: 1e3}"),
            "prices.yaml:3:56: gpus[0].per_hour: must be a number, not 1e3",
        ),
        ("currency: [", "prices.yaml:"),
        ("", "currency: is required"),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(EngineError, match="the price book is invalid") as refused:
        PriceBook.read(tmp_path)
    assert problem in str(refused.value)


costs = st.builds(
    Expense,
    what=st.just("gpus"),
    platform=st.just("together"),
    billing=st.sampled_from(Billing),
    hourly=st.none() | st.integers(0, 10**6).map(lambda cents: cents / 100),
    currency=st.sampled_from(["USD", "KRW"]),
)


@given(st.lists(st.lists(costs, max_size=4), max_size=4))
def test_a_sum_has_every_known_cost_once_and_names_every_unknown_one(
    given_: list[list[Expense]],
) -> None:
    every = [expense for expenses in given_ for expense in expenses]
    total = sum_costs(("x", ResourceUsage(expenses=tuple(expenses))) for expenses in given_)
    for currency in ("USD", "KRW"):
        expected_cost = sum(
            expense.hourly or 0 for expense in every if expense.currency == currency
        )
        assert total.sum_hourly_costs().get(currency, 0) == pytest.approx(expected_cost)
    assert len(total.unknown) == sum(expense.hourly is None for expense in every)


def test_a_resource_that_nobody_knows_has_an_unknown_cost() -> None:
    total = sum_costs([("mine", price_usage(None, PriceBook()))])
    assert total.amounts == ()
    assert total.unknown == ("mine: its resource usage is unknown",)
