"""Test which programs are topologies, which run without the SDK."""

from pathlib import Path

import pytest

from gpuform.stacks.engine.language_host.language import TopologyProgram, find_topology

PROGRAM = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


@pytest.mark.parametrize(
    ("program", "file", "line"),
    [
        (PROGRAM, "topology.yaml", 3),
        ("from gpuform.stacks import run\nrun()\n", "topology.yaml", 2),
        (f'"""What it is."""\n# more\n\n{PROGRAM}# end\n', "topology.yaml", 6),
        ('from gpuform.stacks import run; run(\n"other.yaml"\n)', "other.yaml", 1),
    ],
)
def test_a_program_that_only_loads_a_topology_is_recognized(
    tmp_path: Path, program: str, file: str, line: int
) -> None:
    main = tmp_path / "__main__.py"
    main.write_text(program)
    assert find_topology(tmp_path) == TopologyProgram(Path(file), (main, line))
    main.rename(tmp_path / "program.py")
    topology = find_topology(tmp_path / "program.py")
    assert topology == TopologyProgram(Path(file), (tmp_path / "program.py", line))


@pytest.mark.parametrize(
    "program",
    [
        "",
        "run('topology.yaml')",
        f"import pulumi\n{PROGRAM}",
        f"{PROGRAM}print('done')",
        f"{PROGRAM}{PROGRAM}",
        PROGRAM.replace("stacks", "stack"),
        PROGRAM.replace("import run", "import Module as run"),
        PROGRAM.replace("import run", "import run, expression"),
        PROGRAM.replace("import run", "import run as go"),
        PROGRAM.replace("from ", "from ."),
        PROGRAM.replace('"topology.yaml"', "name"),
        PROGRAM.replace('"topology.yaml"', 'path="topology.yaml"'),
        PROGRAM.replace('"topology.yaml"', '"a.yaml", "b.yaml"'),
        PROGRAM.replace("run(", "x = run("),
        PROGRAM.replace("run(", "run(("),
        f"if True:\n    run('topology.yaml')\n{PROGRAM}",
        f"\0{PROGRAM}",
    ],
)
def test_any_other_program_is_not_a_topology(tmp_path: Path, program: str) -> None:
    (tmp_path / "topology.yaml").touch()
    (tmp_path / "__main__.py").write_text(program)
    assert find_topology(tmp_path) is None


def test_a_topology_needs_no_program(tmp_path: Path) -> None:
    assert find_topology(tmp_path) is None
    (tmp_path / "topology.yaml").touch()
    assert find_topology(tmp_path) == TopologyProgram(
        Path("topology.yaml"), (tmp_path / "__main__.py", 3)
    )
