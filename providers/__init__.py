"""One platform at a time: lifecycles and clients, as Pulumi resources. `Provider` is an account."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuform.providers.resource import Provider

__all__ = ["Provider"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, because a state file needs only the lifecycles."""
    if name != "Provider":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from gpuform.providers.resource import Provider  # noqa: PLC0415 - as above

    return Provider
