"""Random topologies on emulated Together, mostly valid, each entry made of those before it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from support.topologies.declarations import CLUSTER, VOLUME

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
"""The file `pool.yaml`, which the topologies include."""

_CONFIG = {
    "plain": {"default": "text"},
    "key": {"secret": True, "default": "hush-key"},
    "gpus": {"type": "integer", "default": 8},
    "things": {"type": "object", "default": {"a": 1, "b": [1.5, None, "x"]}},
}
_TEXTS = (
    *("plain", "{{ config.plain }}", "{{ config.key }}", "x-{{ config.key | upper }}"),
    *("{{ pulumi.stack }}", "{{ config.things.b[0] }}-{{ pulumi.project }}"),
    "{{ config.key if config.plain == 'text' else '' }}",
)
_OF_RESOURCE = (
    *("{{ ONE }}", "{{ ONE.id }}", "{{ ONE.urn }}", "{{ ONE.status }}", "a-{{ ONE.status }}"),
    "{{ ONE.not_ready_reason | default('none', true) }}",
    "{{ ONE.status }}-{{ config.key }}",
)
_OF_CLUSTER = (
    *("{{ ONE.kube_config }}", "{{ ONE.kube_config | length }}-k", "n{{ ONE.duration_hours }}"),
    *("{{ ONE.control_plane_nodes[0].name }}", "c{{ ONE.control_plane_nodes[0].cores }}"),
    "{{ ONE.num_gpus }}-{{ ONE.cluster_name }}",
)
_OF_MODULE = (
    *("{{ ONE.cluster }}", "{{ ONE.status }}", "m-{{ ONE.kube }}", "{{ ONE.label }}"),
    *("{{ ONE.key }}", "{{ ONE.none | default('x', true) }}"),
)
_OF_STACK = (
    *("{{ ONE.shown }}", "{{ ONE.hidden }}", "{{ ONE.count }}-s", "{{ ONE.nested.a[0] }}-t"),
    "l{{ ONE.nested | length }}",
)
FAILING = (
    *("{{ config.key + 1 }}", "{{ clusters.c0.kube_config | fromjson }}"),
    *("{{ 'a' ~ clusters.c0.not_ready_reason }}", "{{ stack_references.other.nowhere }}"),
    *("{{ clusters.c0.control_plane_nodes[7].name }}", "{{ config.things.b.nothing }}"),
)
_TEXT_OPTIONS = {
    "protect": st.booleans(),
    "retain_on_delete": st.booleans(),
    "delete_before_replace": st.booleans(),
    "ignore_changes": st.just(["num_gpus"]),
    "replace_on_changes": st.just(["cluster_name"]),
    "additional_secret_outputs": st.just(["status"]),
    "timeouts": st.just({"create": "45m", "delete": "1h30m"}),
}
_NOT_OF_READS = ("replacement_trigger", "timeouts", "ignore_changes", "protect")
_OIDC = (
    *("client_id", "group_claim", "group_prefix", "issuer_url"),
    *("username_claim", "username_prefix"),
)


@st.composite
def topologies(
    draw: st.DrawFn, *, failing: bool = False, suffixes: Sequence[str] = ("",)
) -> dict[str, Any]:
    """One topology; with `failing` some expressions fail with their values.

    `suffixes` are what the names of clusters may end in.
    """
    return _Drawing(draw, failing, suffixes).topology()


@dataclass
class _Drawing:
    draw: st.DrawFn
    failing: bool
    suffixes: Sequence[str]
    late: list[str] = field(default_factory=list)
    """The expressions that refer to what is there already."""
    resources: list[str] = field(default_factory=list)
    found: dict[str, Any] = field(default_factory=lambda: {"config": _CONFIG})

    def topology(self) -> dict[str, Any]:
        if self.draw(st.booleans()):
            self.found["stack_references"] = {"other": "organization/demo/prod"}
            self.offer("stack_references.other", _OF_STACK)
        for number in range(self.draw(st.integers(0, 2))):
            volume = {"platform": "together", **VOLUME, "volume_name": self.text()}
            self.entry("shared_volumes", f"v{number}", volume, _OF_RESOURCE)
        included = [self.module(f"m{n}") for n in range(self.draw(st.integers(0, 2)))]
        if included:
            self.found["include"] = included
        for number in range(self.draw(st.integers(1, 4))):
            name = f"c{number}{self.draw(st.sampled_from(self.suffixes))}"
            self.entry("clusters", name, self.cluster(), (*_OF_RESOURCE, *_OF_CLUSTER))
        self.found["outputs"] = self.draw(
            st.dictionaries(st.sampled_from("opqr"), self.values(), max_size=4)
        )
        return self.found

    def text(self) -> str:
        if self.failing and self.draw(st.integers(0, 9)) == 0:
            return self.draw(st.sampled_from(FAILING))
        return self.draw(st.sampled_from([*_TEXTS, *self.late, *self.late]))

    def values(self) -> st.SearchStrategy[Any]:
        failing = FAILING if self.failing else ()
        return st.recursive(
            st.sampled_from([1, True, None, *_TEXTS, *self.late, *failing]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
            ),
            max_leaves=4,
        )

    def offer(self, one: str, expressions: Sequence[str]) -> None:
        self.late.extend(each.replace("ONE", one) for each in expressions)

    def module(self, name: str) -> dict[str, Any]:
        chosen = self.draw(st.sets(st.sampled_from(["label", "key", "after"])))
        given = {key: self.text() for key in sorted(chosen)}
        self.offer(f"modules.{name}", _OF_MODULE)
        return {"file": "pool.yaml", "name": name, "with": given}

    def cluster(self) -> dict[str, Any]:
        made: dict[str, Any] = {"platform": "together", **CLUSTER, "cluster_name": self.text()}
        more = {
            "num_gpus": lambda: "{{ config.gpus }}",
            "project_id": self.text,
            "oidc_config": lambda: {key: self.text() for key in _OIDC},
            "volume_id": self.text,
        }
        return made | {key: make() for key, make in more.items() if self.draw(st.booleans())}

    def entry(
        self, section: str, name: str, made: dict[str, Any], expressions: Sequence[str]
    ) -> None:
        is_keyed = self.draw(st.integers(0, 3)) == 0
        if is_keyed:
            forms = [["a", "b"], {"a": 1, "b": self.text()}, {"x": {"deep": self.text()}}]
            made["for_each"] = self.draw(st.sampled_from(forms))
        elif self.draw(st.integers(0, 5)) == 0:
            made["when"] = self.draw(st.sampled_from(["{{ config.gpus > 4 }}", True, False]))
        said = self.options(name)
        if said:
            made["options"] = said
        self.found.setdefault(section, {})[name] = made
        if made.get("when") is not False:
            one = f"{section}['{name}']"
            one = f"{one}.{next(iter(made['for_each']))}" if is_keyed else one
            self.resources.append(one)
            self.offer(one, expressions)

    def options(self, name: str) -> dict[str, Any]:
        one = st.sampled_from([f"{{{{ {each} }}}}" for each in self.resources] or [""])
        ids = ["id-known", *(f"{{{{ {each}.id }}}}" for each in self.resources)]
        late = self.late
        triggers = [1, "x", {"a": [1, *late[:1]]}, [None, "{{ config.key }}"], *late[-2:]]
        parents = one if self.resources else st.just("urn:pulumi:dev::demo::a:b:C::x")
        alias = st.fixed_dictionaries(
            {"name": st.just(f"was-{name}")},
            optional={"type": st.just("a:b:C"), "parent": parents},
        )
        each: dict[str, st.SearchStrategy[Any]] = {
            **_TEXT_OPTIONS,
            "replacement_trigger": st.sampled_from(triggers),
            "aliases": st.lists(alias, max_size=2),
        }
        if self.resources:
            each |= {
                **dict.fromkeys(("parent", "deleted_with"), one),
                **{key: st.lists(one, max_size=2) for key in ("depends_on", "replace_with")},
                "id": st.sampled_from(ids),
            }
        chosen = self.draw(st.lists(st.sampled_from(sorted(each)), max_size=3, unique=True))
        said = {key: self.draw(each[key]) for key in chosen}
        return {k: v for k, v in said.items() if "id" not in said or k not in _NOT_OF_READS}
