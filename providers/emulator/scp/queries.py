"""Parse what list requests ask for (filters, sorting, pages), and list what can be had.

`routes` calls this module. Pages are counted from 0; an empty value or `null` counts as none.
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
    ScpApiError,
    find_images,
    find_products,
    make_refusal,
)
from gpuform.providers.emulator.scp.nodes import ScpInventory

JsonObject = dict[str, Any]
_PAGING = ("size", "page", "sort")
_DEFAULT_SIZE = 20
_DEFAULT_SORT = "created_at:desc"


def read_parameters(args: MultiDict[str, str], *names: str) -> dict[str, str]:
    """Return a request's parameters without empty and `null` ones.

    Raises `Refusal` 400 for a parameter that is not in `names`.
    """
    unknown = sorted(set(args) - set(names))
    if unknown:
        raise _make_invalid_parameter(
            unknown[0], "알 수 없는 쿼리 파라미터입니다", "not a parameter of this request"
        )
    return {name: value for name, value in args.items() if value not in {"", "null"}}


@dataclass(frozen=True)
class ListQuery:
    """What a list request asks for. `filters` are values by the names of the view's fields."""

    filters: dict[str, str]
    size: int
    page: int
    field: str
    is_descending: bool

    @classmethod
    def parse(
        cls, args: MultiDict[str, str], filters: dict[str, str], sortable: Collection[str]
    ) -> "ListQuery":
        """Return the parsed parameters of a list request.

        Parameters that are empty or `null` count as missing. Raises `Refusal` 400 for an unknown
        parameter, another sort field or order, and a bad number.

        Args:
            args: the parameters of the request.
            filters: the field of the view for each parameter that filters.
            sortable: the fields by which the list may be sorted.
        """
        values = read_parameters(args, *_PAGING, *filters)
        field, _, order = values.get("sort", _DEFAULT_SORT).partition(":")
        if order not in {"asc", "desc"}:
            raise _make_invalid_parameter(
                "sort",
                "field:asc 또는 field:desc 형식이어야 합니다",
                "must be field:asc or field:desc",
            )
        if field not in sortable:
            raise _make_invalid_parameter(
                "sort", f"정렬할 수 없는 항목입니다 ({field})", f"cannot sort by {field!r}"
            )
        return cls(
            filters={filters[name]: values[name] for name in filters if name in values},
            size=_parse_number(values, "size", default=_DEFAULT_SIZE, minimum=1),
            page=_parse_number(values, "page", default=0, minimum=0),
            field=field,
            is_descending=order == "desc",
        )

    def filter_and_sort(self, views: Sequence[JsonObject]) -> list[JsonObject]:
        """Return the views that match the filters, sorted, and equal ones by id.

        Pages of one list thus never overlap.
        """
        matches = [
            view
            for view in views
            if all(view[field] == value for field, value in self.filters.items())
        ]
        matches.sort(key=lambda view: str(view["id"]))
        # Sorting is stable: equal ones keep their order by id.
        matches.sort(key=self._get_sort_key, reverse=self.is_descending)
        return matches

    def select_page(self, views: list[JsonObject]) -> list[JsonObject]:
        """Return the requested page of `views`; empty beyond the last one."""
        start = self.page * self.size
        return views[start : start + self.size]

    def _get_sort_key(self, view: JsonObject) -> tuple[bool, Any]:
        """Return the sort key of a view: those without a value in the sort field come first."""
        value = view[self.field]
        # Without a value first: fields may be null, and Python does not compare None.
        return (value is not None, "" if value is None else value)


def _parse_number(values: dict[str, str], name: str, *, default: int, minimum: int) -> int:
    """Return a parameter as a whole number, or `default` if missing.

    Raises `Refusal` 400 for no number, or a number below `minimum`.
    """
    argument = values.get(name)
    if argument is None:
        return default
    if not re.fullmatch("[0-9]{1,10}", argument) or int(argument) < minimum:
        raise _make_invalid_parameter(
            name, f"{minimum} 이상의 정수여야 합니다", f"must be a whole number from {minimum}"
        )
    return int(argument)


def _make_invalid_parameter(name: str, korean: str, english: str) -> ScpApiError:
    """Return the 400 `Refusal` for a query parameter, with a message in both languages."""
    return make_refusal(
        "InvalidParameter",
        f"{name}: {korean}.",
        f"{name}: {english}",
    )


Args = MultiDict[str, str]


def list_images(args: Args) -> dict[str, Any]:
    """Return the answer with the images of the query's region, by priority.

    Raises `Refusal` 400 for an unknown parameter, and without a known region.
    """
    region = read_parameters(args, "region_id").get("region_id")
    if region not in REGIONS:
        known_regions = ", ".join(REGIONS)
        raise make_refusal(
            "InvalidParameter",
            f"region_id: 필수 항목입니다({known_regions}).",
            f"region_id: one of {known_regions}",
        )
    return {"images": [image.to_json() for image in find_images(region)]}


def list_products(args: Args) -> dict[str, Any]:
    """Return the answer with the server types of the query's type, for the query's image.

    Raises `Refusal` 400 for an unknown parameter.
    """
    filters = read_parameters(args, "type", "image_id")
    products = find_products(filters.get("type"), filters.get("image_id"))
    return {"products": [product.to_json() for product in products]}


def list_node_pools(args: Args, inventory: ScpInventory, *, has_zones: bool) -> dict[str, Any]:
    """Return the answer with the node pools that the query's filters select.

    The filters are subnet, fabric and id, and zone in an API version with zones. There, the query
    needs a fabric, or a subnet and a zone: the official provider v6 demands this
    (`node_pool_datasources.go`), that the platform itself does is ours.

    Raises `Refusal` 400 for an unknown parameter, and for a missing one.
    """
    names = ("subnet_id", "cluster_fabric_id", "node_pool_id", *(("zone",) if has_zones else ()))
    filters = read_parameters(args, *names)
    has_place = {"subnet_id", "zone"} <= filters.keys()
    if has_zones and "cluster_fabric_id" not in filters and not has_place:
        raise make_refusal(
            "InvalidParameter",
            "cluster_fabric_id, 또는 subnet_id와 zone이 필요합니다.",
            "cluster_fabric_id, or subnet_id together with zone, is required",
        )
    pool_views = [_pool_to_json(pool, filters, inventory) for pool in POOLS.values()]
    pools = [view for view in pool_views if view is not None]
    return {"count": len(pools), "node_pools": pools}


def _pool_to_json(
    pool: Pool, filters: dict[str, str], inventory: ScpInventory
) -> dict[str, Any] | None:
    """Return a node pool with the visible fabrics in it, or None if a filter excludes the pool."""
    fabrics = [fabric for fabric in inventory.list_fabrics() if fabric.node_pool_id == pool.pool_id]
    matches = (
        filters.get("node_pool_id") in {None, pool.pool_id},
        filters.get("subnet_id") in {None, *pool.subnets},
        filters.get("zone") in {None, pool.zone},
        filters.get("cluster_fabric_id") in {None, *(fabric.fabric_id for fabric in fabrics)},
    )
    if not all(matches):
        return None
    details = [fabric.to_pool_json() for fabric in fabrics]
    return {"cluster_fabric_details": details, "node_pool_id": pool.pool_id}
