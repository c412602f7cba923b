"""The examples' own tests pass on the originals, and find every mistake of a list."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.stacks.new_project import list_templates, render_project, write_project
from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseRunner, CaseStatus

EXAMPLES = Path(__file__).parents[2] / "examples"
PROJECTS = sorted(path.parent for path in EXAMPLES.glob("**/tests") if path.is_dir())
MISTAKES: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("mistakes.yaml").read_text(encoding="utf-8")
)
_NOT_COPIED = shutil.ignore_patterns(".*", "python", "pulumi-yaml", "Pulumi.*.yaml")


def copy_with_mistake(mistake: dict[str, Any], folder: Path) -> Path:
    """Copy the example of a mistake into `folder`, make the mistake, and return the copy."""
    copy = folder / Path(mistake["in"]).name
    shutil.copytree(EXAMPLES / mistake["in"], copy, ignore=_NOT_COPIED)
    file = copy / mistake.get("file", "topology.yaml")
    content = file.read_text(encoding="utf-8")
    assert content.count(mistake["old"]) == 1, mistake
    file.write_text(content.replace(mistake["old"], mistake["new"]), encoding="utf-8")
    return copy


def test_every_example_has_tests() -> None:
    numbered = {path.name for path in EXAMPLES.iterdir() if path.name[:2].isdecimal()}
    assert {path.relative_to(EXAMPLES).parts[0] for path in PROJECTS} == numbered


def test_the_list_has_mistakes_in_every_example() -> None:
    assert len(MISTAKES) >= 30
    assert {Path(mistake["in"]).parts[0] for mistake in MISTAKES} == {
        path.relative_to(EXAMPLES).parts[0] for path in PROJECTS
    }


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("project", PROJECTS, ids=lambda it: it.relative_to(EXAMPLES).as_posix())
def test_an_example_passes_its_tests(project: Path) -> None:
    results = CaseRunner(2).run(read_cases([project], Path()))
    messages = [
        str(message)
        for result in results
        for message in (*result.findings, result.error)
        if message
    ]
    assert messages == []
    assert {result.status for result in results} == {CaseStatus.PASSED}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("template", list_templates())
@pytest.mark.parametrize("python", [False, True], ids=["topology", "program"])
def test_a_template_passes_its_tests(tmp_path: Path, template: str, python: bool) -> None:
    files = render_project(template, template, "", python=python)
    write_project(tmp_path, files, force=False)
    results = CaseRunner(2).run(read_cases([tmp_path], Path()))
    messages = [
        str(message)
        for result in results
        for message in (*result.findings, result.error)
        if message
    ]
    assert messages == []
    assert {result.status for result in results} == {CaseStatus.PASSED}


@pytest.mark.slow
@pytest.mark.sampled(16)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda it: f"{it['in']}: {it['wrong']}")
def test_a_mistake_fails_a_case_of_its_example(mistake: dict[str, Any], tmp_path: Path) -> None:
    """Only a case that ran counts: a case that could not run has found nothing."""
    cases = read_cases([copy_with_mistake(mistake, tmp_path)], Path())
    results = CaseRunner(2).run(cases)
    assert [result.error for result in results if result.status is CaseStatus.BROKEN] == []
    assert any(result.findings for result in results)
