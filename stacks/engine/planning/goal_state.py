"""The entry that a registration or a read asks for, before it is compared with the old one."""

from dataclasses import replace

from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState


def inherit_options(registration: Registration, parent: Registration | Read | None) -> Registration:
    """The registration with what it leaves to its parent, as that has it in turn."""
    if not isinstance(parent, Registration):
        return registration
    protect, retain = registration.protect, registration.retain_on_delete
    return replace(
        registration,
        protect=parent.protect if protect is None else protect,
        retain_on_delete=parent.retain_on_delete if retain is None else retain,
        deleted_with=registration.deleted_with or parent.deleted_with,
    )


def goal_of_registration(registration: Registration, provider: str) -> ResourceState:
    """The entry of a resource; `provider` is a reference, empty for components."""
    return ResourceState(
        urn=registration.urn,
        custom=registration.custom,
        type=registration.type,
        inputs=registration.inputs,
        parent=registration.parent,
        protect=bool(registration.protect),
        retain_on_delete=bool(registration.retain_on_delete),
        dependencies=list(registration.dependencies),
        property_dependencies={
            key: list(urns) for key, urns in (registration.property_dependencies or {}).items()
        },
        provider=provider,
        additional_secret_outputs=list(registration.additional_secret_outputs),
        custom_timeouts=dict(registration.custom_timeouts or {}),
        import_id=registration.import_id,
        ignore_changes=list(registration.ignore_changes),
        replace_on_changes=list(registration.replace_on_changes),
        hide_diff=list(registration.hide_diff),
        source_position=registration.source_position,
        stack_trace=list(registration.stack_trace),
        deleted_with=registration.deleted_with,
        replace_with=list(registration.replace_with),
        replacement_trigger=registration.replacement_trigger,
    )


def goal_of_read(read: Read, provider: str) -> ResourceState:
    """The entry of an object that belongs to somebody else."""
    return ResourceState(
        urn=read.urn,
        custom=True,
        type=read.type,
        id=read.id,
        inputs=read.inputs,
        parent=read.parent,
        external=True,
        dependencies=list(read.dependencies),
        provider=provider,
        additional_secret_outputs=list(read.additional_secret_outputs),
        source_position=read.source_position,
        stack_trace=list(read.stack_trace),
    )
