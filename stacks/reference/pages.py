"""Every generated page of `docs/reference`."""

from collections.abc import Iterator
from typing import Final

from gpuform.stacks.reference.cases_page import cases_page
from gpuform.stacks.reference.command_pages import command_pages
from gpuform.stacks.reference.configuration_page import configuration_page
from gpuform.stacks.reference.errors_page import errors_page
from gpuform.stacks.reference.evidence_page import evidence_page
from gpuform.stacks.reference.exit_codes_page import exit_codes_page
from gpuform.stacks.reference.expressions_page import expressions_page
from gpuform.stacks.reference.plan_page import plan_page
from gpuform.stacks.reference.prices_page import prices_page
from gpuform.stacks.reference.resource_pages import resource_pages
from gpuform.stacks.reference.stacks_file_page import stacks_file_page
from gpuform.stacks.reference.topology_page import topology_page

WHOLE_FOLDERS: Final = ("commands", "resources")
"""The folders in which nothing else may be."""


def pages() -> Iterator[tuple[str, str]]:
    """The path below `docs/reference` of each page, and its text."""
    yield "topology.md", topology_page()
    yield "expressions.md", expressions_page()
    yield "configuration.md", configuration_page()
    yield "exit-codes.md", exit_codes_page()
    yield "errors.md", errors_page()
    yield "evidence.md", evidence_page()
    yield "plan-json.md", plan_page()
    yield "prices-and-gates.md", prices_page()
    yield "stacks.md", stacks_file_page()
    yield "tests.md", cases_page()
    for path, text in resource_pages():
        yield f"resources/{path}", text
    for path, text in command_pages():
        yield f"commands/{path}", text
