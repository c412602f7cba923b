"""Writes docs/reference/pulumi-cli.md from a run against the Pulumi CLI.

pytest -m real_pulumi tests/real_pulumi --junitxml=run.xml
python tests/real_pulumi/table.py run.xml
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "reference" / "pulumi-cli.md"

SECTIONS = {
    "test_programs": ("Step rules", "each, from the same state"),
    "test_random_programs": ("Random programs", "each, from the same state"),
    "test_examples": ("Examples", "pulumi"),
    "test_reviews": ("Reviews of the CLI's output", "pulumi"),
    "test_in_turn": ("One stack in turn", "both, in turn"),
    "test_overtaken": ("Killed and interrupted runs, continued by the other tool", "both, in turn"),
    "test_workspace": ("The selected stack", "both, in turn"),
    "test_messages": ("The output of `pulumi up`", "pulumi"),
    "test_other_runtimes": ("Projects in another language", "both, in turn"),
    "test_others_in_records": ("Nodes of others in AIOS records", "pulumi"),
    "test_plugin_killed": ("Killed and interrupted creates", "both, in turn"),
    "test_several_stacks": ("Several stacks", "both, in turn"),
    "test_repairs": ("Repairs of nodes", "pulumi"),
    "test_certifications": ("Certifications", "pulumi"),
    "test_plugin_import": ("Imports through the plugin", "pulumi"),
    "test_policy_packs": ("Policy packs", "pulumi"),
    "test_sdks": ("SDKs of the package schema", "pulumi"),
}
"""The modules in their order on the page: title, and which engine plays."""


Case = tuple[str, str]
"""The module and the name of a test."""


def build_page(runs: Sequence[Path]) -> str:
    """Return the page for these runs; a later run replaces an earlier one."""
    results = dict.fromkeys(collect_cases(), "not run")
    played: dict[Case, tuple[str, str, str]] = {}
    for run in runs:
        for suite in ET.parse(run).getroot().iter("testsuite"):
            for test in suite.iter("testcase"):
                module = test.attrib["classname"].split("real_pulumi.")[1].split(".")[0]
                case = (module, test.attrib["name"])
                if case in results:
                    results[case] = _format_result(test)
                    played[case] = (suite.attrib["timestamp"][:10], *_get_versions(test))
    return "\n".join(_render_lines(results, played))


def _get_versions(test: ET.Element) -> tuple[str, str]:
    """Return which CLI and which SDK a test was played with, as the folder's conftest.py kept."""
    properties = {
        property_.attrib["name"]: property_.attrib["value"] for property_ in test.iter("property")
    }
    return properties["pulumi_cli"], properties["pulumi_sdk"]


def collect_cases() -> list[Case]:
    """Return the module and the name of each test."""
    argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", "real_pulumi"]
    done = subprocess.run([*argv, str(HERE)], cwd=ROOT, capture_output=True, text=True, check=True)
    cases = re.findall(r"/(\w+)\.py::(.*)", done.stdout)
    return [(module, name) for module, name in cases]


def format_row(module: str, name: str) -> str:
    """Return scenario and engine in the form of the page."""
    return f"| {format_scenario(name)} | {SECTIONS[module][1]} |"


def _render_lines(
    results: Mapping[Case, str], played: Mapping[Case, tuple[str, str, str]]
) -> Iterator[str]:
    dates, clis, sdks = (sorted(set(values)) for values in zip(*played.values(), strict=True))
    yield "# Beside the Pulumi CLI"
    yield ""
    yield "<!-- Generated: python tests/real_pulumi/table.py RUN ... -->"
    yield ""
    yield ("This page compares gpuform and the Pulumi CLI, scenario by scenario.")
    yield ""
    yield (
        f"The suite `tests/real_pulumi` was last run on {' and '.join(dates)} with "
        f"Pulumi CLI {' and '.join(clis)} and "
        f"its Python SDK {' and '.join(sdks)}. "
        "To run it, use `python -m pytest -m real_pulumi tests/real_pulumi`. "
        "The suite needs a Pulumi CLI on PATH. Without one, first run `python "
        "tests/processes/pinned_pulumi.py`, which builds the version in "
        "`tests/real_pulumi/go.mod`. "
        "If both engines start from the same state, the suite compares exit code, steps, the "
        "provider's calls and the state after each command. [Move between gpuform and "
        "pulumi](../guides/pulumi.md) explains what this means for you."
    )
    for title_of, (title, _) in SECTIONS.items():
        yield from ("", f"## {title}", "", "| Scenario | Engine | Result |", "|---|---|---|")
        yield from sorted(
            f"{format_row(module, name)} {result} |"
            for (module, name), result in results.items()
            if module == title_of
        )
    yield ""


def format_scenario(name: str) -> str:
    test, _, parameters = name.partition("[")
    words = test.removeprefix("test_").replace("_", " ")
    return f"{words}: `{parameters.removesuffix(']')}`" if parameters else words


def _format_result(case: ET.Element) -> str:
    if (skipped := case.find("skipped")) is not None:
        return f"skipped: {skipped.attrib['message']}"
    return "fails" if {element.tag for element in case} & {"failure", "error"} else "passes"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(build_page([Path(argument) for argument in sys.argv[1:]]))
