"""The page of `stacks.yaml`, from its model."""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.stacks_plan import OF_ONE_STACK, StacksInputs
from gpuform.stacks.reference.markdown import listed, page
from gpuform.stacks.reference.tables import file_tables

STACKS: Final = """\
stacks:
  - {folder: network, stack: prod}
  - folder: clusters/*
  - folder: apps
    after: [network/prod]

gates:
  budget:
    max_hourly_cost: {amount: 900, currency: USD}
    reason: the budget of all stacks together
"""
_LEAD: Final = """\
This page has every field of `stacks.yaml`, which says which stacks belong together.
"""
_ABOUT: Final = """\
The file stands in a folder that all the projects are below. `--all` takes the nearest one upwards
from the current folder. `gpuform schema --of stacks` prints the JSON Schema for editors. The guide
[Several stacks](../guides/several-stacks.md) has the whole way.
"""
_FOLDERS: Final = """\
A `*` in a folder stands for any text, and `**` for any folders. They find no hidden folder, no
`venv` and no `node_modules`. A stack is named PROJECT/STACK in messages, in `after` and in
`--filter`; two of one name are an error.
"""
_ORDER: Final = """\
## The order

A stack comes after those that it reads: by `stack_references` in its topology, or by
`pulumi.StackReference` in its Python program, where the name is written out or made of texts,
`pulumi.get_stack()` and `pulumi.get_project()`. Nothing of a program is run for that. What only a
run can tell is told by `after`. A circle is an error. A stack reads stacks of its own backend only.
"""
_WITHOUT: Final = """\
## Without the file

`--all` then means every stack that has a `Pulumi.STACK.yaml`, in the projects below the current
folder.
"""


def stacks_file_page() -> str:
    """The whole page."""
    return page("Stacks", _LEAD, _parts())


def _parts() -> Iterator[str]:
    yield _ABOUT
    yield f"```yaml\n{STACKS}```"
    yield _FOLDERS
    yield f"{_ORDER}\n{_WITHOUT}"
    yield "## Fields"
    yield f"The rules {listed(OF_ONE_STACK)} are about one stack: no gate here has them."
    yield file_tables(StacksInputs, "stacks")
