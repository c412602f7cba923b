"""Test that any file gives no exception, and problems only at positions inside the file."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuform.schemas.topology import (
    SECTIONS,
    ConfigInputs,
    EntryInputs,
    ModuleInputs,
    OptionsInputs,
)
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.topology.planning import plan, read_plan_context

FOLDER = Path(__file__).parents[3] / "examples"
EXAMPLES = [path.read_text() for path in sorted(FOLDER.glob("*/topology.yaml"))]
MODULE = FOLDER / "08-modules" / "pool.yaml"
KEYS = sorted(
    {
        *SECTIONS,
        *EntryInputs.model_fields,
        *OptionsInputs.model_fields,
        *ConfigInputs.model_fields,
        *ModuleInputs.model_fields,
        *(
            "inputs",
            "config",
            "defaults",
            "outputs",
            "stack_references",
            "include",
            "together",
            "scp",
        ),
        *("a", "b-c", "x-a", "items", "0", "<<", "", "cluster_name", "volume", "num_gpus"),
    }
)
EXPRESSIONS = [
    "{{ config.a }}",
    "{{ each.value }}",
    "{{ inputs.a }}",
    "{{ modules.a.b }}",
    "{{ clusters.a }}",
    "{{ clusters.a.b.status }}",
    "{{ clusters[each.key].id }}",
    "{{ shared_volumes.a.id | int + 1 }}",
    "{{ [clusters.a] | first }}",
    "{{ {'a': 1}.a / 0 }}",
    "{{ range(3) }}",
    "{{ stack_references.a.b }}",
    "{{ scp.images('kr-west1')[0].id }}",
    "x{{ pulumi.stack",
    "{% if a %}",
    "{{ 'a' * 9999999999 }}",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(
        ["together", "scp", "aios", "us-central-8", "topology.yaml", "pool.yaml", "[", *EXPRESSIONS]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=5)
PIECES = [
    *(
        "- ",
        ": ",
        "{{ ",
        " }}",
        "'",
        '"',
        "{",
        "}",
        "[",
        "]",
        "\t",
        "\0",
        "&a ",
        "*a",
        "<<: ",
        "!x ",
    ),
    *("|", ">", "#", "%", "\n", "\n---\n", "é", "\u2028", "\r", "null", "each.key", "| int"),
]


def check_and_count_problems(folder: Path, data: bytes) -> int:
    """Check the positions of a file's problems, and return their number."""
    file = folder / "topology.yaml"
    file.write_bytes(data)
    problems = Diagnostics()
    plan(file, read_plan_context(file, None), problems)
    # YAML has other line breaks than Python.
    lines = re.split("\r\n|[\n\r\x85\u2028\u2029]", data.decode("utf-8-sig", errors="replace"))
    for problem in problems:
        assert problem.message
        if problem.position.included:
            assert problem.position.file == str(folder / "pool.yaml")
            continue
        assert problem.position.file == str(file)
        assert 1 <= problem.position.line <= len(lines) + 1, problem
        longest = max(map(len, lines))
        assert 1 <= problem.position.column <= longest + 2, problem
    return len(problems)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("topology")
    shutil.copy(MODULE, made)
    return made


@pytest.mark.parametrize("text", EXAMPLES)
def test_the_examples_have_no_problem(folder: Path, text: str) -> None:
    assert check_and_count_problems(folder, text.encode()) == 0


@pytest.mark.slow
@settings(max_examples=150)
@given(document=DOCUMENTS)
@example(document={"config": {"a": {"pattern": "["}}})
@example(document={"include": ["a\0b"]})
@example(document={"clusters": {"a": {"platform": "together", "": 1}}})
@example(document={"clusters": {"a": {"platform": "together", "options": {"parent": []}}}})
def test_any_document(folder: Path, document: dict[str, Any]) -> None:
    check_and_count_problems(
        folder, yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace")
    )


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), text=st.sampled_from(EXAMPLES))
def test_an_example_with_other_characters(folder: Path, data: Any, text: str) -> None:
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.sampled_from([0, 0, 1, 2, 20])))
        piece = data.draw(st.one_of(st.sampled_from(PIECES), st.text(max_size=2)))
        text = text[:at] + piece + text[end:]
    check_and_count_problems(folder, text.encode("utf-8", "replace"))


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), text=st.sampled_from(EXAMPLES))
def test_an_example_with_other_lines(folder: Path, data: Any, text: str) -> None:
    lines = text.splitlines(keepends=True)
    line_indexes = st.integers(0, len(lines) - 1)
    first, other = data.draw(line_indexes), data.draw(line_indexes)
    change = data.draw(st.sampled_from(["swap", "repeat", "leave out", "indent"]))
    if change == "swap":
        lines[first], lines[other] = lines[other], lines[first]
    elif change == "repeat":
        lines.insert(first, lines[other])
    elif change == "leave out":
        del lines[first]
    else:
        lines[first] = "  " + lines[first]
    check_and_count_problems(folder, "".join(lines).encode())


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data(), text=st.sampled_from(EXAMPLES))
def test_an_example_with_other_keys_and_values(folder: Path, data: Any, text: str) -> None:
    document = json.loads(json.dumps(yaml.safe_load(text)))
    inner = document
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if isinstance(inner[key], dict | list) and data.draw(st.booleans()):
            inner = inner[key]
            continue
        if isinstance(inner, dict) and data.draw(st.booleans()):
            inner[data.draw(st.sampled_from(KEYS))] = inner.pop(key)
        else:
            inner[key] = data.draw(VALUES)
        break
    check_and_count_problems(folder, yaml.safe_dump(document).encode("utf-8", "replace"))


@settings(max_examples=150)
@given(data=st.binary(max_size=60))
@example(data=b"\xef\xbb\xbfclusters: 5")
@example(data=b"\xff\xfea\x00")
def test_any_bytes(folder: Path, data: bytes) -> None:
    check_and_count_problems(folder, data)


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "topology.yaml").mkdir()
    problems = Diagnostics()
    file = tmp_path / "topology.yaml"
    plan(file, read_plan_context(file, None), problems)
    assert [problem.rule for problem in problems] == ["file"]
    shutil.rmtree(tmp_path)
