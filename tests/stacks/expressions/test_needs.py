"""Test which names an expression refers to."""

import pytest

from gpuform.stacks.expressions.template import parse


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        *[("a", []), ("{{ 1 }}", []), ("{{ a }}", ["a"]), ("{{ a.b.c }}", ["a.b.c"])],
        *[("{{ a['b'][0].c }}", ["a.b[0].c"]), ("{{ a }}-{{ b.c }}", ["a", "b.c"])],
        *[("{{ a[b.c].d }}", ["a[...]", "b.c"]), ("{{ a[1:2] }}", ["a"])],
        *[
            ("{{ a.b | map(attribute='c') | join(d) }}", ["a.b", "d"]),
            ("{{ f(a.b) }}", ["f", "a.b"]),
        ],
        *[("{{ a.get('b') }}", ["a.get"]), ("{{ a if b else c.d }}", ["a", "b", "c.d"])],
        *[
            ("{{ a ~ b }}", ["a", "b"]),
            ("{{ {'k': a.b} }}", ["a.b"]),
            ("{{ a in [b] }}", ["a", "b"]),
        ],
        *[("{% raw %}{{ a }}{% endraw %}", []), ("{# {{ a }} #}{{ b }}", ["b"])],
    ],
)
def test_needs(text: str, needs: list[str]) -> None:
    assert sorted(map(str, parse(text).references)) == sorted(needs)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        *[("{{ a.b }}", "a.b"), ("{{ (a.b) }}", "a.b"), ("{{ a[b] }}", "a[...]")],
        *[("{{ a.b }} ", None), ("{{ a.b }}{{ a.b }}", None), ("{{ [a.b] }}", None), ("a", None)],
        *[("{{ a.b | default(1) }}", None), ("{{ a.b() }}", None), ("{{ a[1:] }}", None)],
    ],
)
def test_a_reference_and_nothing_else(text: str, reference: str | None) -> None:
    references = parse(text).reference
    assert (references and str(references)) == reference
