"""Which clusters a list shows, in which order, and which page of them ('List Clusters')."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from gpuform.providers.emulator.tensorone.clusters import Cluster
from gpuform.providers.emulator.tensorone.errors import invalid

_LARGEST_PAGE = 100
_Value = Callable[[Cluster, float], Any]

_FILTERS: Mapping[str, _Value] = {
    "status": lambda each, now: each.status(now),
    "gpu_type": lambda each, _: each.spec.gpu_type,
    "region": lambda each, _: each.spec.region,
    "project_id": lambda each, _: each.project_id,
    "template_id": lambda each, _: each.template_id,
}
_SORTS: Mapping[str, _Value] = {
    "created_at": lambda each, _: (each.created_at, each.number),
    "name": lambda each, _: each.details.name,
    "status": lambda each, now: each.status(now),
    "gpu_count": lambda each, _: each.spec.gpu_count,
    "cost": lambda each, _: each.spec.hourly,
}
_BOUNDS: Mapping[str, Callable[[Cluster, str], bool]] = {
    "min_gpu_count": lambda each, text: each.spec.gpu_count >= _number("min_gpu_count", text),
    "max_gpu_count": lambda each, text: each.spec.gpu_count <= _number("max_gpu_count", text),
    "created_after": lambda each, text: each.created_at > _moment("created_after", text),
    "created_before": lambda each, text: each.created_at < _moment("created_before", text),
    "search": lambda each, text: (
        text.casefold() in f"{each.details.name}\n{each.details.description}".casefold()
    ),
}


def page_of(
    clusters: list[Cluster], query: Mapping[str, str], now: float
) -> tuple[list[Cluster], dict[str, int]]:
    """The clusters of the page asked for, and what is told of paging. Raises `ApiError` 400."""
    found = [each for each in clusters if _is_meant(each, query, now)]
    by = query.get("sort_by", "created_at")
    if by not in _SORTS:
        raise invalid("sort_by", f"must be one of {', '.join(_SORTS)}")
    order = query.get("sort_order", "desc")
    if order not in {"asc", "desc"}:
        raise invalid("sort_order", "must be asc or desc")
    found.sort(key=lambda each: _SORTS[by](each, now), reverse=order == "desc")
    page, limit = (
        _number("page", query.get("page", "1")),
        _number("limit", query.get("limit", "20")),
    )
    if page < 1:
        raise invalid("page", "must be at least 1")
    if not 1 <= limit <= _LARGEST_PAGE:
        raise invalid("limit", f"must be 1 to {_LARGEST_PAGE}")
    paging = {
        "page": page,
        "limit": limit,
        "total": len(found),
        "total_pages": max(1, -(-len(found) // limit)),
    }
    return found[(page - 1) * limit : page * limit], paging


def _is_meant(cluster: Cluster, query: Mapping[str, str], now: float) -> bool:
    exact = all(
        query[name] == value(cluster, now) for name, value in _FILTERS.items() if name in query
    )
    return exact and all(
        fits(cluster, query[name]) for name, fits in _BOUNDS.items() if name in query
    )


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise invalid(name, "must be a whole number") from None


def _moment(name: str, text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        raise invalid(name, "must be a date of ISO 8601") from None
