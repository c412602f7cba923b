"""Files, includes, defaults and platforms: what a topology declares before it is evaluated."""

from pathlib import Path

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume


def test_an_empty_file_declares_nothing(topologies: Topologies) -> None:
    assert topologies.plan_valid("").names == []


def test_a_file_that_is_not_there(topologies: Topologies) -> None:
    assert topologies.plan_invalid("include: [other.yaml]") == [
        "topology.yaml:1: the file other.yaml does not exist"
    ]


def test_includes_are_relative_to_the_file_that_has_them(topologies: Topologies) -> None:
    topologies.write("include: [more.yaml]\nconfig: {a: {default: x}}", "parts/base.yaml")
    topologies.write(f"shared_volumes: {{data: {declare_volume()}}}", "parts/more.yaml")
    result = topologies.plan_valid(f"""
        include: [parts/base.yaml, ./parts/more.yaml]
        clusters: {{train: {declare_cluster(cluster_name='"{{ config.a }}"')}}}
    """)
    assert result.names == ["train", "data"]
    assert result.values("train")["cluster_name"] == "x"


@pytest.mark.parametrize("other", ["topology.yaml", "other.yaml"])
def test_files_that_include_each_other(topologies: Topologies, other: str) -> None:
    topologies.write("include: [topology.yaml]", "other.yaml")
    (message,) = topologies.plan_invalid(f"include: [{other}]")
    way = "topology.yaml -> " + ("other.yaml -> " if other == "other.yaml" else "")
    assert message == f"{other}:1: files include each other: {way}topology.yaml"


@pytest.mark.parametrize(
    ("include", "message"),
    [
        ("other.yaml", "include must be a list"),
        ("[5]", "an included file must be a path, written as text"),
        ("['{{ config.a }}']", "the file {{ config.a }} does not exist"),
        (f"[{'a' * 5000}]", "this is not a valid path of a file"),
        (r'["a\0b"]', "this is not a valid path of a file"),
    ],
)
def test_includes_of_no_file(topologies: Topologies, include: str, message: str) -> None:
    assert topologies.plan_invalid(f"include: {include}") == [f"topology.yaml:1: {message}"]


FOREIGN_FILES = {
    "an-unknown-key": '{"s3cret-key": {"auth": "s3cret-value"}}',
    "a-value-of-another-type": "outputs: s3cret-value",
    "broken-syntax": "s3cret-key: [s3cret-value",
    "a-list": "[s3cret-value]",
    "a-section-with-odd-entries": "clusters: {s3cret-key: {platform: s3cret-value}}",
    "an-expression": "outputs: {a: '{{ config.s3cret }}'}",
    "a-default": "config: {s3cret-key: {type: s3cret-value}}",
}


class TestFilesOutsideTheProject:
    """Their problems are reported, and nothing that they hold."""

    @pytest.fixture
    def topologies(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topologies:
        project = tmp_path / "project"
        project.mkdir()
        (project / "Pulumi.yaml").write_text("name: p")
        monkeypatch.chdir(project)
        return Topologies(project)

    @pytest.mark.parametrize("content", FOREIGN_FILES.values(), ids=FOREIGN_FILES)
    @pytest.mark.parametrize(
        "include", ["[../x.json]", "[link.json]", "[{name: m, file: ../x.json}]"]
    )
    def test_a_problem_of_a_file_outside_shows_none_of_its_content(
        self, topologies: Topologies, tmp_path: Path, content: str, include: str
    ) -> None:
        (tmp_path / "x.json").write_text(content)
        (tmp_path / "project" / "link.json").symlink_to("../x.json")

        messages = topologies.plan_invalid(f"include: {include}")

        assert "s3cret" not in "".join(messages)
        assert "it is outside the project" in "".join(messages)

    def test_a_file_in_the_same_repository_is_explained(
        self, topologies: Topologies, tmp_path: Path
    ) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / "x.yaml").write_text("custers: {}")

        assert topologies.plan_invalid("include: [../x.yaml]") == [
            "../x.yaml:1: custers is not known"
        ]

    def test_the_files_of_git_itself_are_outside(
        self, topologies: Topologies, tmp_path: Path
    ) -> None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "x.json").write_text('{"s3cret": 1}')

        (message,) = topologies.plan_invalid("include: [../.git/x.json]")

        assert "s3cret" not in message

    def test_a_topology_outside_that_is_sound_is_included(
        self, topologies: Topologies, tmp_path: Path
    ) -> None:
        (tmp_path / "x.yaml").write_text(f"shared_volumes: {{data: {declare_volume()}}}")

        assert topologies.plan_valid("include: [../x.yaml]").names == ["data"]


def test_an_include_of_links_in_a_circle(topologies: Topologies, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").symlink_to(tmp_path / "two.yaml")
    (tmp_path / "two.yaml").symlink_to(tmp_path / "one.yaml")
    assert topologies.plan_invalid(f"include: ['{tmp_path}/one.yaml']") == [
        "topology.yaml:1: this is not a valid path of a file"
    ]


@pytest.mark.parametrize("key", ["clusters", "config", "outputs", "defaults"])
def test_a_name_is_declared_once_in_all_files(topologies: Topologies, key: str) -> None:
    entry = {
        "clusters": f"{{a: {declare_cluster()}}}",
        "config": "{a: {default: b}}",
        "outputs": "{a: b}",
        "defaults": "{clusters: {together: {num_gpus: 8}}}",
    }[key]
    topologies.write(f"{key}: {entry}", "other.yaml")
    (message,) = topologies.plan_invalid(f"include: [other.yaml]\n{key}: {entry}")
    assert message.startswith(f"other.yaml:1: {key}.")
    assert "is declared twice: first at topology.yaml:2:" in message


def test_a_problem_is_told_where_its_text_is(topologies: Topologies) -> None:
    topologies.write("defaults: {clusters: {together: {num_gpus: 12}}}", "defaults.yaml")
    entry = declare_cluster().replace(", num_gpus: 16", "")
    (message,) = topologies.plan_invalid(f"include: [defaults.yaml]\nclusters: {{train: {entry}}}")
    assert message.startswith("defaults.yaml:1: clusters.train.num_gpus: ")


def test_an_entry_says_more_than_its_defaults(topologies: Topologies) -> None:
    result = topologies.plan_valid(f"""
        defaults:
          clusters:
            together: {{num_gpus: 8, duration_days: 2, volume_id: v, options: {{protect: true}}}}
        shared_volumes: {{data: {declare_volume()}}}
        clusters:
          train: {declare_cluster(volume='"{{ shared_volumes.data }}"', duration_days="null")}
          other: {declare_cluster(volume="null", duration_days="null", options="{protect: null}")}
    """)
    train, other = result.planned.resources[1:]
    assert train.values["num_gpus"] == 16
    assert train.values["duration_days"] is other.values["duration_days"] is None
    assert [used.name for used in train.uses["volume_id"]] == ["data"]
    assert other.values["volume_id"] is None
    assert set(train.instance.declaration.options) == {"protect"}
    assert not other.instance.declaration.options


def test_one_property_under_two_names(topologies: Topologies) -> None:
    entry = declare_cluster(volume="a", volume_id="b")
    assert topologies.plan_invalid(f"clusters: {{train: {entry}}}") == [
        "topology.yaml:1: volume and volume_id are two names of one property: remove one of them"
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cluster: {}", "cluster is not known", "did you mean clusters?"),
        ("clusters: {a: {platform: togther}}", "togther is not a platform", "did you mean toget"),
        ("clusters: {a: {platform: scp}}", "scp has no Cluster", "Cluster exists on together"),
        ("clusters: {a: }", "clusters.a has no platform", "add platform: one of together"),
        ("clusters: {a: {platform: '{{ 1 }}'}}", "platform must be a literal", ""),
        ("clusters: [a]", "clusters must be an object", ""),
        ("clusters: {a b: {platform: aios}}", "'a b' is not a valid name", ""),
        (
            "defaults: {cluster: {}}",
            "cluster is not a section of a topology",
            "did you mean clusters?",
        ),
        ("defaults: {clusters: {together: {when: true}}}", "when cannot have a default", ""),
        (
            "defaults: {clusters: {together: {billing_typ: RESERVED}}}",
            "defaults.clusters.together.billing_typ: is not known: did you mean billing_type?",
            "",
        ),
        (
            "defaults: {clusters: {together: {options: {protekt: true}}}}",
            "defaults.clusters.together.options.protekt: is not known: did you mean protect?",
            "",
        ),
        ("config: {a: 5}", "config.a must be an object", "write a: {default: 5}"),
        ("config: {a: {default: '{{ 1 }}'}}", "config cannot contain expressions", ""),
        ("config: {a: {pattern: '['}}", "config.a.pattern: is not a regular expression", ""),
        ("config: {a: {pattern: 'a)|(b'}}", "config.a.pattern: is not a regular expression", ""),
        (
            "config: {a: {pattern: '(?!a)b'}}",
            "config.a.pattern: is not a regular expression: look-around, including",
            "",
        ),
        (
            "config: {a: {pattern: 'a{999}{999}'}}",
            "config.a.pattern: is not a regular expression: Compiled regex exceeds",
            "",
        ),
    ],
)
def test_what_a_file_cannot_say(topologies: Topologies, text: str, message: str, hint: str) -> None:
    (problem,) = topologies(text).problems
    assert problem.message.startswith(message)
    assert problem.hint.startswith(hint)


def test_anchors_have_a_place(topologies: Topologies) -> None:
    topology_yaml = (
        f"x-one: &one {declare_cluster()}\nclusters: {{a: *one, b: {{<<: *one, num_gpus: 24}}}}"
    )
    assert topologies.plan_valid(topology_yaml).values("b")["num_gpus"] == 24
