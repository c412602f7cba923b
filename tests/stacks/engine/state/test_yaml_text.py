"""Test YAML parsing with positions, and in-place edits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.project.yaml_text import YamlError, remove_entry, set_entry

FILE = """\
# who changes this: the GPU team
encryptionsalt: v1:abc # keep
config:
  # about a
  demo:a: 5 # five
  demo:obj:
    x: 1
    y: [1, yes, 1:30]
  # before b
  demo:b: "x"

# the end
other: {a: 1}
"""


def parse_yaml(text: str):
    root = yaml_text.parse(text, "f.yaml")
    return yaml_text.convert_node(root, "f.yaml") if root is not None else {}


def test_scalars_follow_yaml_1_2() -> None:
    document = (
        "a: yes\nb: 1:30\nc: 0x1f\nd: ~\ne: 2026-01-01\nf: 1e3\ng: True\nh: '5'\ni: 010\nj: 0o17"
    )
    assert parse_yaml(document) == {
        "a": "yes",
        "b": "1:30",
        "c": 31,
        "d": None,
        "e": "2026-01-01",
        "f": 1000.0,
        "g": True,
        "h": "5",
        "i": 10,
        "j": 15,
    }


def test_setting_an_entry_keeps_all_other_lines() -> None:
    edited = set_entry(FILE, ["config", "demo:a"], "6", "f")
    assert edited == FILE.replace("demo:a: 5 # five", 'demo:a: "6" # five')


def test_a_new_entry_is_appended_to_its_mapping() -> None:
    edited = set_entry(FILE, ["config", "demo:new"], {"secure": "v1:x:y"}, "f")
    assert edited == FILE.replace(
        '  demo:b: "x"\n', '  demo:b: "x"\n  demo:new:\n    secure: v1:x:y\n'
    )


def test_a_missing_mapping_is_created() -> None:
    assert set_entry("", ["config", "a:b"], "x", "f") == "config:\n  a:b: x\n"
    assert set_entry("a: 1", ["config", "a:b"], "x", "f") == "a: 1\nconfig:\n  a:b: x\n"
    assert set_entry("config: {}\n", ["config", "a:b"], "x", "f") == "config:\n  a:b: x\n"
    assert set_entry("config:\n", ["config", "a:b"], "x", "f") == "config:\n  a:b: x\n"


def test_removing_an_entry_removes_only_its_lines() -> None:
    edited = remove_entry(FILE, ["config", "demo:obj"], "f")
    assert edited == FILE.replace("  demo:obj:\n    x: 1\n    y: [1, yes, 1:30]\n", "")
    assert remove_entry(FILE, ["config", "absent"], "f") == FILE
    assert remove_entry("a: 1\nconfig:\n  a:b: 1\n", ["config", "a:b"], "f") == "a: 1\n"


@pytest.mark.parametrize(
    "text",
    [
        "config: {a: &x [1], b: *x}\n",
        "{config: {a: 1}}",
        "config:\n  ? a\n  : 1\n",
        "config:\n  a: |\n    one\n    two\n  b: 1\n",
        "config:\n  a: 'it''s\n\n    folded'\n",
        "config:\r\n  a: 1\r\n",
    ],
)
def test_edits_of_unusual_yaml_give_the_expected_values(text: str) -> None:
    expected_values = parse_yaml(text)
    expected_values["config"]["a"] = "new"
    assert parse_yaml(set_entry(text, ["config", "a"], "new", "f")) == expected_values
    del expected_values["config"]["a"]
    assert parse_yaml(remove_entry(text, ["config", "a"], "f")) == {
        key: value for key, value in expected_values.items() if value
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("5", '"5"'),
        ("1e3", '"1e3"'),
        ("0x1f", '"0x1f"'),
        ("true", '"true"'),
        ("yes", '"yes"'),
        ("null", '"null"'),
        ("", '""'),
        ("plain", "plain"),
        ("v1:a:b", "v1:a:b"),
        ("two: words", "'two: words'"),
        ("é <b>", "é <b>"),
        (5, "5"),
        (True, "true"),
    ],
)
def test_strings_that_look_like_other_types_are_quoted(value, text: str) -> None:
    assert set_entry("", ["k"], value, "f") == f"k: {text}\n"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    st.dictionaries(st.text(max_size=5), json_values, max_size=3), st.text(max_size=5), json_values
)
def test_any_value_can_be_set_under_any_key(start: dict, key: str, value) -> None:
    document = yaml_text.dump({"config": start, "z": 1})
    assert parse_yaml(set_entry(document, ["config", key], value, "f")) == {
        "config": start | {key: value},
        "z": 1,
    }


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\n b: 2", "f.yaml:2:3"),
        ("a: [1", "f.yaml:1:6"),
        ("- 1", "f.yaml:1:1"),
        ("a: 1\na: 2", "f.yaml:2:1"),
        ("a: 1\n? [x]\n: 2", "f.yaml:2:3"),
        ("a: !!int x", "f.yaml:1:4"),
        ("a: \x00", "f.yaml:1:1"),
    ],
)
def test_yaml_errors_have_line_and_column(text: str, where: str) -> None:
    with pytest.raises(YamlError, match=f"^{where}: "):
        parse_yaml(text)
