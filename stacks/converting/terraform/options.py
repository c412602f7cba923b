"""The meta-arguments of Terraform's resources as options of entries."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from gpuform.stacks.authoring.declared import Reference, Value
from gpuform.stacks.converting.terraform.expressions import Resolver, Unsaid
from gpuform.stacks.converting.terraform.files import Block
from gpuform.stacks.converting.terraform.kinds import TerraformKind
from gpuform.stacks.document.diagnostics import SourcePosition

META: Final = (
    *("count", "for_each", "provider", "depends_on", "lifecycle", "timeouts"),
    *("provisioner", "connection"),
)
"""`count` and `for_each` become an entry for each object of the state."""
_LEFT: Final = ("provisioner", "connection", "provider")

Leave = Callable[[SourcePosition, str], None]


def options_of(
    block: Block, resolver: Resolver, leave: Leave, kind: TerraformKind
) -> dict[str, Value]:
    """What an entry says beside its properties; what it cannot say is left."""
    name = ".".join(block.labels)
    found: dict[str, Value] = {}
    for what in _LEFT:
        if what in block.body:
            leave(block.place_of(what), f"{name}: {what} is not taken over")
    after = []
    for raw in block.body.get("depends_on") or ():
        try:
            after.append(resolver.value(raw))
        except Unsaid as code:
            leave(block.place_of("depends_on"), f"{name}: depends_on {code} is not taken over")
    if after := [each for each in after if isinstance(each, Reference)]:
        found["depends_on"] = after
    for lifecycle in block.body.get("lifecycle") or ():
        found |= _lifecycle(lifecycle, (block, name), leave, kind)
    for spans in block.body.get("timeouts") or ():
        given = {verb: resolver.value(span) for verb, span in spans.items() if verb != "read"}
        found["timeouts"] = given
    return found


def _lifecycle(
    said: Mapping[str, Any],
    about: tuple[Block, str],
    leave: Leave,
    kind: TerraformKind,
) -> dict[str, Value]:
    block, name = about
    found: dict[str, Value] = {}
    for key, value in said.items():
        if key == "prevent_destroy":
            found |= {"protect": True} if value is True else {}
        elif key == "create_before_destroy":
            found |= {"delete_before_replace": False} if value is True else {}
        elif key == "ignore_changes" and isinstance(value, list):
            names = [_bare(str(each)) for each in value]
            kept = [kind.name(each) for each in names if each not in kind.spelt]
            found["ignore_changes"] = kept
            for each in (each for each in names if each in kind.spelt):
                leave(block.place_of(key), f"{name}: changes of {each} are not ignored here")
        else:
            leave(block.place_of(key), f"{name}: {key} is not taken over")
    return found


def _bare(text: str) -> str:
    return text.removeprefix("${").removesuffix("}").strip('"')
