"""Hypothesis strategies of states that keep Pulumi's integrity rules."""

from copy import deepcopy

from hypothesis import strategies as st

from gpuform.stacks.engine.state import Manifest, ResourceState, Snapshot

STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
PROVIDER = "urn:pulumi:dev::demo::pulumi:providers:pulumi-python::default"


def build_urn(number: int) -> str:
    return f"urn:pulumi:dev::demo::pulumi-python:dynamic:Resource::r{number}"


@st.composite
def valid_snapshots(draw: st.DrawFn) -> Snapshot:
    """Draw resources that refer only to earlier ones, some of them with an old copy to delete."""
    resources = [
        ResourceState(STACK, False, "pulumi:pulumi:Stack"),
        ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1"),
    ]
    for number in range(draw(st.integers(1, 8))):
        earlier = st.sampled_from([STACK, *(build_urn(n) for n in range(number))])
        earlier_lists = st.lists(earlier, max_size=3)
        custom = draw(st.booleans())
        state = ResourceState(
            build_urn(number),
            custom,
            "pulumi-python:dynamic:Resource",
            id=f"i-{number}" if custom else "",
            parent=draw(earlier),
            provider=f"{PROVIDER}::p-1" if custom else "",
            dependencies=draw(earlier_lists),
            property_dependencies=draw(
                st.dictionaries(st.sampled_from("ab"), earlier_lists, max_size=2)
            ),
            deleted_with=draw(st.just("") | earlier),
            replace_with=draw(earlier_lists),
            pending_replacement=draw(st.booleans()) and custom,
        )
        resources.append(state)
        if draw(st.booleans()):
            old = deepcopy(state)
            old.delete = True
            resources.append(old)
    return Snapshot("organization/demo/dev", resources, manifest=Manifest("2026-01-01T00:00:00Z"))
