"""The lifecycles by the types of the package's resources, `gpuform:<platform>:<Kind>`."""

from typing import Any

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.errors import UnsupportedKind
from gpuform.providers.forms import PACKAGE
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platforms import platforms


def lifecycle_of(type_: str) -> type[Lifecycle[Any, Any]]:
    """The lifecycle of a type, imported now. Raises UnsupportedKind, naming what there is."""
    package, _, rest = type_.partition(":")
    platform, _, kind = rest.partition(":")
    if package != PACKAGE or not kind:
        raise UnsupportedKind(
            f"{type_} is no resource of gpuform: one is {PACKAGE}:<platform>:<Kind>, on "
            f"{', '.join(platforms())}"
        )
    return lifecycle_class(platform, kind)
