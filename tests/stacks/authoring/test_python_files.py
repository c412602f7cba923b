"""Adding to programs that people edit: what is there stays, character by character."""

import pytest

from gpuform.stacks.authoring.declared import ConfigValue, Declared, Entry, Reference, Variable
from gpuform.stacks.authoring.python_files import (
    ProgramNotEdited,
    made_in,
    with_resources,
    without_import,
)
from gpuform.stacks.authoring.python_text import PythonNames, program_text

PROGRAM = '''\
"""Ours: schön."""
from gpuform.providers.together import SharedVolume as Volume

train = 1
data = Volume("data", volume_name="d")  # first
'''
DECLARED = Declared(
    [
        Entry(
            "clusters",
            "train",
            "together",
            {"cluster_name": "t", "volume_id": Reference("shared_volumes", "data")},
            {"import": "c-1", "protect": True},
        ),
        Entry("clusters", "class", "aios", {"status": ConfigValue("class")}, {"import": "c-2"}),
    ],
    [Variable("class", {"secret": True})],
)


def test_statements_go_to_the_end_and_imports_to_the_imports() -> None:
    names = PythonNames()
    names.give("shared_volumes", "data", "data")
    made = with_resources(PROGRAM, DECLARED, names, "p.py")
    docstring, imports, *rest = PROGRAM.splitlines(keepends=True)
    new = "import pulumi\nfrom gpuform.providers import aios, together\n"
    assert made.startswith(docstring + imports + new + "".join(rest))
    assert made.removeprefix(docstring + imports + new + "".join(rest)) == (
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
    found = {(m.platform, m.kind, m.name): (m.variable, m.imports) for m in made_in(made, "p.py")}
    assert found == {
        ("together", "SharedVolume", "data"): ("data", ""),
        ("together", "Cluster", "train"): ("train_cluster", "c-1"),
        ("aios", "Cluster", "class"): ("class__cluster", "c-2"),
    }
    left = without_import(made, found, "p.py")
    assert left == made.replace('import_="c-1", ', "").replace(
        '    opts=pulumi.ResourceOptions(import_="c-2"),\n', ""
    )
    with_more = with_resources(left, DECLARED, PythonNames(), "p.py")
    assert with_more.count("config = pulumi.Config()") == 1
    assert with_more.count("import aios, together") == 1


@pytest.mark.parametrize(
    ("call", "left"),
    [
        ('opts=ResourceOptions(protect=True, import_="x")', "opts=ResourceOptions(protect=True)"),
        ('opts=ResourceOptions(import_="x", protect=True)', "opts=ResourceOptions(protect=True)"),
        ('opts=ResourceOptions(import_="x"), status="ö"', 'status="ö"'),
        ('opts=ResourceOptions(import_="x"),', ""),
        ("opts=options", "opts=options"),
    ],
)
def test_an_option_goes_from_where_a_person_wrote_it(call: str, left: str) -> None:
    program = "from gpuform.providers import aios\nä = aios.Cluster('a', {})  # ö\n"
    made = without_import(program.replace("{}", call), [("aios", "Cluster", "a")], "p.py")
    assert made == program.replace("{}", left)


def test_what_is_no_python_is_refused_with_its_place() -> None:
    with pytest.raises(ProgramNotEdited, match=r"^p\.py:2:\d+: not Python: "):
        with_resources("import pulumi\nx = (\n", DECLARED, PythonNames(), "p.py")


def test_a_whole_program_is_python() -> None:
    compile(program_text(DECLARED), "p.py", "exec")
