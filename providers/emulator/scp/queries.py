"""What lists are asked for: filters, sorting, 0-based pages; and the lists of what can be had.

An empty value or `null` counts as none.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from werkzeug.datastructures import MultiDict

from gpuform.providers.emulator.scp.catalogue import (
    POOLS,
    REGIONS,
    Pool,
    offered_images,
    offered_products,
)
from gpuform.providers.emulator.scp.errors import ApiError, Message, refused
from gpuform.providers.emulator.scp.nodes import Estate

View = dict[str, Any]
_PAGING = ("size", "page", "sort")
_DEFAULT_SIZE = 20
_DEFAULT_SORT = "created_at:desc"


def given(args: MultiDict[str, str], *names: str) -> dict[str, str]:
    """The parameters that have a value. Raises `ApiError` for one that is not among `names`."""
    unknown = sorted(set(args) - set(names))
    if unknown:
        raise _invalid(
            unknown[0], "알 수 없는 쿼리 파라미터입니다", "not a parameter of this request"
        )
    return {name: value for name, value in args.items() if value not in {"", "null"}}


@dataclass(frozen=True)
class Listing:
    """What a list request asks for. `filters` has the values by the names of view fields."""

    filters: dict[str, str]
    size: int
    page: int
    field: str
    is_descending: bool

    @classmethod
    def read(
        cls, args: MultiDict[str, str], filters: dict[str, str], sortable: Collection[str]
    ) -> "Listing":
        """`filters` has the view's field for each parameter that filters."""
        values = given(args, *_PAGING, *filters)
        field, _, order = values.get("sort", _DEFAULT_SORT).partition(":")
        if order not in {"asc", "desc"}:
            raise _invalid(
                "sort",
                "field:asc 또는 field:desc 형식이어야 합니다",
                "must be field:asc or field:desc",
            )
        if field not in sortable:
            raise _invalid(
                "sort", f"정렬할 수 없는 항목입니다 ({field})", f"cannot sort by {field!r}"
            )
        return cls(
            filters={filters[name]: values[name] for name in filters if name in values},
            size=_number(values, "size", default=_DEFAULT_SIZE, least=1),
            page=_number(values, "page", default=0, least=0),
            field=field,
            is_descending=order == "desc",
        )

    def sorted(self, views: Sequence[View]) -> list[View]:
        """What passes the filters, in order; equal ones by their id, so that pages fit together."""
        found = [
            view
            for view in views
            if all(view[field] == value for field, value in self.filters.items())
        ]
        found.sort(key=lambda view: str(view["id"]))
        found.sort(key=self._key, reverse=self.is_descending)
        return found

    def paged(self, views: list[View]) -> list[View]:
        start = self.page * self.size
        return views[start : start + self.size]

    def _key(self, view: View) -> tuple[bool, Any]:
        value = view[self.field]
        return (value is not None, "" if value is None else value)


def _number(values: dict[str, str], name: str, *, default: int, least: int) -> int:
    text = values.get(name)
    if text is None:
        return default
    if not re.fullmatch("[0-9]{1,10}", text) or int(text) < least:
        raise _invalid(
            name, f"{least} 이상의 정수여야 합니다", f"must be a whole number from {least}"
        )
    return int(text)


def _invalid(name: str, korean: str, english: str) -> ApiError:
    return refused("InvalidParameter", Message(f"{name}: {korean}.", f"{name}: {english}"))


Args = MultiDict[str, str]


def images(args: Args) -> dict[str, Any]:
    """Raises `ApiError` 400 without a known region."""
    region = given(args, "region_id").get("region_id")
    if region not in REGIONS:
        known = ", ".join(REGIONS)
        raise refused(
            "InvalidParameter",
            Message(f"region_id: 필수 항목입니다({known}).", f"region_id: one of {known}"),
        )
    return {"images": [image.view() for image in offered_images(region)]}


def products(args: Args) -> dict[str, Any]:
    asked = given(args, "type", "image_id")
    found = offered_products(asked.get("type"), asked.get("image_id"))
    return {"products": [product.view() for product in found]}


def node_pools(args: Args, estate: Estate) -> dict[str, Any]:
    asked = given(args, "subnet_id", "cluster_fabric_id", "node_pool_id")
    found = [_pool_view(pool, asked, estate) for pool in POOLS.values()]
    pools = [view for view in found if view is not None]
    return {"count": len(pools), "node_pools": pools}


def _pool_view(pool: Pool, asked: dict[str, str], estate: Estate) -> dict[str, Any] | None:
    """None for a pool that was not asked for."""
    fabrics = [each for each in estate.fabrics() if each.node_pool_id == pool.pool_id]
    fits = (
        asked.get("node_pool_id") in {None, pool.pool_id},
        asked.get("subnet_id") in {None, *pool.subnets},
        asked.get("cluster_fabric_id") in {None, *(each.fabric_id for each in fabrics)},
    )
    if not all(fits):
        return None
    details = [each.details() for each in fabrics]
    return {"cluster_fabric_details": details, "node_pool_id": pool.pool_id}
