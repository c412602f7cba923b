"""The project's price book, `prices.yaml` beside `Pulumi.yaml`: read, checked, looked up."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.providers.platform import platforms
from gpuform.schemas.prices import HOURS_PER_MONTH, PriceBookInputs, build_price_book_model
from gpuform.schemas.resource_facts import Expense
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, format_text
from gpuform.stacks.document.nodes import find_nearest_node
from gpuform.stacks.engine.errors import EngineError

FILE: Final = "prices.yaml"


def price_book_model() -> type[PriceBookInputs]:
    """What a price book can say: prices of the platforms that have any."""
    return build_price_book_model(
        tuple(name for name, each in platforms().items() if each.is_priced)
    )


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of one unit costs. `region` is empty for all; `source` says where it stands."""

    hourly: float
    region: str
    source: str


@dataclass(frozen=True, slots=True)
class PriceBook:
    """Prices by what they are for; a project without a price book has an empty one."""

    currency: str = ""
    prices: Mapping[tuple[str, ...], tuple[Price, ...]] | None = None

    @classmethod
    def read(cls, directory: Path) -> "PriceBook":
        """That of a project. Raises EngineError with every problem and its place."""
        path = directory / FILE
        if not path.exists():
            return cls()
        problems = Diagnostics()
        root, values = read_checked(path, FILE, price_book_model(), problems)
        if problems:
            raise EngineError(f"the price book is wrong:\n{format_text(list(problems))}")
        prices: dict[tuple[str, ...], tuple[Price, ...]] = {}
        for section in ("gpus", "storage"):
            for at, entry in enumerate(values.get(section) or ()):
                source = str(find_nearest_node(root, (section, at)).place)
                price = Price(_hourly(entry), str(entry.get("region") or ""), source)
                prices[_key(entry)] = (*prices.get(_key(entry), ()), price)
        return cls(values["currency"], prices)

    def priced(self, expense: Expense) -> Expense:
        """The expense with its cost, or with the reason why that is not known."""
        if expense.hourly is not None or expense.because:
            return expense
        if expense.amount == 0:
            return expense.model_copy(update={"hourly": 0.0, "currency": self.currency})
        missing = self._missing(expense)
        if missing:
            return expense.model_copy(update={"because": missing})
        price = self._price(expense)
        if price is None or expense.amount is None:
            raise AssertionError("nothing is missing")
        found = {
            "hourly": round(price.hourly * expense.amount, 6),
            "currency": self.currency,
            "source": price.source,
        }
        return expense.model_copy(update=found)

    def prices_of(self, platform: str, gpu_type: str, region: str) -> Mapping[str, Price]:
        """What an hour of one GPU costs, by how it is paid for; in a region, or in any."""
        found: dict[str, Price] = {}
        for key, prices in (self.prices or {}).items():
            if key[:2] == (platform, gpu_type) and len(key) == 3:
                by_region = {price.region: price for price in prices}
                price = by_region.get(region) or by_region.get("")
                if price is not None:
                    found[key[2]] = price
        return found

    def _missing(self, expense: Expense) -> str:
        kind = expense.gpu_type if expense.what == "gpus" else f"storage by the {expense.unit}"
        if expense.amount is None:
            return "how many there will be is known after apply only"
        if not kind:
            return "their type is known after apply only"
        if self.prices is None:
            return f"there is no {FILE}"
        if self._price(expense) is not None:
            return ""
        what = f"{kind} {expense.billing}" if expense.what == "gpus" else kind
        where = f" in {expense.region}" if self._all(expense) and expense.region else ""
        return f"{FILE} has no price of {expense.platform} {what}{where}"

    def _all(self, expense: Expense) -> tuple[Price, ...]:
        prices = self.prices or {}
        if expense.what == "gpus":
            return prices.get((expense.platform, expense.gpu_type, expense.billing), ())
        return prices.get((expense.platform, expense.unit), ())

    def _price(self, expense: Expense) -> Price | None:
        """That of the region, else that of all regions."""
        found = {price.region: price for price in self._all(expense)}
        own = found.get(expense.region) if expense.region else None
        return own or found.get("")


def _key(entry: Mapping[str, Any]) -> tuple[str, ...]:
    if "unit" in entry:
        return entry["platform"], entry["unit"]
    return entry["platform"], entry["gpu_type"], entry.get("billing") or "on_demand"


def _hourly(entry: Mapping[str, Any]) -> float:
    if "unit" in entry:
        return float(entry["per_month"]) / HOURS_PER_MONTH
    return float(entry["per_hour"])
