"""Test files: problems are reported at their positions, and cases are selected and ordered."""

from pathlib import Path

import pytest

from gpuform.stacks.testing.cases import TestFilesError as FilesError
from gpuform.stacks.testing.cases import build_chains, read_cases, select_cases

from .conftest import WriteCases

WRONG = [
    ("cases: {}\n", "1:8", "at least 1"),
    ("case: {a: {}}\n", "1:1", "did you mean cases"),
    ("cases:\n  a:\n    expct: {}\n", "3:5", "did you mean expect"),
    ("cases:\n  a:\n    expct:\n", "3:5", "did you mean expect"),
    ("cases:\n  a b: {}\n", "2:8", "letters, digits, hyphens and underscores"),
    ("cases:\n  a:\n    start: {case: b}\n", "3:19", "case 'b' not found"),
    (
        "cases:\n  a:\n    start: {case: b}\n  b:\n    start: {case: a}\n",
        "3:19",
        "start from each other: a <- b <- a",
    ),
    ("cases:\n  a:\n    start: {case: a}\n", "3:19", "a <- a"),
    ("cases:\n  a:\n    events: [{at: 5m}]\n", "3:14", "declare exactly one of"),
    (
        "cases:\n  a:\n    events: [{at: 5m, on: POST x, stock_out: together}]\n",
        "3:27",
        "not both",
    ),
    (
        "cases:\n  a:\n    events: [{stock_out: scp, met: false}]\n",
        "3:36",
        "is valid only with `fault`",
    ),
    ("cases:\n  a:\n    start: {later: 99999999h}\n", "3:20", "the most is 87600h"),
    ("cases:\n  a:\n    events: [{at: 1h, kill: false}]\n", "3:29", "must be true"),
    ("cases:\n  a:\n    expect: {plan: {train: }}\n", "3:28", "must be one of same"),
    ("cases:\n  a:\n    expect: {properties: {train: null}}\n", "3:34", "not null"),
    ("cases:\n  a:\n    events: [{kill: true}]\n", "3:21", "requires `at` or `on`"),
    ("cases:\n  a:\n    events: [{kill: true, on: POST /(}]\n", "3:31", "regular expression"),
    ("cases:\n  a:\n    events: [{kill: true, at: soon}]\n", "3:31", "is not a duration"),
    (
        "cases:\n  a:\n    expect: {plan: {train: recreate}}\n",
        "3:28",
        "recreate is not one of same, create",
    ),
    ("cases:\n  a:\n    start: {case: b, state: x.json}\n  b: {}\n", "3:29", "not from both"),
]
NULLS = [
    ("cases:\n  a:\n", "2:5"),
    ("cases:\n  a:\n    expect:\n", "3:12"),
    ("cases:\n  a:\n    events:\n", "3:12"),
    ("cases:\n  a:\n    events: [null]\n", "3:14"),
    ("cases:\n  a:\n    config:\n", "3:12"),
    ("defaults:\ncases: {a: {}}\n", "1:10"),
    ("cases:\n  a:\n    start: {case: }\n", "3:19"),
    ("cases:\n  a:\n    expect: {takes: {at_most: }}\n", "3:31"),
    ("cases:\n  a:\n    expect: {error: [null]}\n", "3:22"),
    *(
        (f"cases:\n  a:\n    expect: {{{name}: }}\n", f"3:{16 + len(name)}")
        for name in ("plan", "absent", "error", "result", "snapshot", "outputs", "properties")
    ),
]


@pytest.mark.parametrize(("text", "position"), NULLS)
def test_a_field_without_a_value_is_a_problem(
    write_cases: WriteCases, text: str, position: str
) -> None:
    with pytest.raises(FilesError) as caught:
        read_cases([write_cases(text)], Path())
    (problem,) = str(caught.value).splitlines()[1:]
    assert f":{position}: " in problem
    assert "has no value: give it one, or remove it" in problem


EMPTY = [
    *(f"{name}: []" for name in ("error", "warning", "absent")),
    *('error: [""]', 'warning: [""]'),
    *(f"{name}: {{}}" for name in ("outputs", "gates", "hourly_cost", "objects", "properties")),
    *("resources: {}", "replaced_by: {}", "takes: {}"),
    *("properties: {train: {}}", "replaced_by: {train: []}"),
]


@pytest.mark.parametrize("expect", EMPTY)
def test_an_empty_expectation_is_a_problem(write_cases: WriteCases, expect: str) -> None:
    with pytest.raises(FilesError, match=r"at.least") as caught:
        read_cases([write_cases(f"cases:\n  a:\n    expect:\n      {expect}\n")], Path())
    assert "demo.yaml:4:" in str(caught.value)


def test_an_expectation_of_no_change_is_valid(write_cases: WriteCases) -> None:
    expect = "plan: {}, objects: {together/clusters: []}, resources: {train: {}}"
    (case,) = read_cases([write_cases(f"cases: {{a: {{expect: {{{expect}}}}}}}")], Path())
    assert case.expect.plan == {}


def test_values_of_maps_may_be_null(write_cases: WriteCases) -> None:
    (case,) = read_cases(
        [
            write_cases(
                """\
                cases:
                  a:
                    config: {gpus: null}
                    stack_references: {network/prod: {vpc_id: null}}
                    expect:
                      properties: {train: {volume: null}}
                      resources: {train: {volume: null}}
                      outputs: {status: null}
                """
            )
        ],
        Path(),
    )
    assert case.expect.outputs == {"status": None}


@pytest.mark.parametrize(("text", "position", "message"), WRONG)
def test_a_problem_is_reported_at_its_position(
    write_cases: WriteCases, text: str, position: str, message: str
) -> None:
    file = write_cases(text)
    with pytest.raises(FilesError) as caught:
        read_cases([file], Path())
    lines_at_position = [
        line for line in str(caught.value).splitlines() if f":{position}: " in line
    ]
    assert any(message in line for line in lines_at_position), str(caught.value)


def test_the_problems_of_all_files_are_reported_at_once(project: Path) -> None:
    for name in ("one", "two"):
        (project / "tests" / f"{name}.yaml").write_text("cases: 1\n")
    with pytest.raises(FilesError, match=r"(?s)one\.yaml:1:.*two\.yaml:1:"):
        read_cases([project], Path())


def test_a_project_without_tests_says_how_to_write_one(project: Path) -> None:
    with pytest.raises(FilesError, match="has no tests") as caught:
        read_cases([], project)
    assert "gpuform help guides/test-a-stack" in caught.value.hint


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FilesError, match="does not exist"):
        read_cases([tmp_path / "nowhere"], Path())


def test_a_stack_without_settings_is_reported_with_the_known_stacks(
    write_cases: WriteCases, project: Path
) -> None:
    (project / "Pulumi.prod.yaml").write_text("config: {}\n")
    (project / "Pulumi.dev.yaml").write_text("config: {}\n")
    of_case = "cases:\n  a: {stack: nope}\n  b: {stack: prod}\n"
    of_all = "defaults: {stack: nope}\ncases: {a: {}, b: {}, c: {stack: dev}}\n"
    for content, position in ((of_case, "2:14"), (of_all, "1:19")):
        with pytest.raises(FilesError) as caught:
            read_cases([write_cases(content)], Path())
        (problem,) = str(caught.value).splitlines()[1:]
        assert (
            f":{position}: Pulumi.nope.yaml not found; stacks with settings: dev, prod" in problem
        )


def test_files_with_the_same_case_names_are_refused(write_cases: WriteCases, project: Path) -> None:
    file = write_cases("cases: {a: {}}")
    other = file.with_suffix(".yml")
    other.write_text(file.read_text())
    for paths in ([project], [other, file]):
        with pytest.raises(
            FilesError, match=r"demo\.ya?ml and demo\.ya?ml give their cases the same names"
        ):
            read_cases(paths, Path())
    file.unlink()
    assert len(read_cases([project], Path())) == 1


def test_a_file_that_is_named_twice_is_read_once(write_cases: WriteCases, project: Path) -> None:
    file = write_cases("cases: {a: {}}")
    (project.parent / "link").symlink_to(project)
    paths = [project, file, project.parent / "link", project / "tests" / ".." / "tests" / file.name]
    assert len(read_cases(paths, Path())) == 1


CHAINED = """\
    defaults:
      config: {gpus: 8}
    cases:
      leaf: {start: {case: middle}}
      alone: {config: {spare: true}}
      middle: {start: {case: root}}
      root: {}
      other: {start: {case: root}, config: {gpus: 24}}
"""


def test_a_case_comes_after_the_one_that_it_starts_from(write_cases: WriteCases) -> None:
    chains = build_chains(read_cases([write_cases(CHAINED)], Path()))
    assert [[case.name for case in chain] for chain in chains] == [
        ["root", "middle", "other", "leaf"],
        ["alone"],
    ]


def test_a_case_inherits_the_defaults_of_its_file(write_cases: WriteCases) -> None:
    configs = {c.name: c.inputs.config for c in read_cases([write_cases(CHAINED)], Path())}
    assert configs["alone"] == {"gpus": 8, "spare": True}
    assert configs["other"] == {"gpus": 24}


def test_a_selected_case_brings_the_cases_that_it_starts_from(write_cases: WriteCases) -> None:
    cases = read_cases([write_cases(CHAINED)], Path())
    assert [case.name for case in select_cases(cases, ["demo/leaf"])] == ["leaf", "middle", "root"]
    assert select_cases(cases, []) == cases
    with pytest.raises(FilesError, match="no case matches 'leav'"):
        select_cases(cases, ["leav"])
    with pytest.raises(FilesError, match="the filter is empty"):
        select_cases(cases, [""])
