"""Results as JUnit XML, which CI systems show: a suite for each test file."""

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence
from itertools import groupby

from gpuform.stacks.testing.running import Result, Status


def junit_text(results: Sequence[Result]) -> str:
    """The whole document."""
    root = ET.Element("testsuites", {"name": "gpuform test", **_counts(results)})
    for file, of_file in groupby(results, key=lambda each: each.case.file):
        group = list(of_file)
        suite = _element(root, "testsuite", name=str(file), **_counts(group))
        for result in group:
            _add(suite, result)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, result: Result) -> None:
    case = result.case
    place = case.place()
    entry = _element(
        suite,
        "testcase",
        name=case.name,
        classname=f"{case.project.name}.{case.file.stem}",
        file=place.file,
        line=str(place.line),
        time=f"{result.seconds:.3f}",
    )
    if result.status is Status.SKIPPED:
        _element(entry, "skipped", message=f"{case.first} did not pass")
    elif result.status is Status.BROKEN:
        _element(entry, "error", result.told, message="gpuform could not play it")
    elif result.findings:
        texts = [str(finding) for finding in result.findings]
        first, *_ = texts[0].splitlines()
        _element(entry, "failure", "\n".join(texts), message=first)


def _element(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    """Every text of it as XML can have it: names of files may be anything."""
    shown = {name: _xml(value) for name, value in attributes.items()}
    element = ET.SubElement(parent, tag, shown)
    element.text = _xml(text) or None
    return element


def _counts(results: Iterable[Result]) -> dict[str, str]:
    results = list(results)
    count = {status: sum(each.status is status for each in results) for status in Status}
    return {
        "tests": str(len(results)),
        "failures": str(count[Status.FAILED]),
        "errors": str(count[Status.BROKEN]),
        "skipped": str(count[Status.SKIPPED]),
        "time": f"{sum(each.seconds for each in results):.3f}",
    }


def _xml(text: str) -> str:
    """The text without the characters that XML does not have."""
    return (
        "".join(
            each
            if each in "\t\n" or (each >= " " and not "\ud800" <= each <= "\udfff")
            else "\ufffd"
            for each in text
        )
        .replace("\ufffe", "\ufffd")
        .replace("\uffff", "\ufffd")
    )
