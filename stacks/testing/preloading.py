"""What every case needs, imported once: the processes that play cases are forked from here.

It is the platforms' lifecycles and emulators, what declares a topology, HTTP, and the key of the
cases' secrets.
"""

import gc
import importlib

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import list_own_platforms, load_object
from gpuform.stacks.engine.secrets import PassphraseCrypter
from gpuform.stacks.testing.playing import SALT

_NEEDED = (
    *("gpuform.stacks.program", "gpuform.stacks.topology.registering", "gpuform.providers.http"),
    *("cryptography.hazmat.primitives.ciphers.aead", "flask.testing", "httpcore", "tenacity"),
    "httpx",
)

for _name in _NEEDED:
    importlib.import_module(_name)
PassphraseCrypter("", SALT).check()
for _platform in list_own_platforms().values():
    for _path in _platform.lifecycles.values():
        load_object(_path)
with Store(None) as _store:
    create_app(_store, Clock(_store))
# What is here now lives for good: no process shall look through it for garbage.
gc.freeze()
