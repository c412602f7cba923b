"""Adding resources to Python programs keeps every other character."""

import pytest

from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    DeclaredReference,
    ResourceEntry,
)
from gpuform.stacks.declaration_writer.edits import (
    ProgramNotEdited,
    add_resources,
    find_resource_calls,
    remove_import_options,
)
from gpuform.stacks.declaration_writer.python_program import PythonNames, render_program

PROGRAM = '''\
"""Ours: schön."""
from gpuform.providers.together import SharedVolume as Volume

train = 1
data = Volume("data", volume_name="d")  # first
'''
DECLARED = Declarations(
    [
        ResourceEntry(
            "clusters",
            "train",
            "together",
            {"cluster_name": "t", "volume_id": DeclaredReference("shared_volumes", "data")},
            {"import": "c-1", "protect": True},
        ),
        ResourceEntry(
            "clusters", "class", "aios", {"status": ConfigReference("class")}, {"import": "c-2"}
        ),
    ],
    [ConfigEntry("class", {"secret": True})],
)


def test_add_resources_appends_statements_and_extends_the_imports() -> None:
    names = PythonNames()
    names.assign("shared_volumes", "data", "data")
    edited = add_resources(PROGRAM, DECLARED, names, "p.py")
    docstring, imports, *rest = PROGRAM.splitlines(keepends=True)
    new = "import pulumi\nfrom gpuform.providers import aios, together\n"
    assert edited.startswith(docstring + imports + new + "".join(rest))
    assert edited.removeprefix(docstring + imports + new + "".join(rest)) == (
        "\nconfig = pulumi.Config()\n"
        'class_ = config.require_secret("class")\n\n'
        "train_cluster = together.Cluster(\n"
        '    "train",\n'
        '    cluster_name="t",\n'
        "    volume_id=data.id,\n"
        '    opts=pulumi.ResourceOptions(import_="c-1", protect=True),\n'
        ")\n\n"
        "class__cluster = aios.Cluster(\n"
        '    "class",\n'
        "    status=class_,\n"
        '    opts=pulumi.ResourceOptions(import_="c-2"),\n'
        ")\n"
    )
    calls = {
        (m.platform, m.kind, m.name): (m.variable, m.import_id)
        for m in find_resource_calls(edited, "p.py")
    }
    assert calls == {
        ("together", "SharedVolume", "data"): ("data", ""),
        ("together", "Cluster", "train"): ("train_cluster", "c-1"),
        ("aios", "Cluster", "class"): ("class__cluster", "c-2"),
    }
    remaining = remove_import_options(edited, calls, "p.py")
    assert remaining == edited.replace('import_="c-1", ', "").replace(
        '    opts=pulumi.ResourceOptions(import_="c-2"),\n', ""
    )
    with_more = add_resources(remaining, DECLARED, PythonNames(), "p.py")
    assert with_more.count("config = pulumi.Config()") == 1
    assert with_more.count("import aios, together") == 1


def test_a_lookup_is_not_a_resource_call() -> None:
    program = 'from gpuform.providers import scp\n\nimages = scp.images("kr-west1")\n'

    assert find_resource_calls(program, "p.py") == []


@pytest.mark.parametrize(
    ("call", "remaining_call"),
    [
        ('opts=ResourceOptions(protect=True, import_="x")', "opts=ResourceOptions(protect=True)"),
        ('opts=ResourceOptions(import_="x", protect=True)', "opts=ResourceOptions(protect=True)"),
        ('opts=ResourceOptions(import_="x"), status="ö"', 'status="ö"'),
        ('opts=ResourceOptions(import_="x"),', ""),
        ("opts=options", "opts=options"),
    ],
)
def test_remove_import_options_keeps_other_arguments(call: str, remaining_call: str) -> None:
    program = "from gpuform.providers import aios\nä = aios.Cluster('a', {})  # ö\n"
    edited = remove_import_options(program.replace("{}", call), [("aios", "Cluster", "a")], "p.py")
    assert edited == program.replace("{}", remaining_call)


def test_add_resources_refuses_invalid_python_with_its_position() -> None:
    with pytest.raises(ProgramNotEdited, match=r"^p\.py:2:\d+: not valid Python: "):
        add_resources("import pulumi\nx = (\n", DECLARED, PythonNames(), "p.py")


def test_render_program_returns_valid_python() -> None:
    compile(render_program(DECLARED), "p.py", "exec")
