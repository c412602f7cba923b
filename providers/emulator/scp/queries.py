"""Query parameters: filters, sorting and 0-based pages. An empty value or `null` counts as none."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from werkzeug.datastructures import MultiDict

from gpuform.providers.emulator.scp.errors import ApiError, Message, refused

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
