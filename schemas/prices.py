"""A project's price book: what an hour of a GPU and a month of storage cost on each platform."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.models import InputModel, Problem

M = TypeVar("M", bound=InputModel)


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise ValueError("must be a currency's code of three capital letters, such as USD")
    return text


Currency = Annotated[str, AfterValidator(_currency)]

HOURS_OF_A_MONTH: Final = 730
"""A twelfth of 365 days: what all monthly costs are reckoned with."""

BillingName = Literal[
    "on_demand", "reserved", "scheduled", "capacity_pool", "preemptible", "stopped"
]


_PLATFORM: Any = Field(description="The platform.", examples=["together"])


class GpuPriceInputs(InputModel):
    """What one GPU costs."""

    platform: str = _PLATFORM
    gpu_type: str = Field(
        min_length=1,
        description="The platform's own name of the type; for scp what is declared, gpu_type or "
        "server_type_id.",
        examples=["H100_SXM"],
    )
    billing: BillingName | None = Field(
        default=None,
        description="How it is paid for; on_demand when not given.",
        examples=["on_demand", "reserved", "preemptible", "stopped"],
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        description="For this region only, where it goes before a price of all regions.",
        examples=["us-central-8"],
    )
    per_hour: float = Field(
        ge=0, description="Price of one GPU for an hour, in currency.", examples=[2.99]
    )


class StoragePriceInputs(InputModel):
    """What storage costs."""

    platform: str = _PLATFORM
    unit: Literal["TiB", "GB"] = Field(
        description="The unit that the platform measures by: TiB on together, GB on tensorone.",
        examples=["TiB"],
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        description="For this region only, where it goes before a price of all regions.",
        examples=["us-central-8"],
    )
    per_month: float = Field(
        ge=0,
        description="Price of one unit for a month of 730 hours, in currency.",
        examples=[60],
    )


class PriceBookInputs(InputModel):
    """A price book. What has no price here has an unknown cost, never none."""

    currency: Currency = Field(description="Currency of all prices, such as USD.", examples=["USD"])
    gpus: list[GpuPriceInputs] | None = Field(
        default=None,
        description="Prices of GPUs.",
        examples=[[{"platform": "together", "gpu_type": "H100_SXM", "per_hour": 2.99}]],
    )
    storage: list[StoragePriceInputs] | None = Field(
        default=None,
        description="Prices of storage.",
        examples=[[{"platform": "together", "unit": "TiB", "per_month": 60}]],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        named = {
            "gpus": ("platform", "gpu_type", "billing", "region"),
            "storage": ("platform", "unit", "region"),
        }
        for section, names in named.items():
            seen: set[tuple[Any, ...]] = set()
            prices = values.get(section)
            for at, price in enumerate(prices if isinstance(prices, list) else ()):
                found = {name: price.get(name) for name in names}
                if "billing" in found:
                    found["billing"] = found["billing"] or "on_demand"
                key = tuple(map(str, found.values()))
                if key in seen:
                    yield Problem(f"{section}[{at}]", "has a price already: give each one once")
                seen.add(key)


@cache
def price_book_of(platforms: tuple[str, ...]) -> type[PriceBookInputs]:
    """The model of a price book that has prices of these platforms, and of no others."""
    named: Any = {"platform": (Literal[platforms], _PLATFORM)}
    gpus: Any = _with(GpuPriceInputs, named)
    storage: Any = _with(StoragePriceInputs, named)
    fields = PriceBookInputs.model_fields
    return _with(
        PriceBookInputs,
        {
            "gpus": (list[gpus] | None, fields["gpus"]),
            "storage": (list[storage] | None, fields["storage"]),
        },
    )


def _with(model: type[M], fields: dict[str, Any]) -> type[M]:
    """The model with other fields of these names."""
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
