"""The resources of Terraform's files, each with the objects that its state has of it."""

from collections.abc import Iterator
from pathlib import Path

from gpuform.stacks.converting.errors import NOWHERE
from gpuform.stacks.converting.terraform.files import STATE, Block, Instance, TerraformFiles
from gpuform.stacks.converting.terraform.kinds import KINDS
from gpuform.stacks.converting.terraform.options import Leave
from gpuform.stacks.document.diagnostics import Place


def paired(files: TerraformFiles, folder: Path, leave: Leave) -> Iterator[tuple[Block, Instance]]:
    """The resources of known types with their objects; the others are left."""
    state = Place(str(folder / STATE), NOWHERE)
    blocks = {each.labels: each for each in files.of("resource")}
    for block in files.of("module"):
        leave(block.place, f"module {'.'.join(block.labels)} is not taken over")
    made = {(each.type, each.name) for each in files.instances if not each.module}
    for labels, block in blocks.items():
        if len(labels) == 2 and labels[0] in KINDS and labels not in made:
            leave(block.place, f"{'.'.join(labels)} has no object in the state")
        elif len(labels) != 2 or labels[0] not in KINDS:
            leave(block.place, f"{'.'.join(labels)} is of a type that is not known here")
    for instance in files.instances:
        found = blocks.get((instance.type, instance.name))
        if instance.module or (found is None and instance.type in KINDS):
            leave(state, f"{instance.address} is in the state, and not in these files")
        elif found is not None and instance.type in KINDS:
            yield found, instance
