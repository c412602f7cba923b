"""Define a project's price book: prices of a GPU hour and of a month of storage, by platform.

Read by `gpuform.stacks.pricing`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.models import InputModel, Problem

M = TypeVar("M", bound=InputModel)


def _validate_currency(text: str) -> str:
    """Return a currency's code of three capital letters, such as USD.

    Raises ValueError otherwise.
    """
    if not re.fullmatch("[A-Z]{3}", text):
        raise ValueError("must be a currency's code of three capital letters, such as USD")
    return text


Currency = Annotated[str, AfterValidator(_validate_currency)]

HOURS_PER_MONTH: Final = 730
"""A twelfth of 365 days. All monthly costs are computed with it."""

BillingName = Literal[
    "on_demand", "reserved", "scheduled", "capacity_pool", "preemptible", "stopped"
]


_PLATFORM: Any = Field(description="The platform.", examples=["together"])


class GpuPriceInputs(InputModel):
    """The price of one GPU."""

    platform: str = _PLATFORM
    gpu_type: str = Field(
        min_length=1,
        description="The platform's name of the type; for scp the declared gpu_type or "
        "server_type_id.",
        examples=["H100_SXM"],
    )
    billing: BillingName | None = Field(
        default=None,
        description="How the GPU is billed; on_demand if not declared.",
        examples=["on_demand", "reserved", "preemptible", "stopped"],
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        description="For this region only, where it overrides a price of all regions.",
        examples=["us-central-8"],
    )
    per_hour: float = Field(
        ge=0, description="Price of one GPU for an hour, in currency.", examples=[2.99]
    )


class StoragePriceInputs(InputModel):
    """The price of storage."""

    platform: str = _PLATFORM
    unit: Literal["TiB", "GB"] = Field(
        description="The unit that the platform measures by: TiB on together, GB on tensorone.",
        examples=["TiB"],
    )
    region: str | None = Field(
        default=None,
        min_length=1,
        description="For this region only, where it overrides a price of all regions.",
        examples=["us-central-8"],
    )
    per_month: float = Field(
        ge=0,
        description="Price of one unit for a month of 730 hours, in currency.",
        examples=[60],
    )


class PriceBookInputs(InputModel):
    """A price book. The cost of anything without a price is unknown, not zero."""

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
        """Yield a problem for each second price of the same GPUs or the same storage."""
        key_fields = {
            "gpus": ("platform", "gpu_type", "billing", "region"),
            "storage": ("platform", "unit", "region"),
        }
        for section, names in key_fields.items():
            known_keys: set[tuple[Any, ...]] = set()
            prices = values.get(section)
            for index, price in enumerate(prices if isinstance(prices, list) else ()):
                key_values = {name: price.get(name) for name in names}
                if "billing" in key_values:
                    key_values["billing"] = key_values["billing"] or "on_demand"
                # no billing means on_demand: both spellings are the price of the same thing
                key = tuple(map(str, key_values.values()))
                if key in known_keys:
                    yield Problem(
                        f"{section}[{index}]", "already has a price: declare each price once"
                    )
                known_keys.add(key)


@cache
def build_price_book_model(platforms: tuple[str, ...]) -> type[PriceBookInputs]:
    """Return the model of a price book for these platforms only."""
    # the installed platforms decide, so that the schema of the file can list them
    platform_field: Any = {"platform": (Literal[platforms], _PLATFORM)}
    gpus: Any = _override_fields(GpuPriceInputs, platform_field)
    storage: Any = _override_fields(StoragePriceInputs, platform_field)
    fields = PriceBookInputs.model_fields
    return _override_fields(
        PriceBookInputs,
        {
            "gpus": (list[gpus] | None, fields["gpus"]),
            "storage": (list[storage] | None, fields["storage"]),
        },
    )


def _override_fields(model: type[M], fields: dict[str, Any]) -> type[M]:
    """Return a subclass of a pydantic model in which these fields replace the model's own."""
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)
