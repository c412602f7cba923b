"""Test that the declared decisions equal the places in the source that take them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuform.providers
import gpuform.stacks
from gpuform.providers import evidence
from gpuform.providers.evidence import DECISIONS, Decision

CONSTANTS = {name: value for name, value in vars(evidence).items() if isinstance(value, Decision)}
CHECKS = {"find_gaps", "require_evidence"}


def find_sources() -> Iterator[Path]:
    """Yield every module that may take a decision."""
    for package in (gpuform.providers, gpuform.stacks):
        for path in Path(package.__path__[0]).rglob("*.py"):
            if path != Path(evidence.__file__):
                yield path


def find_decisions(tree: ast.Module) -> Iterator[tuple[int, set[str]]]:
    """Yield the line of each check, and the possible constants of the decision."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _get_name(node.func) in CHECKS:
            yield node.lineno, _resolve(node.args[0], tree) if node.args else set()


def _get_name(expression: ast.expr) -> str | None:
    match expression:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _resolve(
    expression: ast.expr, tree: ast.Module, passed: frozenset[str] = frozenset()
) -> set[str]:
    """Return the constants in an expression, and in the values of the expression's names."""
    inner = [node for node in ast.walk(expression) if isinstance(node, ast.expr)]
    names = {name for node in inner if (name := _get_name(node))}
    constants = names & CONSTANTS.keys()
    for name in names - constants - passed:
        for value in _find_assigned_values(name, tree):
            constants |= _resolve(value, tree, passed | names)
    return constants


def _find_assigned_values(name: str, tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                yield value
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if (
                target == name
            ):
                yield value


CHECKED = [
    (f"{path.name}:{line}", constants)
    for path in find_sources()
    if any(check in (source_text := path.read_text()) for check in CHECKS)
    for line, constants in find_decisions(ast.parse(source_text))
]


def test_every_declared_decision_has_a_constant() -> None:
    assert list(CONSTANTS.values()) == DECISIONS


@pytest.mark.parametrize("constant", CONSTANTS)
def test_every_declared_decision_is_taken_somewhere(constant: str) -> None:
    assert [location for location, constants in CHECKED if constant in constants]


@pytest.mark.parametrize(
    ("location", "constants"), CHECKED, ids=[location for location, _ in CHECKED]
)
def test_every_check_of_evidence_names_a_declared_decision(
    location: str, constants: set[str]
) -> None:
    assert constants, f"{location} checks evidence for a decision that is not declared"


@pytest.mark.parametrize(
    ("source", "constants"),
    [
        ("find_gaps(REMOVE_NODE, seen)", {"REMOVE_NODE"}),
        ("evidence.require_evidence(decisions.REMOVE_NODE, 'n')", {"REMOVE_NODE"}),
        (
            "KINDS = {True: REMOVE_NODE}\nchosen = PASS_NODE if a else KINDS[b]\nfind_gaps(chosen)",
            {"REMOVE_NODE", "PASS_NODE"},
        ),
        ("find_gaps(Decision('of its own'), seen)", set()),
    ],
)
def test_the_decision_of_a_check_is_found_in_the_source(source: str, constants: set[str]) -> None:
    assert [constants_found for _, constants_found in find_decisions(ast.parse(source))] == [
        constants
    ]
