"""The rules over several resources, applied to a topology before anything is registered."""

from collections.abc import Iterable

from gpuform.providers.forms import Form
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.registration import Registered, Registration
from gpuform.stacks.resource_rules import RULES
from gpuform.stacks.topology.checking import Checked


def check_rules(resources: Iterable[Checked], problems: Diagnostics) -> None:
    """What the rules say of the resources goes to `problems`."""
    registered = Registered()
    for resource in resources:
        address = resource.instance.address
        registration = _registration(resource)
        registered.add(registration)
        for rule in RULES:
            for problem in rule(registration, registered):
                message = f"{address}.{problem.path}: {problem.reason}"
                problems.add(resource.place(problem.path), "resource-rule", message)


def _registration(resource: Checked) -> Registration:
    """The resource as a program would register it; its address stands for its URN."""
    instance = resource.instance
    declaration = instance.declaration
    return Registration(
        urn=instance.address,
        type=Form.DYNAMIC.type_of(declaration.platform, declaration.kind),
        name=instance.name,
        custom=True,
        inputs=dict(resource.values),
        property_dependencies={
            name: [used.address for used in instances] for name, instances in resource.uses.items()
        },
    )
