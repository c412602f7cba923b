"""Render a page for each kind on each platform, and the table of all kinds."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.permissions import MEANINGS, Permission
from gpuform.providers.platform import KINDS, list_own_platforms
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert.python import render_program_of_topology
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.topology.planning import plan, read_plan_context
from tools.reference.markdown import (
    escape_prose,
    render_input_tables,
    render_output_tables,
    render_page,
    render_table,
    to_kebab_case,
)
from tools.reference.resource_examples import EXAMPLES

Kind = type[Lifecycle[Any, Any]]

_OUTPUTS: Final = """\
Every input is also an output with the same name. So are `id` and `urn`. The other outputs:
"""
_READING: Final = """\
## How to read a resource's page

The column *a change of it* says what gpuform does when you change the field and run `gpuform up`:

| words | what gpuform does |
| --- | --- |
| in place | gpuform sends only the change. The object stays. |
| replaces | gpuform deletes the object and creates a new one. The plan names the field. |
| in place, or replaces: ... | The old and the new value decide; the cell has the rule. |
| grow-only | gpuform refuses a smaller value, unless the resource is replaced anyway. |
| write-only | The platform never reports the value. gpuform compares the value declared last. |
| secret | gpuform never shows the value, and encrypts the value in the state. |
| as the fields it stands for | The field is a short form of other fields, and has their rules. |
| applies to objects created later | gpuform sends the value only with a create. |
| recorded, nothing is sent | gpuform writes the value to the state, and never sends it. |
| nothing | The field is a setting of gpuform, which never sends it. |

gpuform does not compare a field that you do not declare. The *default* is the platform's own value.
When you remove a field with a default from the declaration, gpuform resets the field to the
default. A removed field that *replaces* keeps its value instead, so that removing a line never
replaces a resource.

## For every kind

* `ready` is an output of each resource. `gpuform up` waits until it is true.
* `options` of an entry are Pulumi's [resource options](../topology.md#options-of-an-entry).
* Two permissions hold for every kind:

"""


def render_resource_pages() -> Iterator[tuple[str, str]]:
    """Yield the path below `resources/` and the text of each page."""
    yield "index.md", _render_index()
    for platform, kind in _list_kinds():
        yield f"{get_page_name(platform, kind)}.md", _render_kind(platform, kind)


def get_page_name(platform: str, kind: str) -> str:
    """Return the path of a kind's page below `resources/`, such as `together/shared-volume`."""
    return f"{platform}/{to_kebab_case(kind)}"


def convert_to_python(topology: str) -> str:
    """Return the Python program with the same declarations as a topology.

    Raises:
        ValueError: the topology has problems.
    """
    with tempfile.TemporaryDirectory() as folder:
        # The plan reads a topology only from a file.
        file = Path(folder, "topology.yaml")
        file.write_text(topology, encoding="utf-8")
        problems = Diagnostics()
        planned = plan(file, read_plan_context(file, None), problems)
        if problems:
            raise ValueError("\n".join(map(str, problems)))
        program = render_program_of_topology(planned, file, (), Path(folder))
    # Without the program's docstring, which the page does not need.
    return program.partition("\n\n")[2]


def _get_example(platform: str, kind: str) -> str:
    """Return the example topology of a kind on a platform. Raises KeyError if there is none."""
    if (platform, kind) not in EXAMPLES:
        raise KeyError(
            f"tools/reference/resource_examples.py has no example of {kind} on {platform}"
        )
    return EXAMPLES[platform, kind].strip("\n")


def _list_kinds() -> list[tuple[str, str]]:
    """Return the pair of platform and kind for each kind that a platform has."""
    platforms = list_own_platforms()
    return [
        (name, kind)
        for name, platform in platforms.items()
        for kind in KINDS
        if _has_kind(platform, kind)
    ]


def _has_kind(platform: Any, kind: str) -> bool:
    return kind in platform.lifecycles


def _render_index() -> str:
    """Return the page that lists all kinds with links, and the permissions for every kind."""
    platforms = list_own_platforms()
    rows = []
    for section, kind in SECTIONS.items():
        on = [
            f"[{kind}]({get_page_name(name, kind)}.md)" if _has_kind(platform, kind) else ""
            for name, platform in platforms.items()
        ]
        rows.append([f"`{section}`", *on])
    head = ["section of a topology", *(platform.title for platform in platforms.values())]
    return render_page(
        "Resources",
        "This page lists every kind of resource and the platforms that have it. Each kind has a "
        "page with all of its fields.",
        [
            "## Kinds and platforms",
            render_table(head, rows),
            _READING + _render_permissions(_EVERYWHERE),
        ],
    )


_EVERYWHERE: Final = (Permission.FORGET_MANY, Permission.NEW_ADDRESS)


def _render_kind(platform: str, kind: str) -> str:
    """Return the page of a kind on a platform."""
    lifecycle, title = load_lifecycle_class(platform, kind), list_own_platforms()[platform].title
    doc = (lifecycle.inputs.__doc__ or "").strip().partition("\n")[0]
    section = next(name for name, section_kind in SECTIONS.items() if section_kind == kind)
    lead = (
        f"{escape_prose(doc)} This page lists every field of a {kind} on {title}, and the effect "
        f"of changing it. In a topology, declare the {kind} under `{section}` with `platform: "
        f"{platform}`. In Python, use `gpuform.providers.{platform}.{kind}`."
    )
    return render_page(f"{kind} on {title}", lead, _render_parts(lifecycle))


def _render_parts(lifecycle: Kind) -> Iterator[str]:
    """Yield the parts of a kind's page. Raises KeyError if the kind has no example."""
    platform, kind = lifecycle.platform, lifecycle.kind
    topology = _get_example(platform, kind)
    yield "## Example"
    yield f"In a topology, `topology.yaml`:\n\n```yaml\n{topology}\n```"
    program = convert_to_python(topology + "\n").strip("\n")
    yield f"The same in Python, `__main__.py`:\n\n```python\n{program}\n```"
    yield (
        "## Inputs\n\n[How to read the tables](../index.md#how-to-read-a-resources-page) explains "
        "the words."
    )
    yield render_input_tables(lifecycle.inputs, "the inputs")
    yield f"## Outputs\n\n{_OUTPUTS}"
    yield render_output_tables(lifecycle.outputs, "the outputs")
    yield f"## Waiting\n\n{_render_waiting(lifecycle)}"
    yield f"## Permissions\n\n{_render_guards(lifecycle)}"
    yield f"## Import\n\n{_render_import(lifecycle)}"
    yield (
        "## Read on\n\n"
        f"* [What gpuform supports of this platform](../../platforms/{platform}.md)\n"
        "* [Resource options](../../topology.md#options-of-an-entry), such as `protect`\n"
        f"* [First stack on this platform](../../../start/{platform}.md)"
    )


def _render_waiting(lifecycle: Kind) -> str:
    """Return the paragraph about waiting for the kind's objects, and a table of the timeouts."""
    limits = lifecycle.timeouts
    rows = [
        (verb, _format_duration(getattr(limits, verb))) for verb in ("create", "update", "delete")
    ]
    paragraph = (
        "gpuform waits until the platform reports that the object is usable: then the output "
        "`ready` is true. After the timeout, the object stays in the state with `ready: "
        "false` and `not_ready_reason`, and the next `gpuform up` continues to wait."
    )
    if lifecycle.is_bound:
        paragraph += (
            " gpuform creates and deletes nothing on the platform: the resource represents an "
            "existing object."
        )
    if "wait_minutes" in lifecycle.inputs.model_fields:
        paragraph += " `wait_minutes` can end the wait earlier."
    if lifecycle.power:
        field, on, off = lifecycle.power.field, lifecycle.power.on, lifecycle.power.off
        paragraph += (
            f" `{field}: {off}` stops the object and `{field}: {on}` starts it. `schedule` does "
            "both by the clock."
        )
    if lifecycle.deletion_note:
        paragraph += f" At a delete, gpuform warns: {lifecycle.deletion_note}."
    return (
        f"{paragraph}\n\n{render_table(('operation', 'timeout'), rows)}\n"
        "To set other timeouts: `options: {timeouts: {create: 45m, update: 45m, delete: 30m}}`."
    )


def _format_duration(seconds: float) -> str:
    """Return seconds as whole hours, such as `2 h`, or else as minutes, such as `90 min`."""
    minutes = int(seconds) // 60
    return f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"


def _render_guards(lifecycle: Kind) -> str:
    """Return a table of the permissions that changes of the kind may need.

    Without specific permissions, a sentence says so.
    """
    guards = list(lifecycle.relevant_permissions)
    if {"expires", "ttl"} & set(get_field_rules(lifecycle.inputs)):
        guards.append(Permission.RENEW_EXPIRED)
    everywhere = "[Two permissions](../index.md#for-every-kind) hold for every kind."
    if not guards:
        return f"This kind has no specific permissions. {everywhere}"
    return (
        "gpuform refuses some changes unless you allow them for one run: `--allow NAME` (with "
        f"`pulumi`: `GPUFORM_ALLOW=NAME`).\n\n{_render_permissions(tuple(guards))}\n{everywhere}"
    )


def _render_permissions(names: tuple[Permission, ...]) -> str:
    """Return a table of permissions and their meanings."""
    return render_table(("name", "allows to"), [(f"`{name}`", MEANINGS[name]) for name in names])


def _render_import(lifecycle: Kind) -> str:
    """Return the text about importing a kind: the form of its ids, and example commands.

    If an import needs a value beside the id, a second command shows ID@VALUE; kinds that bind an
    existing object have only this command.
    """
    fields, rules = lifecycle.inputs.model_fields, get_field_rules(lifecycle.inputs)
    command = f"gpuform import {lifecycle.platform}:{lifecycle.kind} NAME"
    paragraph, commands = f"Example of an id: `{lifecycle.id_example}`.", []
    if not (lifecycle.import_field and lifecycle.is_bound):
        commands.append(f"{command} {lifecycle.id_example}")
    if lifecycle.import_field:
        example = (fields[lifecycle.import_field].examples or ["VALUE"])[0]
        value = example if isinstance(example, str) else json.dumps(example)
        commands.append(f"{command} '{lifecycle.id_example}@{value}'")
        paragraph += (
            f" You have to declare `{lifecycle.import_field}`. If the platform does not report it, "
            f"append the value to the id: `ID@{lifecycle.import_field.upper()}`."
        )
    # An import reads the object's properties, but no platform returns such a secret.
    for name in (field for field in fields if fields[field].is_required() and rules[field].secret):
        paragraph += (
            f" No platform reports `{name}`, a secret. Store it with the stack before the import: "
            f"`gpuform config set --secret {name}`. A topology has to declare it first, under "
            f"`config`: `{name}: {{secret: true}}`."
        )
    return (
        f"{paragraph} The guide [Take over what exists](../../../guides/adopt.md) explains every "
        "step.\n\n"
        "<!-- not run: the object has to be in your account -->\n"
        "```bash\n" + "\n".join(commands) + "\n```"
    )
