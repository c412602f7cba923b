"""A plan of each example, through every platform: it holds while nothing changes."""

import shutil
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*/Pulumi.yaml"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.parent.name)
def test_a_saved_plan_of_an_example_applies(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: Path
) -> None:
    folder = tmp_path / "example"
    shutil.copytree(example.parent, folder, ignore=shutil.ignore_patterns(".*", "Pulumi.*.yaml"))
    monkeypatch.chdir(folder)

    def run_successfully(*args: str) -> str:
        ran = run(*args)
        assert ran.code == 0, ran.err
        return str(ran.out)

    run_successfully("stack", "init", "dev")
    run_successfully("preview", "--emulate", "--save-plan", "plan.json")
    run_successfully("up", "--plan", "plan.json", "--yes")
    run_successfully("preview", "--emulate", "--save-plan", "plan.json")
    run_successfully("refresh", "--emulate", "--yes")
    run_successfully("up", "--emulate", "--yes")
    assert "Updating (dev, emulated):" in run_successfully(
        "up", "--plan", "plan.json", "--yes", "--expect-no-changes"
    )
