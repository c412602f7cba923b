"""Which passphrase secrets a stack has, by its settings and by its state."""

from collections.abc import Callable

from gpuform.stacks.engine.secrets import PASSPHRASE_PROVIDER, PassphraseCrypter, crypter_for
from gpuform.stacks.engine.stack_settings import StackSettings
from gpuform.stacks.engine.state import SecretsProvider


def crypter_of(
    settings: StackSettings, stored: SecretsProvider | None, passphrase: Callable[[], str]
) -> PassphraseCrypter:
    """The crypter that the settings name, else the state's, else a new one.

    A stack file without the salt (it may not be committed) gets it back for the Pulumi CLI.
    Raises SecretsError for other providers.
    """
    if settings.secrets_provider not in ("", PASSPHRASE_PROVIDER):
        return crypter_for(SecretsProvider(settings.secrets_provider), passphrase)
    if settings.encryption_salt:
        return PassphraseCrypter(passphrase(), settings.encryption_salt)
    if stored is not None:
        crypter = crypter_for(stored, passphrase)
    else:
        crypter = PassphraseCrypter.new(passphrase())
    settings.set_encryption_salt(crypter.salt_state)
    settings.save()
    return crypter


def reader_of(
    stored: SecretsProvider | None, crypter: PassphraseCrypter, passphrase: Callable[[], str]
) -> PassphraseCrypter:
    """What reads the secrets of a state, which may be encrypted otherwise than the settings."""
    if stored is None or stored == crypter.provider:
        return crypter
    return crypter_for(stored, passphrase)
