"""Provide a service that receives notifications."""

from collections.abc import Iterator

import pytest
from support.servers.webhook import Webhook, receive_notifications


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    with receive_notifications() as service:
        yield service
