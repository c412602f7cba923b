"""The mutants and files that the YAML files beside this module name exist in today's source."""

from pathlib import Path
from typing import Final

import pytest
import yaml

_FOLDER: Final = Path(__file__).parent
_ROOT: Final = _FOLDER.parents[1]
_EQUIVALENT: Final = yaml.safe_load((_FOLDER / "equivalent.yaml").read_text())
_TARGETS: Final = yaml.safe_load((_FOLDER / "targets.yaml").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("path", _EQUIVALENT)
def test_every_mutant_that_is_called_equivalent_exists(path: str) -> None:
    # Every process of the fast tests imports this module, and mutmut takes half a second.
    from mutation.mutants import list_mutants

    quoted = {name for group in _EQUIVALENT[path] for name in group["mutants"]}

    names = {mutant.name for mutant in list_mutants(path)}

    assert quoted - names == set()


@pytest.mark.parametrize("target", _TARGETS)
def test_every_source_and_test_of_a_target_exists(target: str) -> None:
    named = [*_TARGETS[target]["sources"], *_TARGETS[target]["tests"]]

    missing = [path for path in named if not (_ROOT / path).exists()]

    assert missing == []
