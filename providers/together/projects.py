"""Choose the project of a new cluster or volume where the program declares none.

The lifecycles (`cluster`, `shared_volume`) call `complete_project` when inputs are checked. As in
Together's SDK and command line, the environment variable `TOGETHER_PROJECT_ID` names the project.
The project becomes an input of the resource, and the state keeps it: the variable of another
machine never moves an object, and never hides one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent, Target
from gpuform.schemas.together import wire

PROJECT_VARIABLE: Final = "TOGETHER_PROJECT_ID"

_Listed = TypeVar("_Listed", bound=wire.Cluster | wire.Volume)


def get_default_project(settings: Settings) -> str | None:
    """Return the project of the environment variable; None if it names none."""
    return (settings.get_value(PROJECT_VARIABLE) or "").strip() or None


def complete_project(
    settings: Settings, context: ProviderContext, values: Mapping[str, Any], target: Target
) -> dict[str, Any]:
    """Return checked inputs with the project of the object, if a project is known.

    A declared project counts first, then that of the state or of an interrupted create of `target`,
    and only for a new object the variable. Warns of a variable that does not count.
    """
    if values.get("project_id") is not None:
        return dict(values)
    variable_value = get_default_project(settings)
    known_inputs = context.stored_properties or context.existing_inputs
    if known_inputs is not None:
        project_id = known_inputs.get("project_id")
    elif (intent := context.intents.find(context.urn, target)) is not None:
        # the object may exist already: it is looked for where the create was sent
        project_id = intent.project or None
    else:
        project_id = variable_value
    if project_id and variable_value and variable_value != project_id:
        context.on_warning(
            f"{target.name} stays in project {project_id}: {PROJECT_VARIABLE} ({variable_value}) "
            "counts for new resources only"
        )
    return {**values, "project_id": project_id} if project_id else dict(values)


def format_recorded_project(context: ProviderContext, project_id: str | None) -> str:
    """Return a project for the record of a create; "" for the key's own or a secret one."""
    is_secret = project_id is not None and context.redact_for_record(project_id) != project_id
    return "" if is_secret else project_id or ""


def list_in_projects(
    intent: Intent | None,
    project_id: str | None,
    list_objects: Callable[[str | None], Iterable[_Listed]],
) -> Iterator[tuple[_Listed, bool]]:
    """Yield each object that a create may have made, and whether it is in another project.

    The create names the `project_id` of the inputs; the recorded one, which an earlier declaration
    may have named, counts as well. None is the project of the key. Its objects are listed in any
    case, because the platform may have ignored the named project.
    """
    named_ids = [project_id]
    if intent is not None:
        named_ids.append(intent.project or None)
    listed: dict[str, tuple[_Listed, bool]] = {}
    for listed_id in dict.fromkeys((*named_ids, None)):
        for item in list_objects(listed_id):
            object_id = item.cluster_id if isinstance(item, wire.Cluster) else item.volume_id
            listed.setdefault(object_id, (item, listed_id not in named_ids))
    yield from listed.values()
