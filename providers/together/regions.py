"""Choose the project of a new object, and check its region against Together's list.

Programs call `get_regions`; the lifecycles of clusters and volumes call `find_region_problems`. The
list says what a region supports, not what is free there (document 003, "List Regions").

The lifecycles (`cluster`, `shared_volume`) call `complete_project` when inputs are checked. As in
Together's SDK and command line, the environment variable `TOGETHER_PROJECT_ID` names the project.
The project becomes an input of the resource, and the state keeps it: the variable of another
machine never moves an object, and never hides one.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import PlanningLists, Retry
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.providers.records import Intent, Target
from gpuform.providers.together.client import TogetherClient, get_client
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.models import Problem
from gpuform.schemas.together import wire
from gpuform.schemas.together.drivers import (
    is_same_version,
    is_unknown_gpu_type,
    parse_operating_system,
)
from gpuform.schemas.together.wire import DriverVersion, Region
from gpuform.schemas.values import UNKNOWN

cached_lists = PlanningLists()


def get_regions() -> Sequence[Region]:
    """Return every region with GPU types and driver versions.

    Credentials come from the environment, then from the running program's configuration
    (`together:apiKey`).

    Raises:
        GpuformError: the platform does not answer.
    """
    return get_client(get_lookup_settings()).list_regions()


def find_region_problems(
    client: TogetherClient, context: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield a problem where `values` contradict Together's list of regions.

    `values` may be UNKNOWN in places: without a known region, the only problem is a GPU type that
    no region offers. If Together does not answer, no problem is yielded: `context` gets a report of
    the missing checks, and a warning about an unknown GPU type.
    """
    gpu_type = values.get("gpu_type")
    try:
        # Planning must not wait for a platform that does not answer: one attempt.
        regions = cached_lists.get(client, "regions", partial(client.list_regions, Retry.NEVER))
    except GpuformError as error:
        message = "regions, GPU types and driver versions were not checked with Together"
        cached_lists.report_unchecked(client, context, f"{message}: {error.message}")
        # Together may add types at any time: an unknown name is a warning, never an error
        if isinstance(gpu_type, str) and is_unknown_gpu_type(gpu_type):
            context.on_warning(f"gpu_type {gpu_type} is unknown")
        return
    name = values.get("region")
    if not isinstance(name, str):
        yield from _find_unoffered_gpu_type(gpu_type, regions)
        return
    region = next((region for region in regions if region.name == name), None)
    if region is None:
        yield Problem("region", _format_unknown_region(name, regions))
        return
    yield from _find_gpu_type_problems(gpu_type, region, regions)
    yield from _find_driver_problems(values, region)


def _format_unknown_region(name: str, regions: Iterable[Region]) -> str:
    """Return the message about an unknown region, with the nearest name or all names."""
    names = [region.name for region in regions]
    advice = suggest_name(name, names, f"use one of {', '.join(names)}")
    return f"{name} is not a region of Together: {advice}"


def _find_unoffered_gpu_type(gpu_type: Any, regions: Iterable[Region]) -> Iterator[Problem]:
    """Yield a problem if no region at all offers the GPU type.

    The caller has found no known region in the declaration. Regions without any list of types give
    no problem.
    """
    offered_types = sorted(
        {offered_type for region in regions for offered_type in region.supported_instance_types}
    )
    if isinstance(gpu_type, str) and offered_types and gpu_type not in offered_types:
        yield Problem(
            "gpu_type", f"no region offers {gpu_type}: use one of {', '.join(offered_types)}"
        )


def _find_gpu_type_problems(
    gpu_type: Any, region: Region, regions: Iterable[Region]
) -> Iterator[Problem]:
    """Yield a problem if the region does not offer the GPU type; name the regions with an offer.

    A region without a list of types, and an unknown value, give no problem.
    """
    offered_types = region.supported_instance_types
    # a region without a list of types says nothing about types
    if not isinstance(gpu_type, str) or not offered_types or gpu_type in offered_types:
        return
    other_regions = [
        other_region.name
        for other_region in regions
        if gpu_type in other_region.supported_instance_types
    ]
    advice = f"use one of {', '.join(offered_types)}"
    if other_regions:
        advice += f", or another region ({', '.join(other_regions)})"
    yield Problem("gpu_type", f"{region.name} does not offer {gpu_type}: {advice}")


def _find_driver_problems(values: Mapping[str, Any], region: Region) -> Iterator[Problem]:
    """Yield a problem for a driver id, or a pair of versions, not offered in the region.

    A region without a list of versions, and an unknown or incomplete pair, give no problem.
    """
    offered_versions = region.driver_versions
    version_id = values.get("nvidia_version_id")
    if isinstance(version_id, str):
        ids = [version.id for version in offered_versions if version.id]
        # servers that report versions without ids cannot contradict one
        if ids and version_id not in ids:
            yield Problem(
                "nvidia_version_id",
                f"{region.name} has no version {version_id}: use one of {', '.join(ids)}",
            )
    cuda, driver = values.get("cuda_version"), values.get("nvidia_driver_version")
    if not offered_versions or UNKNOWN in (cuda, driver) or cuda is None or driver is None:
        return
    names_system = parse_operating_system(cuda) is not None
    offered_pairs = {
        (_format_cuda_version(version, with_system=names_system), version.nvidia_driver_version)
        for version in offered_versions
    }
    if not any(
        is_same_version(offered_cuda, cuda) and is_same_version(offered_driver, driver)
        for offered_cuda, offered_driver in offered_pairs
    ):
        pairs = sorted(f"{offered_cuda} with {offered}" for offered_cuda, offered in offered_pairs)
        yield Problem(
            "cuda_version",
            f"{region.name} does not offer CUDA {cuda} with driver {driver}: "
            f"use one of {', '.join(pairs)}",
        )


def _format_cuda_version(version: DriverVersion, *, with_system: bool) -> str:
    """Return the CUDA version in Together's spelling, or together with the listed system."""
    is_complete = not version.os or parse_operating_system(version.cuda_version) is not None
    if not with_system or is_complete:
        return version.cuda_version
    return f"{version.cuda_version}-{version.os}"


PROJECT_VARIABLE: Final = "TOGETHER_PROJECT_ID"

_Listed = TypeVar("_Listed", bound=wire.Cluster | wire.Volume)


def get_default_project(settings: Settings) -> str | None:
    """Return the project in the environment variable; None if unset or empty."""
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
    elif (
        intent := context.intents.find(context.urn, target)
    ) is not None and not intent.is_refused:
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
    """Yield each object possibly made by a create, and whether the object is in another project.

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
