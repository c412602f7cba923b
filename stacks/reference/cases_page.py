"""The page of test files, from their model."""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.cases_file import CasesInputs
from gpuform.stacks.reference.markdown import page
from gpuform.stacks.reference.tables import file_tables

CASES: Final = """\
defaults:
  config: {gpus: 16}

cases:
  comes_up:
    expect:
      plan: {train: create, data: create}
      outputs: {status: Ready}
      takes: {at_most: 45m}

  degrades:
    start: {case: comes_up}
    config: {gpus: 24}
    events:
      - {at: 5m, status: {object: training, status: Degraded}}
    expect:
      plan: {train: update}
      error: [Degraded]
"""
_LEAD: Final = """\
This page has every field of the files in a project's `tests` folder, which `gpuform test` plays.
"""
_ABOUT: Final = """\
A file has cases, and a case is one run of the stack. `gpuform schema --of tests` prints the JSON
Schema for editors. The guide [Test a stack](../guides/test-a-stack.md) has the whole way.
"""
_RULES: Final = """\
## Rules

* A case is played on an emulator and a state of its own. The platform's clock begins at
  2026-01-01T00:00:00Z, and waiting moves it.
* `plan` is strict: a resource that it does not name has to stay the same. All else that `expect`
  does not name is not looked at.
* Of an object that is expected as a value only the keys that are named are compared.
* A resource is named as in the plan, or as SECTION.NAME: `train`, `clusters.train`. An object of a
  platform is named as it is called there, or as PLATFORM.KIND.NAME.
* An event that has not happened when the run ends fails the case: it tests nothing.
* A case that starts from another one begins with its state, its objects and its clock, and not
  with its configuration. It is skipped where that one does not pass.
* Nothing of the environment reaches a case that names a platform, a key, or a backend.
* A case reaches its emulator alone. It asks no real scheduler, whatever it allows; it connects to
  no other address, looks up no name and starts no program. What tries to fails.
"""


def cases_page() -> str:
    """The whole page."""
    return page("Tests", _LEAD, _parts())


def _parts() -> Iterator[str]:
    yield _ABOUT
    yield f"```yaml\n{CASES}```"
    yield _RULES
    yield "## Fields"
    yield file_tables(CasesInputs, "tests")
