"""Attacks on `--all`: what one stack alone tells or refuses, all of them tell and refuse, too."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from estates import Estate, make_estate

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Estate]:
    with serve(seed="attacked") as server:
        yield make_estate(tmp_path / "fleet", server.url, {}, {})


def test_the_plan_of_all_shows_what_a_program_says(estate: Estate) -> None:
    program = "import pulumi\npulumi.warn('few are left')\nprint('a remark')\n"
    (estate.root / "told/__main__.py").write_text(program)
    shown = estate.ok("preview", "--all", "--filter", "told")
    assert "told/dev:     warning: few are left" in shown
    assert "told/dev:     a remark" in shown


def test_a_gate_of_a_project_that_stops_the_plan_names_the_stack(estate: Estate) -> None:
    gates = "gates:\n  types: {allowed_gpu_types: [A100]}\n"
    (estate.root / "training/gates.yaml").write_text(gates)
    done = estate.run("preview", "--all")
    assert done.code == 5
    assert "error: training/dev: gates.yaml:2:3: gate types" in done.stderr
