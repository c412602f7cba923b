"""Change contexts of provider calls which a fixture has made current already."""

from typing import Any

from gpuform.providers.context import ProviderContext


def change_context(context: ProviderContext, **values: Any) -> None:
    """Change fields of a context in place, which code of gpuform cannot do."""
    for name, value in values.items():
        object.__setattr__(context, name, value)
