"""A resource's inputs as its provider accepts them, and its refusals in Pulumi's words."""

from collections.abc import Sequence

from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import Failure, ProviderHost
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.values import PropertyMap, unwrap_secrets


class CheckFailed(EngineError):
    """A resource's inputs were refused; one message for each property."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("\n".join(messages))
        self.messages = tuple(messages)


def checked(
    host: ProviderHost,
    registration: Registration,
    olds: PropertyMap,
    news: PropertyMap,
    provider: str = "",
) -> PropertyMap:
    """The inputs to use, as the provider of this reference has them. Raises CheckFailed."""
    inputs, failures = host.check(registration.urn, olds, news, provider)
    if failures:
        raise CheckFailed([_failure_text(registration, news, f) for f in failures])
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
        shown = f" value {{{value:g}}}" if isinstance(value, float) else f" value {{{value}}}"
    return problem_text(registration, f"{failure.property}{shown}", failure.reason)
