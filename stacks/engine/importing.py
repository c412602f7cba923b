"""The `import_` option: an object that exists already becomes a resource of the stack.

Nothing is changed on the platform. What the declaration wants otherwise is shown, and done by the
next update; a declaration that would replace the object is refused.
"""

from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.presentation import describe
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op, Step


def is_wanted(registration: Registration, old: ResourceState | None) -> bool:
    """Whether the option still has something to do.

    Raises EngineError when the resource stands for another object.
    """
    if not registration.import_id:
        return False
    if old is None:
        return True
    if registration.import_id in (old.id, old.import_id):
        return False
    raise EngineError(
        f"{registration.urn} has the id {old.id} in the state, and import_ names "
        f"{registration.import_id}",
        hint="remove import_, or give the object to import a resource of its own",
    )


def import_step(host: ProviderHost, registration: Registration, goal: ResourceState) -> Step:
    """Reads the object; `goal` (its inputs checked) becomes its entry.

    Raises EngineError when there is no such object or it does not fit the declaration.
    """
    id_ = registration.import_id
    found = host.read(goal.urn, id_, goal.inputs, goal.inputs)
    if found is None:
        raise EngineError(
            f"{goal.urn}: import_ names {id_}, and the platform has no such object",
            hint="check the id, and that the credentials are those of its owner",
        )
    read, _ = found
    goal.id = goal.import_id = read.id
    goal.init_errors = list(read.init_errors)
    goal.outputs = values.mark_secret_outputs(
        read.outputs, goal.inputs, goal.additional_secret_outputs
    )
    diff = host.diff(goal.urn, goal.id, goal.outputs, goal.inputs)
    if diff.changes and diff.replaces:
        raise EngineError(
            f"{goal.urn}: the object {id_} differs from its declaration in "
            f"{', '.join(diff.replaces)}, which would replace it",
            hint="declare it as it is",
        )
    change = describe(host, Op.IMPORT, goal, goal, diff)
    return Step(Op.IMPORT, goal.urn, None, goal, change=change)
