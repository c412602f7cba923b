"""Test which other stacks are found in the text of a Python program."""

from pathlib import Path

import pytest

from gpuform.stacks.multi_stack.references import ProgramReferences, read_program

ABOUT = {"project": "apps", "stack": "prod"}


def read_references(root: Path, text: str, **others: str) -> ProgramReferences:
    (root / "__main__.py").write_text(text)
    for name, content in others.items():
        (root / f"{name}.py").write_text(content)
    return read_program(root, ABOUT)


def list_stacks(references: ProgramReferences) -> list[str]:
    return [stack for stack, _ in references.stacks]


@pytest.mark.parametrize(
    "made",
    [
        'pulumi.StackReference("organization/net/prod")',
        'StackReference(name="organization/net/prod")',
        'pulumi.StackReference("net", "organization/net/prod")',
        'pulumi.StackReference("net", stack_name="organization/net/prod")',
        'pulumi.StackReference("organization/net/prod", None)',
        'pulumi.StackReference("organization/net/prod", stack_name=None)',
        'pulumi.StackReference(f"organization/net/{pulumi.get_stack()}")',
        'pulumi.StackReference("organization/net/" + pulumi.get_stack())',
        'pulumi.StackReference(f"{pulumi.get_organization()}/net/prod")',
        "pulumi.StackReference(NET)",
        "Ref(NET)",
        "StackReference(FULL)",
    ],
)
def test_a_name_that_is_written_out(root: Path, made: str) -> None:
    program_text = f"""import pulumi
from pulumi import StackReference, StackReference as Ref
NET: str = "organization/net/prod"
ORG = pulumi.get_organization()
FULL = f"{{ORG}}/net/{{pulumi.get_stack()}}"
net = {made}
volume = net.get_output("volume")
"""
    references = read_references(root, program_text)
    assert list_stacks(references) == ["organization/net/prod"]
    ((stack, output, position),) = references.read
    assert (stack, output, position.line, position.column) == (
        "organization/net/prod",
        "volume",
        7,
        10,
    )
    assert references.is_complete


@pytest.mark.parametrize(
    "made",
    [
        "pulumi.StackReference(config.require('net'))",
        "pulumi.StackReference(f'organization/{config.get(1)}/prod')",
        "pulumi.StackReference(f'organization/net/{name!r}')",
        "pulumi.StackReference(name)",
        "pulumi.StackReference(**given)",
        "pulumi.StackReference(*given)",
        "pulumi.StackReference()",
        "pulumi.StackReference(1 + 2)",
    ],
)
def test_a_name_that_only_a_run_can_tell(root: Path, made: str) -> None:
    program_text = f"import pulumi\nfor name in names:\n    net = {made}\n"
    references = read_references(root, program_text)
    assert (list_stacks(references), references.is_complete) == ([], False)


def test_a_variable_with_two_values_tells_nothing(root: Path) -> None:
    program_text = """import pulumi
name = "organization/one/prod"
if pulumi.Config().get_bool("two"):
    name = "organization/two/prod"
net = pulumi.StackReference(name)
def read(other):
    return pulumi.StackReference(other)
other = "organization/three/prod"
"""
    references = read_references(root, program_text)
    assert (list_stacks(references), references.is_complete) == ([], False)


@pytest.mark.parametrize(
    ("text", "exports"),
    [
        ("pulumi.export('a', 1)", {"a"}),
        ("from pulumi import export\nexport('a', 1)", {"a"}),
        ("from pulumi import export as out\nout('a', 1)", {"a"}),
        ("pulumi.export(name='a', value=1)", {"a"}),
        ("NAME = 'a'\npulumi.export(NAME, 1)\npulumi.export(f'{NAME}b', 1)", {"a", "ab"}),
        ("import json, os.path\nimport gpuform, pulumi_random\nfrom . import x", set()),
        ("import network\nfrom parts.deep import y", set()),
        ("for each in 'ab':\n    pulumi.export(each, 1)", None),
        ("pulumi.export(*pair)", None),
        ("pulumi.export(**both)", None),
        ("give = pulumi.export\ngive('a', 1)", None),
        ("from functools import partial\npartial(pulumi.export, 'a')(1)", None),
        ("import company_modules\ncompany_modules.make()", None),
        ("this is no Python", None),
        ("x = " + "(" * 2000 + ")" * 2000, None),
        ("\0", None),
    ],
)
def test_the_outputs_of_a_program(root: Path, text: str, exports: set[str] | None) -> None:
    (root / "parts").mkdir()
    (root / "parts/deep.py").write_text("")
    references = read_references(root, text, network="")
    assert (references.exports if references.is_complete else None) == exports


def test_columns_count_characters(root: Path) -> None:
    references = read_references(
        root, 'x = "\N{SNOWMAN}"; net = pulumi.StackReference("organization/net/prod")\n'
    )
    ((_, position),) = references.stacks
    assert position.column == 16


def test_files_beside_the_program_count_and_other_projects_do_not(root: Path) -> None:
    reference = "import pulumi\npulumi.StackReference('organization/{}/prod')\n"
    (root / "parts").mkdir()
    (root / "parts/network.py").write_text(reference.format("net"))
    for folder, mark in (("inner", "Pulumi.yaml"), ("env", "pyvenv.cfg"), (".hidden", "x")):
        (root / folder).mkdir()
        (root / folder / mark).write_text("")
        (root / folder / "__main__.py").write_text(reference.format(folder))
    for folder in ("venv", "tests", "node_modules"):
        (root / folder).mkdir()
        (root / folder / "__main__.py").write_text(reference.format(folder))
    assert list_stacks(read_references(root, "import parts.network\n")) == ["organization/net/prod"]
    assert list_stacks(read_program(root / "__main__.py", ABOUT)) == ["organization/net/prod"]
