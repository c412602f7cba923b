"""What a provider can be configured with: each platform's settings, in the plugin's own names.

As the stack's configuration (`gpuform:togetherApiKey`) they are the default provider's, as inputs
(`togetherApiKey`) an explicit provider's. Names are for ever: state files hold them.
"""

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its name here, and where the dynamic form has it."""

    config: str
    """Its key in the stack's configuration, as `together:apiKey`."""
    variable: str
    """The environment variable that has it; empty when none does."""
    description: str
    secret: bool = False

    @property
    def name(self) -> str:
        """`togetherApiKey`."""
        platform, _, key = self.config.partition(":")
        return f"{platform}{key[:1].upper()}{key[1:]}"

    @property
    def argument(self) -> str:
        """`together_api_key`, as Python's SDKs have it."""
        return re.sub("[A-Z]", lambda upper: f"_{upper[0].lower()}", self.name)


SETTINGS: Final = (
    Setting("together:apiKey", "TOGETHER_API_KEY", "API key of Together.", secret=True),
    Setting(
        "scp:accessKey", "SCP_TF_ACCESS_KEY", "Access key of Samsung Cloud Platform.", secret=True
    ),
    Setting("scp:secretKey", "SCP_TF_SECRET_KEY", "Secret key of the access key.", secret=True),
    Setting("scp:authToken", "SCP_TF_AUTH_TOKEN", "Token that goes with the keys.", secret=True),
    Setting("scp:accountId", "SCP_TF_ACCOUNT_ID", "Account that requests are made for."),
    Setting("scp:defaultRegion", "SCP_TF_DEFAULT_REGION", "Region where a resource names none."),
    Setting("scp:environment", "", "Environment that the region's address belongs to."),
    Setting("tensorone:apiKey", "TENSORONE_API_KEY", "API key of TensorOne.", secret=True),
    Setting("aios:registryUrl", "AIOS_REGISTRY_URL", "Address of the clusters registry."),
    Setting("aios:parserUrl", "AIOS_PARSER_URL", "Address of the registry's parser."),
    Setting("lens:url", "LENS_URL", "Address of Lens."),
    Setting("lens:token", "LENS_TOKEN", "Token of Lens, where it wants one.", secret=True),
)
