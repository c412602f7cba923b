"""The pages of topology files and of expressions."""

import re

import pytest

from gpuform.providers.catalog import list_lookups
from gpuform.providers.platform import list_own_platforms
from gpuform.schemas.topology import SECTIONS, EntryInputs, OptionsInputs, TopologyInputs
from gpuform.stacks.expressions.sandbox import FILTERS, METHODS
from gpuform.stacks.lsp.vocabulary import render_yaml_value
from tools.reference.expressions_page import FILTER_TEXTS, render_expressions_page
from tools.reference.file_pages import render_topology_page
from tools.reference.markdown import escape_prose, render_table, to_anchor, to_kebab_case

TOPOLOGY, EXPRESSIONS = render_topology_page(), render_expressions_page()


def get_section(title: str) -> str:
    """Return the text under a heading, up to the next heading."""
    match = re.search(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#)", TOPOLOGY + "#", re.MULTILINE | re.DOTALL
    )
    assert match, title
    return match[1]


def test_the_page_has_every_key_of_topology_files() -> None:
    for title, names in (
        ("Keys of the file", (*TopologyInputs.model_fields, *SECTIONS)),
        ("Entries", EntryInputs.model_fields),
        ("Options of an entry", OptionsInputs.model_fields),
    ):
        for name in names:
            assert f"\n| `{name}` |" in get_section(title)


def test_the_page_has_every_filter_method_and_look_up() -> None:
    assert FILTER_TEXTS.keys() == FILTERS.keys()
    for name in FILTERS:
        assert f"\n* `{name}`: " in EXPRESSIONS
    for names in METHODS.values():
        assert all(f"`{name}`" in EXPRESSIONS for name in names)
    for platform in list_own_platforms():
        assert all(f"`{platform}.{name}(" in EXPRESSIONS for name in list_lookups(platform))


def test_examples_have_their_results() -> None:
    assert "`{{ [1, 2.5] | sum }}` is `3.5`" in EXPRESSIONS
    assert "| `17 // 8` | `2` |" in EXPRESSIONS


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ON_DEMAND", "ON_DEMAND"),
        ("GPUs to train on.", "GPUs to train on."),
        ("560", '"560"'),
        ("true", '"true"'),
        ("{{ a }}", '"{{ a }}"'),
        ("oidc:", '"oidc:"'),
        (False, "false"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_values_are_written_as_yaml(value: object, text: str) -> None:
    assert render_yaml_value(value) == text


def test_anchors_tables_and_escaped_prose() -> None:
    assert to_anchor("Options of an entry") == "#options-of-an-entry"
    assert to_anchor("How to read a resource's page") == "#how-to-read-a-resources-page"
    assert to_kebab_case("SharedVolume") == "shared-volume"
    assert escape_prose("a <b> `<c>` 1 < 2") == "a `<b>` `<c>` 1 &lt; 2"
    assert escape_prose("<a><b> is `x <c>`") == "`<a><b>` is `x <c>`"
    assert escape_prose("__main__.py, a_b, * or `**`") == "\\_\\_main\\_\\_.py, a_b, \\* or `**`"
    assert (
        render_table(("a", "b"), [("1|2", "x\ny")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | x y |\n"
    )
    assert render_table(("a", "b"), []) == ""
