"""Whatever a topology says: without the SDK it comes to the same, in all that can be seen."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from both_ways import Ran, Ways
from declared import CLUSTER, VOLUME
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot

PROGRAM = '"""A topology."""\n\nfrom gpuform.stacks import run\n\nrun("topology.yaml")  # here\n'
MODULE = {
    "inputs": {
        "label": {"default": "pool"},
        "key": {"secret": True, "default": "hush-inside"},
        "after": {"default": ""},
    },
    "shared_volumes": {"data": {"platform": "together", **VOLUME}},
    "clusters": {
        "gpus": {
            "platform": "together",
            **CLUSTER,
            "cluster_name": "{{ inputs.label }}-{{ inputs.after }}",
            "volume": "{{ shared_volumes.data }}",
            "project_id": "{{ inputs.key }}",
        }
    },
    "outputs": {
        "cluster": "{{ clusters.gpus }}",
        "status": "{{ clusters.gpus.status }}",
        "kube": "{{ clusters.gpus.kube_config }}",
        "none": "{{ clusters.gpus.not_ready_reason }}",
        "label": "{{ inputs.label }}",
        "key": "{{ inputs.key }}",
    },
}
CONFIG = {
    "plain": {"default": "text"},
    "key": {"secret": True, "default": "hush-key"},
    "gpus": {"type": "integer", "default": 8},
    "things": {"type": "object", "default": {"a": 1, "b": [1.5, None, "x"]}},
}
TEXTS = [
    *("plain", "{{ config.plain }}", "{{ config.key }}", "x-{{ config.key | upper }}"),
    *("{{ pulumi.stack }}", "{{ config.things.b[0] }}-{{ pulumi.project }}"),
    "{{ config.key if config.plain == 'text' else '' }}",
]
LATE = [
    *("{{ ONE }}", "{{ ONE.id }}", "{{ ONE.urn }}", "{{ ONE.status }}", "a-{{ ONE.status }}"),
    "{{ ONE.not_ready_reason | default('none', true) }}",
    "{{ ONE.status }}-{{ config.key }}",
]
LATE_CLUSTER = [
    *("{{ ONE.kube_config }}", "{{ ONE.kube_config | length }}-k", "n{{ ONE.duration_hours }}"),
    *("{{ ONE.control_plane_nodes[0].name }}", "c{{ ONE.control_plane_nodes[0].cores }}"),
    "{{ ONE.num_gpus }}-{{ ONE.cluster_name }}",
]
LATE_MODULE = [
    *("{{ ONE.cluster }}", "{{ ONE.status }}", "m-{{ ONE.kube }}", "{{ ONE.label }}"),
    *("{{ ONE.key }}", "{{ ONE.none | default('x', true) }}"),
]
LATE_STACK = [
    *("{{ ONE.shown }}", "{{ ONE.hidden }}", "{{ ONE.count }}-s", "{{ ONE.nested.a[0] }}"),
    "l{{ ONE.nested | length }}",
]
FAILING = [
    *("{{ config.key + 1 }}", "{{ clusters.c0.kube_config | fromjson }}", "{{ nothing.x }}"),
    *("{{ 'a' ~ clusters.c0.not_ready_reason }}", "{{ stack_references.other.nowhere }}"),
    "{{ clusters.c0.control_plane_nodes[7].name }}",
]


@st.composite
def topologies(draw: st.DrawFn, *, failing: bool = False) -> dict[str, Any]:
    """A topology that is mostly valid, each entry made of those before it."""
    late: list[str] = []
    resources: list[str] = []
    found: dict[str, Any] = {"config": CONFIG}

    def text() -> str:
        if failing and draw(st.integers(0, 9)) == 0:
            return draw(st.sampled_from(FAILING))
        return draw(st.sampled_from([*TEXTS, *late, *late]))

    def options(name: str) -> dict[str, Any]:
        one = st.sampled_from([f"{{{{ {each} }}}}" for each in resources] or ["{{ none }}"])
        each = {
            "protect": st.booleans(),
            "retain_on_delete": st.booleans(),
            "delete_before_replace": st.booleans(),
            "ignore_changes": st.just(["num_gpus"]),
            "replace_on_changes": st.just(["cluster_name"]),
            "additional_secret_outputs": st.just(["status"]),
            "timeouts": st.just({"create": "45m", "delete": "1h30m"}),
            "replacement_trigger": st.sampled_from(
                [1, "x", {"a": [1, *late[:1]]}, [None, "{{ config.key }}"], *late[-2:]]
            ),
            "aliases": st.lists(
                st.fixed_dictionaries(
                    {"name": st.just(f"was-{name}")},
                    optional={
                        "type": st.just("a:b:C"),
                        "parent": one if resources else st.just("urn:pulumi:dev::demo::a:b:C::x"),
                    },
                ),
                max_size=2,
            ),
        }
        if resources:
            each |= {
                "depends_on": st.lists(one, max_size=2),
                "parent": one,
                "deleted_with": one,
                "replace_with": st.lists(one, max_size=2),
                "id": st.sampled_from(
                    ["id-known", *(f"{{{{ {each}.id }}}}" for each in resources)]
                ),
            }
        chosen = draw(st.lists(st.sampled_from(sorted(each)), max_size=3, unique=True))
        said = {key: draw(each[key]) for key in chosen if draw(st.booleans())}
        if "id" in said:
            for key in ("replacement_trigger", "timeouts", "ignore_changes", "protect"):
                said.pop(key, None)
        return said

    def entry(section: str, name: str, made: dict[str, Any], *, offers: list[str]) -> None:
        reference = f"{section}.{name}"
        keyed = draw(st.integers(0, 3)) == 0
        if keyed:
            made["for_each"] = draw(
                st.sampled_from([["a", "b"], {"a": 1, "b": text()}, {"x": {"deep": text()}}])
            )
        elif draw(st.integers(0, 5)) == 0:
            made["when"] = draw(st.sampled_from(["{{ config.gpus > 4 }}", True, False]))
        said = options(name)
        if said:
            made["options"] = said
        found.setdefault(section, {})[name] = made
        if made.get("when") is False:
            return
        key = "x" if keyed and "x" in made["for_each"] else "a"
        one = f"{reference}.{key}" if keyed else reference
        resources.append(one)
        late.extend(each.replace("ONE", one) for each in offers)

    if draw(st.booleans()):
        found["stack_references"] = {"other": "organization/demo/prod"}
        late.extend(each.replace("ONE", "stack_references.other") for each in LATE_STACK)
    for number in range(draw(st.integers(0, 2))):
        volume = {"platform": "together", **VOLUME, "volume_name": text()}
        entry("shared_volumes", f"v{number}", volume, offers=LATE)
    included = []
    for number in range(draw(st.integers(0, 2))):
        name = f"m{number}"
        given = {key: text() for key in draw(st.sets(st.sampled_from(["label", "key", "after"])))}
        included.append({"file": "pool.yaml", "name": name, "with": given})
        late.extend(each.replace("ONE", f"modules.{name}") for each in LATE_MODULE)
    if included:
        found["include"] = included
    suffixes = ["", "", "", "", "-bad", "-wrong"] if failing else [""]
    for number in range(draw(st.integers(1, 4))):
        cluster: dict[str, Any] = {"platform": "together", **CLUSTER, "cluster_name": text()}
        if draw(st.booleans()):
            cluster["num_gpus"] = "{{ config.gpus }}"
        if draw(st.booleans()):
            cluster["project_id"] = text()
        if draw(st.booleans()):
            cluster["oidc_config"] = {
                key: text()
                for key in (
                    *("client_id", "group_claim", "group_prefix", "issuer_url"),
                    *("username_claim", "username_prefix"),
                )
            }
        if draw(st.booleans()) and resources:
            cluster["volume_id"] = text()
        name = f"c{number}{draw(st.sampled_from(suffixes))}"
        entry("clusters", name, cluster, offers=[*LATE, *LATE_CLUSTER])
    values = st.recursive(
        st.sampled_from([1, True, None, *TEXTS, *late]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
        ),
        max_leaves=4,
    )
    found["outputs"] = draw(st.dictionaries(st.sampled_from("opqr"), values, max_size=4))
    if failing and draw(st.booleans()):
        found["outputs"]["f"] = text()
    return found


@pytest.fixture(scope="module")
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter.new("test only")


@contextlib.contextmanager
def ways(crypter: PassphraseCrypter) -> Iterator[Ways]:
    with TemporaryDirectory() as folder:
        empty = Snapshot("organization/demo/dev", secrets_provider=crypter.provider)
        found = Ways(Path(folder).resolve(), crypter, empty.to_json(crypter))
        (found.directory / "__main__.py").write_text(PROGRAM)
        (found.directory / "pool.yaml").write_text(yaml.safe_dump(MODULE, sort_keys=False))
        yield found


def write(found: Ways, topology: dict[str, Any]) -> None:
    text = yaml.safe_dump(topology, sort_keys=False)
    note(text)
    (found.directory / "topology.yaml").write_text(text)


def compare(ran: tuple[Ran, Ran]) -> None:
    with_sdk, without = ran
    first, second = with_sdk.seen, without.seen
    assert first["errors"] == second["errors"]
    for part in first:
        if isinstance(first[part], dict):
            different = {
                key: (first[part].get(key), second[part].get(key))
                for key in {**first[part], **second[part]}
                if first[part].get(key) != second[part].get(key)
            }
            assert different == {}, part
        assert first[part] == second[part], part


SETTINGS = settings(
    max_examples=25,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # an example takes a second
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.slow
@SETTINGS
@given(before=topologies(), after=topologies(), data=st.data())
def test_runs_come_to_the_same(
    crypter: PassphraseCrypter, before: dict[str, Any], after: dict[str, Any], data: st.DataObject
) -> None:
    with ways(crypter) as found:
        found.config = {"gpuform:form": data.draw(st.sampled_from(["dynamic", "plugin"]))}
        write(found, before)
        compare(found.both(preview=True))
        compare(found.both())
        compare(found.both(preview=True))
        write(found, after)
        compare(found.both(preview=True))
        compare(found.both())
        compare(found.both("refresh", run_program=True, preview=True))
        compare(found.both("destroy", run_program=True, preview=True))
