"""The page of errors: none that names a remedy is missing, and what is filled in is marked."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from gpuform.stacks.reference.error_texts import ErrorText, error_texts
from gpuform.stacks.reference.errors_page import _GROUPS, group_of
from gpuform.stacks.reference.markdown import plain
from gpuform.stacks.reference.source import modules

# The file, which test_generated.py compares with what is generated: that takes seconds.
PAGE = (Path(__file__).parents[3] / "docs/reference/errors.md").read_text()
# Reading every module of gpuform takes seconds, once a process.
pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]
PASSED_ON = {
    # What says the remedy of another error again, or of what it was given from outside.
    "providers/aios/records.py": 1,
    "providers/errors.py": 1,
    "providers/lifecycle/guarding.py": 1,
    "providers/scp/client/connection.py": 1,
    "providers/slurm/batch.py": 1,
    "stacks/importing/declaring.py": 1,
    "stacks/authoring/yaml_files.py": 1,
    "stacks/cli/terminal/screen.py": 1,
    "stacks/console/evaluating.py": 2,
    "stacks/document/diagnostics.py": 2,
    "stacks/lsp/checking.py": 1,
    "stacks/engine/executing/deleted_outside.py": 1,
    "stacks/engine/executing/step_executor.py": 1,
    "stacks/engine/language_host/language.py": 1,
    "stacks/engine/language_host/monitor.py": 1,
    "stacks/engine/language_host/program_errors.py": 1,
    "stacks/engine/project/project.py": 1,
    "stacks/engine/project/yaml_text.py": 1,
    "stacks/engine/records/kept.py": 2,
    "stacks/engine/secrets/stack_secrets.py": 1,
    "stacks/engine/state/targeting.py": 1,
    "stacks/multi_stack/members.py": 1,
    "stacks/multi_stack/ordering.py": 1,
    "stacks/multi_stack/references.py": 1,
    "stacks/operations/several/process.py": 1,
    "stacks/testing/playing.py": 1,  # what a reference or a selection of the case is wrong in
    "stacks/topology/scope.py": 2,
}


def error(message: str) -> ErrorText:
    return next(each for each in error_texts() if each.message == message)


def test_no_remedy_in_the_source_is_missing() -> None:
    """Counted in another way: every `hint=` of a call."""
    found = {each.where for each in error_texts()}
    given = [
        f"{name}:{node.lineno}"
        for name, tree in modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "hint" and ast.unparse(keyword.value) != "None"
    ]
    assert len(given) > 300
    assert set(given) - found == set()


def test_every_error_is_on_the_page_but_for_those_that_are_passed_on() -> None:
    page = " ".join(PAGE.split())
    for each in error_texts():
        if not each.is_passed_on:
            assert f"| {' '.join(plain(each.message).split())} " in page
    passed_on = Counter(each.where.split(":")[0] for each in error_texts() if each.is_passed_on)
    assert dict(passed_on) == PASSED_ON


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        # a constant of the module, and one of another module
        ("the checkpoint's `latest` is not an object", "Restore it from the .bak file beside it"),
        ("<urn> is protected and cannot be deleted", "remove `protect` from its options first"),
        # a choice, a name of the function around, a function that makes it
        ("<name> is not a platform", "did you mean <near>?; or: use one of <platforms>"),
        ("no stack is selected", "<known>; <choose>; or: make one: `gpuform stack init NAME`"),
        ("<text>: <value> is no <asked>", "import it as ID@<asked>, such as"),
        # given by position, and by who calls the function that raises it
        ("the expression does too much", "use smaller numbers, lists or texts"),
        ("a key must be text", "put an expression in quotes"),
        ("the new passphrase is missing", "Set GPUFORM_NEW_PASSPHRASE to it"),
        # noted for a place in a file
        ("files include each other: <circle>", "a file can include itself in no way"),
    ],
)
def test_what_is_found_in_the_source(message: str, remedy: str) -> None:
    assert error(message).remedy.startswith(remedy)


def test_the_page_says_which_code_is_not_1() -> None:
    assert "| no stack is selected (exit code 6) |" in PAGE


def test_every_part_of_the_source_with_errors_has_a_group() -> None:
    assert group_of("providers/scp/client/client.py:1") == "Samsung Cloud Platform"
    assert group_of("stacks/engine/stack/secrets_change.py:1") == "Secrets and passphrases"
    with pytest.raises(KeyError, match="in no group"):
        group_of("stacks/unheard_of.py:1")
    unused = [each for each in _GROUPS if not any(name.startswith(each) for name in modules())]
    assert unused == []
