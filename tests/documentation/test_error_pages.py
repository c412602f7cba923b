"""Errors that a page helps with name it, and it is there."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuform.providers
import gpuform.schemas
import gpuform.stacks
from gpuform.providers.errors import MissingCredentials, NoCredit, NotReady, OutOfCapacity
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.stacks.cli.failures import describe_failure
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.stack import StackNotFound
from gpuform.stacks.engine.store import BackendError
from gpuform.stacks.help_pages import find_page, read_page
from gpuform.stacks.review.history_text import render_diagnostics

ROOT = Path(__file__).parents[2]
ROOMS = ("schemas", "providers", "stacks")
IN_SOURCE = re.compile(r"\b(?:help_)?page(?:: str)? ?= ?\"([^\"]+)\"")


def _list_classes(kind: type[GpuformError]) -> Iterator[type[GpuformError]]:
    for error_class in kind.__subclasses__():
        yield error_class
        yield from _list_classes(error_class)


@pytest.fixture(scope="module", autouse=True)
def _import_all_modules() -> None:
    for package in (gpuform.schemas, gpuform.providers, gpuform.stacks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and ".templates" not in module.name:
                importlib.import_module(module.name)


def find_named_pages() -> set[str]:
    """Return every page named by an error class or by a raised error."""
    files = [file for folder in ROOMS for file in (ROOT / folder).rglob("*.py")]
    return {page for file in files for page in IN_SOURCE.findall(file.read_text())}


@pytest.mark.parametrize("page", sorted(find_named_pages()))
def test_the_page_is_there(page: str) -> None:
    name, _, anchor = page.partition("#")
    assert find_page(name) == name, "say the whole name"
    if anchor:
        read_page(name).get_section(anchor)


def test_errors_of_a_subject_have_its_page() -> None:
    assert len(find_named_pages()) > 15
    assert StackNotFound.help_page == "concepts/stack"
    without = [
        error_class for error_class in _list_classes(BackendError) if not error_class.help_page
    ]
    assert without == []


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (MissingCredentials("no key", "set K", page="start/scp"), "  more: gpuform help start/scp"),
        (MissingCredentials("no key", "set K"), "  more: gpuform help start/index"),
        (MissingCredentials("no key"), "error: no key"),
        (EngineError("wrong", "do this"), "  do this"),
        (StackNotFound("none", "make it"), "  more: gpuform help concepts/stack"),
    ],
)
def test_a_hint_is_followed_by_its_page(error: GpuformError, last: str) -> None:
    _, lines = describe_failure(error, verbose=False)
    assert lines[-1] == last
    assert "gpuform help" not in str(error)


def test_what_a_lifecycle_raised_names_its_page() -> None:
    facts = {"method": "POST", "path": "/", "status": 409}
    for cause, page in (
        (OutOfCapacity("no GPUs", hint="wait", **facts), "guides/capacity"),  # type: ignore[arg-type]
        (NoCredit("no credit", **facts), None),  # type: ignore[arg-type]
        (NotReady[object]("not yet"), None),
    ):
        error = ProviderError.from_cause(cause, lambda text: text)
        assert error.shown_help_page == page
        lines = list(render_diagnostics([Diagnostic("error", str(error), error=error)]))
        assert (lines[-1] == f"      more: gpuform help {page}") is (page is not None), lines
