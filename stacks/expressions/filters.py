"""The filters and methods that expressions have: deterministic ones, with bounded results.

Jinja2's own where they fit. `int` and `float` refuse what is no number instead of making it 0;
nothing is random, or formats to any width, or takes a regular expression.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from jinja2 import filters as jinja

from gpuform.stacks.expressions import operations as our
from gpuform.stacks.expressions.budget import bounded
from gpuform.stacks.expressions.operations import Filter
from gpuform.stacks.expressions.values import as_text


def _of_text(name: str) -> Filter:
    """Jinja2's filter, given a text whatever the value is."""
    function = jinja.FILTERS[name]
    return lambda value, *args, **kwargs: function(as_text(value), *args, **kwargs)


_OF_JINJA: Final = (
    *("abs", "count", "d", "default", "dictsort", "first", "last", "length", "list"),
    *("map", "max", "min", "reject", "rejectattr", "select", "selectattr", "unique"),
    "urlencode",
)
_OF_TEXT: Final = ("capitalize", "lower", "title", "upper")
_OUR_OWN: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        "b64decode": our.from_base64,
        "b64encode": our.to_base64,
        "flatten": our.flattened,
        "float": our.decimal,
        "fromjson": our.from_json,
        "groupby": our.grouped,
        "indent": our.indented,
        "int": our.whole_number,
        "items": our.items,
        "join": our.joined,
        "replace": our.replaced,
        "reverse": our.reversed_order,
        "round": our.rounded,
        "sort": our.sorted_by,
        "string": as_text,
        "sum": our.total,
        "tojson": our.to_json,
        "trim": our.stripping(str.strip),
    }
)
FILTERS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        name: bounded(function)
        for name, function in {
            **{name: jinja.FILTERS[name] for name in _OF_JINJA},
            **{name: _of_text(name) for name in _OF_TEXT},
            **_OUR_OWN,
        }.items()
    }
)
"""By name."""

_OF_TEXTS: Final = (
    *("capitalize", "endswith", "lower", "removeprefix", "removesuffix", "rsplit"),
    *("split", "splitlines", "startswith", "title", "upper"),
)
METHODS: Final[Mapping[type, Mapping[str, Filter]]] = MappingProxyType(
    {
        str: {
            **{name: bounded(getattr(str, name)) for name in _OF_TEXTS},
            **{
                name: bounded(our.stripping(getattr(str, name)))
                for name in ("lstrip", "rstrip", "strip")
            },
            "replace": bounded(our.replaced),
            "join": bounded(lambda text, given: our.joined(given, text)),
        },
        Mapping: {
            "get": bounded(lambda mapping, key, default=None: mapping.get(key, default)),
            "items": bounded(our.items),
            "keys": bounded(our.keys),
            "values": bounded(our.values),
        },
    }
)
"""By type and name; the first argument is the value."""
