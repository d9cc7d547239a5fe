"""What the protocol's messages weigh, measured on the messages themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfumato.divergence.messages import Trust
from sfumato.divergence.payload import weigh
from sfumato.rng import Streams
from tests.sfumato.divergence.examples import SETTING, pair


@pytest.mark.parametrize("trust", ["trusted_aggregator", "distributed"])
def test_counts_weigh_less_than_a_kilobyte_and_keys_and_shares_more(trust: Trust) -> None:
    found = weigh(trust, pair(), replace(SETTING, points=10), 2.0, Streams(0), 20)
    assert found.clients == 20
    assert found.counts_message < 1024
    assert found.sent > found.counts_message
    assert found.received > found.counts_message


def test_no_more_clients_take_part_than_there_are() -> None:
    assert weigh("trusted_aggregator", pair(clients=12), SETTING, 2.0, Streams(0), 50).clients == 12
