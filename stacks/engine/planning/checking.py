"""A resource's inputs as its provider accepts them, and its refusals in Pulumi's words."""

import json
from collections.abc import Sequence

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import Failure, ProviderHost
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.values import PropertyMap, property_paths, unwrap_secrets


class CheckFailed(EngineError):
    """A resource's inputs were refused; a message for each property, with its path."""

    help_page = "concepts/plan"

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(message for _, message in problems))
        self.problems = tuple(problems)


def check_inputs(
    host: ProviderHost,
    registration: Registration,
    olds: PropertyMap,
    news: PropertyMap,
    provider: str = "",
) -> PropertyMap:
    """The inputs to use, as the provider of this reference has them. Raises CheckFailed."""
    inputs, failures = host.check(registration.urn, olds, news, provider)
    if failures:
        raise CheckFailed([(f.property, _failure_text(registration, news, f)) for f in failures])
    return inputs


def problem_text(registration: Registration, subject: str, reason: str) -> str:
    """A refused property in Pulumi's words; `subject` is its path, and its value if it is shown."""
    return (
        f"{registration.type} resource '{registration.name}': property {subject} "
        f"has a problem: {reason}"
    )


def _failure_text(registration: Registration, news: PropertyMap, failure: Failure) -> str:
    value = news.get(property_paths.root_of(failure.property))
    plain = unwrap_secrets(value)
    shown = ""
    if plain == value and isinstance(value, str | float | int | bool):
        is_float = isinstance(value, float)
        shown = f" value {f'{value:g}' if is_float else json.dumps(value, ensure_ascii=False)}"
    return problem_text(registration, f"{failure.property}{shown}", failure.reason)
