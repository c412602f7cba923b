"""The mutants and files that the YAML files beside this module name exist in today's source."""

from pathlib import Path
from typing import Final

import pytest
import yaml
from mutation.mutants import ROOT, list_mutants

_FOLDER: Final = Path(__file__).parent
_EQUIVALENT: Final = yaml.safe_load((_FOLDER / "equivalent.yaml").read_text())
_TARGETS: Final = yaml.safe_load((_FOLDER / "targets.yaml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", _EQUIVALENT)
def test_every_mutant_that_is_called_equivalent_exists(path: str) -> None:
    quoted = {name for group in _EQUIVALENT[path] for name in group["mutants"]}

    names = {mutant.name for mutant in list_mutants(path)}

    assert quoted - names == set()


@pytest.mark.parametrize("target", _TARGETS)
def test_every_source_and_test_of_a_target_exists(target: str) -> None:
    named = [*_TARGETS[target]["sources"], *_TARGETS[target]["tests"]]

    missing = [path for path in named if not (ROOT / path).exists()]

    assert missing == []
