"""Hypothesis strategy of topologies on emulated Together: each entry refers to those before it."""

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
_RESOURCE_EXPRESSIONS = (
    *("{{ ONE }}", "{{ ONE.id }}", "{{ ONE.urn }}", "{{ ONE.status }}", "a-{{ ONE.status }}"),
    "{{ ONE.not_ready_reason | default('none', true) }}",
    "{{ ONE.status }}-{{ config.key }}",
)
_CLUSTER_EXPRESSIONS = (
    *("{{ ONE.kube_config }}", "{{ ONE.kube_config | length }}-k", "n{{ ONE.duration_hours }}"),
    *("{{ ONE.control_plane_nodes[0].name }}", "c{{ ONE.control_plane_nodes[0].cores }}"),
    "{{ ONE.num_gpus }}-{{ ONE.cluster_name }}",
)
_MODULE_EXPRESSIONS = (
    *("{{ ONE.cluster }}", "{{ ONE.status }}", "m-{{ ONE.kube }}", "{{ ONE.label }}"),
    *("{{ ONE.key }}", "{{ ONE.none | default('x', true) }}"),
)
_STACK_EXPRESSIONS = (
    *("{{ ONE.shown }}", "{{ ONE.hidden }}", "{{ ONE.count }}-s", "{{ ONE.nested.a[0] }}-t"),
    "l{{ ONE.nested | length }}",
)
FAILING_EXPRESSIONS = (
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
_NO_OPTIONS_OF_READS = ("replacement_trigger", "timeouts", "ignore_changes", "protect")
_OIDC = (
    *("client_id", "group_claim", "group_prefix", "issuer_url"),
    *("username_claim", "username_prefix"),
)


@st.composite
def topologies(
    draw: st.DrawFn, *, failing: bool = False, suffixes: Sequence[str] = ("",)
) -> dict[str, Any]:
    """Draw a topology; with `failing` some expressions fail once their values are known.

    `suffixes` are texts in which the names of clusters may end.
    """
    return _TopologyBuilder(draw, failing, suffixes).draw_topology()


@dataclass
class _TopologyBuilder:
    draw: st.DrawFn
    failing: bool
    suffixes: Sequence[str]
    expressions: list[str] = field(default_factory=list)
    """Expressions that refer to the entries drawn so far."""
    resource_paths: list[str] = field(default_factory=list)
    document: dict[str, Any] = field(default_factory=lambda: {"config": _CONFIG})

    def draw_topology(self) -> dict[str, Any]:
        if self.draw(st.booleans()):
            self.document["stack_references"] = {"other": "organization/demo/prod"}
            self.add_expressions("stack_references.other", _STACK_EXPRESSIONS)
        for number in range(self.draw(st.integers(0, 2))):
            volume = {"platform": "together", **VOLUME, "volume_name": self.draw_text()}
            self.add_entry("shared_volumes", f"v{number}", volume, _RESOURCE_EXPRESSIONS)
        included = [self.draw_module(f"m{n}") for n in range(self.draw(st.integers(0, 2)))]
        if included:
            self.document["include"] = included
        for number in range(self.draw(st.integers(1, 4))):
            name = f"c{number}{self.draw(st.sampled_from(self.suffixes))}"
            self.add_entry(
                "clusters",
                name,
                self.draw_cluster(),
                (*_RESOURCE_EXPRESSIONS, *_CLUSTER_EXPRESSIONS),
            )
        self.document["outputs"] = self.draw(
            st.dictionaries(st.sampled_from("opqr"), self.build_value_strategy(), max_size=4)
        )
        return self.document

    def draw_text(self) -> str:
        if self.failing and self.draw(st.integers(0, 9)) == 0:
            return self.draw(st.sampled_from(FAILING_EXPRESSIONS))
        return self.draw(st.sampled_from([*_TEXTS, *self.expressions, *self.expressions]))

    def build_value_strategy(self) -> st.SearchStrategy[Any]:
        failing = FAILING_EXPRESSIONS if self.failing else ()
        return st.recursive(
            st.sampled_from([1, True, None, *_TEXTS, *self.expressions, *failing]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
            ),
            max_leaves=4,
        )

    def add_expressions(self, path: str, expressions: Sequence[str]) -> None:
        self.expressions.extend(expression.replace("ONE", path) for expression in expressions)

    def draw_module(self, name: str) -> dict[str, Any]:
        chosen = self.draw(st.sets(st.sampled_from(["label", "key", "after"])))
        inputs = {key: self.draw_text() for key in sorted(chosen)}
        self.add_expressions(f"modules.{name}", _MODULE_EXPRESSIONS)
        return {"file": "pool.yaml", "name": name, "with": inputs}

    def draw_cluster(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "platform": "together",
            **CLUSTER,
            "cluster_name": self.draw_text(),
        }
        more = {
            "num_gpus": lambda: "{{ config.gpus }}",
            "project_id": self.draw_text,
            "oidc_config": lambda: {key: self.draw_text() for key in _OIDC},
            "volume_id": self.draw_text,
        }
        return entry | {key: make() for key, make in more.items() if self.draw(st.booleans())}

    def add_entry(
        self, section: str, name: str, entry: dict[str, Any], expressions: Sequence[str]
    ) -> None:
        is_keyed = self.draw(st.integers(0, 3)) == 0
        if is_keyed:
            forms = [["a", "b"], {"a": 1, "b": self.draw_text()}, {"x": {"deep": self.draw_text()}}]
            entry["for_each"] = self.draw(st.sampled_from(forms))
        elif self.draw(st.integers(0, 5)) == 0:
            entry["when"] = self.draw(st.sampled_from(["{{ config.gpus > 4 }}", True, False]))
        options = self.draw_options(name)
        if options:
            entry["options"] = options
        self.document.setdefault(section, {})[name] = entry
        if entry.get("when") is not False:
            path = f"{section}['{name}']"
            path = f"{path}.{next(iter(entry['for_each']))}" if is_keyed else path
            self.resource_paths.append(path)
            self.add_expressions(path, expressions)

    def draw_options(self, name: str) -> dict[str, Any]:
        references = st.sampled_from([f"{{{{ {path} }}}}" for path in self.resource_paths] or [""])
        ids = ["id-known", *(f"{{{{ {path}.id }}}}" for path in self.resource_paths)]
        late = self.expressions
        triggers = [1, "x", {"a": [1, *late[:1]]}, [None, "{{ config.key }}"], *late[-2:]]
        parents = references if self.resource_paths else st.just("urn:pulumi:dev::demo::a:b:C::x")
        alias = st.fixed_dictionaries(
            {"name": st.just(f"was-{name}")},
            optional={"type": st.just("a:b:C"), "parent": parents},
        )
        strategies: dict[str, st.SearchStrategy[Any]] = {
            **_TEXT_OPTIONS,
            "replacement_trigger": st.sampled_from(triggers),
            "aliases": st.lists(alias, max_size=2),
        }
        if self.resource_paths:
            strategies |= {
                **dict.fromkeys(("parent", "deleted_with"), references),
                **{key: st.lists(references, max_size=2) for key in ("depends_on", "replace_with")},
                "id": st.sampled_from(ids),
            }
        chosen = self.draw(st.lists(st.sampled_from(sorted(strategies)), max_size=3, unique=True))
        options = {key: self.draw(strategies[key]) for key in chosen}
        return {
            k: v for k, v in options.items() if "id" not in options or k not in _NO_OPTIONS_OF_READS
        }
