"""Test a platform's setting in a stack's configuration: under its own name, or the plugin's."""

import pytest

from gpuform.providers.operations import Settings
from gpuform.providers.platform import build_plugin_key, list_settings

OWN, PLUGINS = "together:apiKey", "gpuform:togetherApiKey"
VARIABLE = "TOGETHER_API_KEY"


@pytest.mark.parametrize(
    ("config", "environ", "provider_settings", "expected"),
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
def test_a_setting_is_read_under_the_platforms_or_the_plugins_key(
    config: dict[str, str],
    environ: dict[str, str],
    provider_settings: dict[str, str],
    expected: str | None,
) -> None:
    assert (
        Settings(config.get, environ, given=provider_settings).get_value(VARIABLE, OWN) == expected
    )


def test_plugin_keys_and_setting_names_are_unique() -> None:
    assert build_plugin_key(OWN) == PLUGINS
    assert len({setting.name for setting in list_settings()}) == len(list_settings())
    assert {setting.argument for setting in list_settings()} >= {
        "together_api_key",
        "scp_default_region",
    }
