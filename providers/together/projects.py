"""Choose the project of a new cluster or volume where the program declares none.

The lifecycles (`cluster`, `shared_volume`) call `complete_project` when inputs are checked. As in
Together's SDK and command line, the environment variable `TOGETHER_PROJECT_ID` names the project.
The project becomes an input of the resource, and the state keeps it: the variable of another
machine never moves an object, and never hides one.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent, Target

PROJECT_VARIABLE: Final = "TOGETHER_PROJECT_ID"


def complete_project(
    settings: Settings, context: ProviderContext, values: Mapping[str, Any], target: Target
) -> dict[str, Any]:
    """Return checked inputs with the project of the object, if a project is known.

    A declared project counts first, then that of the state or of an interrupted create of `target`,
    and only for a new object the variable. Warns of a variable that does not count.
    """
    if values.get("project_id") is not None:
        return dict(values)
    variable_value = settings.get_value(PROJECT_VARIABLE)
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


def list_searched_projects(intent: Intent | None, project_id: str | None) -> tuple[str | None, ...]:
    """Return the projects in which an interrupted create may have made its object.

    These are the `project_id` of the inputs, and the recorded one, which an earlier declaration may
    have named. None is the project of the key.
    """
    recorded_project_ids = [] if intent is None else [intent.project or None]
    return tuple(dict.fromkeys([project_id, *recorded_project_ids]))
