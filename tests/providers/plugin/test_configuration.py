"""A platform's setting in a stack's configuration: under its own name, or under the plugin's."""

import pytest

from gpuform.providers.operations import Settings
from gpuform.providers.platform import all_settings, plugin_key

OWN, PLUGINS = "together:apiKey", "gpuform:togetherApiKey"
VARIABLE = "TOGETHER_API_KEY"


@pytest.mark.parametrize(
    ("config", "environ", "given", "found"),
    [
        ({}, {}, {}, None),
        ({OWN: "own"}, {}, {}, "own"),
        ({PLUGINS: "plugin's"}, {}, {}, "plugin's"),
        ({OWN: "own", PLUGINS: "plugin's"}, {}, {}, "own"),
        ({OWN: "", PLUGINS: "plugin's"}, {}, {}, "plugin's"),
        ({PLUGINS: "plugin's"}, {VARIABLE: "environment's"}, {}, "environment's"),
        ({PLUGINS: "plugin's"}, {VARIABLE: "environment's"}, {OWN: "given"}, "given"),
    ],
)
def test_either_name_will_do(
    config: dict[str, str], environ: dict[str, str], given: dict[str, str], found: str | None
) -> None:
    assert Settings(config.get, environ, given=given).value(VARIABLE, OWN) == found


def test_names() -> None:
    assert plugin_key(OWN) == PLUGINS
    assert len({each.name for each in all_settings()}) == len(all_settings())
    assert {each.argument for each in all_settings()} >= {"together_api_key", "scp_default_region"}
