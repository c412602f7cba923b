"""Where the gpuform that runs was installed from: what pip is told for another place, or extra."""

import importlib.metadata
import json
from urllib.parse import unquote, urlsplit


def requirement(extra: str = "") -> str:
    """What installs it: a folder, a file or an address, as pip was told; the name by an index.

    The name alone may be somebody else's where no index is known to have it.
    """
    extras = f"[{extra}]" if extra else ""
    told = importlib.metadata.distribution("gpuform").read_text("direct_url.json")
    url = str(json.loads(told)["url"]) if told else ""
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}{extras}"
    return f"gpuform{extras} @ {url}" if url else f"gpuform{extras}"
