"""Read and check the project's price book, `prices.yaml` beside `Pulumi.yaml`, and look up prices.

Called by the planning operations, `gpuform status` and `gpuform offers`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers.platform import platforms
from gpuform.schemas.errors import EngineError
from gpuform.schemas.gates import HOURS_PER_MONTH, PriceBookInputs, build_price_book_model
from gpuform.schemas.resource_facts import Expense
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.document.nodes import find_nearest_node

FILE: Final = "prices.yaml"


def get_price_book_model() -> type[PriceBookInputs]:
    """Return the model of a price book for all priced platforms."""
    return build_price_book_model(
        tuple(name for name, platform in platforms().items() if platform.is_priced)
    )


@dataclass(frozen=True, slots=True)
class Price:
    """Hold the price of one unit for one hour.

    `region` is empty for all regions; `source` is where the price stands in the file.
    """

    hourly: float
    region: str
    source: str


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Hold prices by what they are for; empty for a project without a price book."""

    currency: str = ""
    prices: Mapping[tuple[str, ...], tuple[Price, ...]] | None = None

    @classmethod
    def read(cls, directory: Path) -> "PriceBook":
        """Read a project's price book; without the file it has no prices.

        Raises EngineError with every problem and its position.
        """
        path = directory / FILE
        if not path.exists():
            return cls()
        problems = Diagnostics()
        root, values = read_checked(path, FILE, get_price_book_model(), problems)
        if problems:
            raise EngineError(f"the price book is invalid:\n{format_text(list(problems))}")
        prices: dict[tuple[str, ...], tuple[Price, ...]] = {}
        for section in ("gpus", "storage"):
            for index, entry in enumerate(values.get(section) or ()):
                source = str(find_nearest_node(root, (section, index)).position)
                price = Price(_get_hourly_price(entry), str(entry.get("region") or ""), source)
                prices[_get_price_key(entry)] = (*prices.get(_get_price_key(entry), ()), price)
        return cls(values["currency"], prices)

    def price_expense(self, expense: Expense) -> Expense:
        """Return the expense with an hourly cost, or with the reason for an unknown cost.

        An expense with a cost or a reason is returned unchanged.
        """
        # The platform's own figure comes before the price book's.
        if expense.hourly is not None or expense.because:
            return expense
        if expense.amount == 0:
            return expense.model_copy(update={"hourly": 0.0, "currency": self.currency})
        missing = self._find_missing_price(expense)
        if missing:
            return expense.model_copy(update={"because": missing})
        price = self._find_price(expense)
        if price is None or expense.amount is None:
            raise AssertionError("nothing is missing")
        priced_fields = {
            # Rounded, so that equal costs compare as equal.
            "hourly": round(price.hourly * expense.amount, 6),
            "currency": self.currency,
            "source": price.source,
        }
        return expense.model_copy(update=priced_fields)

    def find_gpu_prices(self, platform: str, gpu_type: str, region: str) -> Mapping[str, Price]:
        """Return the hourly prices of one GPU by billing, in `region` or else for all regions."""
        prices_by_billing: dict[str, Price] = {}
        for key, prices in (self.prices or {}).items():
            # Keys of storage have two parts.
            if key[:2] == (platform, gpu_type) and len(key) == 3:
                by_region = {price.region: price for price in prices}
                price = by_region.get(region) or by_region.get("")
                if price is not None:
                    prices_by_billing[key[2]] = price
        return prices_by_billing

    def _find_missing_price(self, expense: Expense) -> str:
        """Return why an expense cannot be priced, or an empty string."""
        kind = expense.gpu_type if expense.what == "gpus" else f"storage by the {expense.unit}"
        if expense.amount is None:
            return "the quantity is known only after apply"
        if not kind:
            return "the GPU type is known only after apply"
        if self.prices is None:
            return f"{FILE} does not exist"
        if self._find_price(expense) is not None:
            return ""
        item = f"{kind} {expense.billing}" if expense.what == "gpus" else kind
        where = f" in {expense.region}" if self._list_prices(expense) and expense.region else ""
        return f"{FILE} has no price of {expense.platform} {item}{where}"

    def _list_prices(self, expense: Expense) -> tuple[Price, ...]:
        """List the prices for an expense: by GPU type and billing, or by unit; empty for none."""
        prices = self.prices or {}
        if expense.what == "gpus":
            return prices.get((expense.platform, expense.gpu_type, expense.billing), ())
        return prices.get((expense.platform, expense.unit), ())

    def _find_price(self, expense: Expense) -> Price | None:
        """Return the price of the expense's region, or else of all regions."""
        prices_by_region = {price.region: price for price in self._list_prices(expense)}
        # A price of the region is more exact than one of all regions.
        own = prices_by_region.get(expense.region) if expense.region else None
        return own or prices_by_region.get("")


def _get_price_key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the key of a price: platform and unit, or platform, GPU type and billing."""
    if "unit" in entry:
        return entry["platform"], entry["unit"]
    return entry["platform"], entry["gpu_type"], entry.get("billing") or "on_demand"


def _get_hourly_price(entry: Mapping[str, Any]) -> float:
    """Return the price by the hour; storage is priced by the month."""
    if "unit" in entry:
        return float(entry["per_month"]) / HOURS_PER_MONTH
    return float(entry["per_hour"])
