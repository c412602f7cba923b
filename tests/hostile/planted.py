"""Define secrets that must be in no file and in no output of a command."""

CONFIG_SECRET = "Planted7!Config"
OTHER_SECRET = "Another7!One"
PLATFORM_SECRET = "planted-7d21-kubeconfig-token"
OUR_KEY = "planted-key-of-ours"
OUR_SECRET_KEY = "planted-secret-key-of-ours"
COLLEAGUES_KEY = "key-of-the-colleague"
KUBECONFIG = f"apiVersion: v1\nkind: Config\nusers: [{{token: {PLATFORM_SECRET}}}]\n"
ALL = (CONFIG_SECRET, PLATFORM_SECRET, OUR_KEY, OUR_SECRET_KEY, KUBECONFIG)
