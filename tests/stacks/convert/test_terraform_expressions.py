"""Test which expressions of Terraform have a value in a topology."""

import pytest

from gpuform.stacks.convert.terraform.expressions import ExpressionResolver, UnresolvedExpression


def _resolve(raw: str) -> object:
    resolver = ExpressionResolver(lambda root, steps: None, lambda name, steps: f"<{name}>", str)
    return resolver.resolve(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('${"a"}', "a"),
        ('${("a")}', "a"),
        ('${"to ${var.place} and back"}', "to <place> and back"),
        ("${(8)}", 8),
    ],
)
def test_a_literal_in_parentheses_or_quotes_is_its_value(raw: str, value: object) -> None:
    assert _resolve(raw) == value


@pytest.mark.parametrize("raw", ['${"a" == "b"}', '${("a") == ("b")}', '${"a" != var.b ? 1 : "c"}'])
def test_a_comparison_of_quoted_texts_is_no_literal(raw: str) -> None:
    with pytest.raises(UnresolvedExpression):
        _resolve(raw)
