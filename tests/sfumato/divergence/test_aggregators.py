"""The party in the middle: whom it admits, what it refuses, and when it says nothing."""

from __future__ import annotations

import re

import numpy as np
import pytest

from sfumato.divergence.aggregators import CountsAggregator, TrustedAggregator
from sfumato.divergence.messages import Admission, Enrolment, NoisyCounts
from sfumato.divergence.protocol import PopulationClient
from sfumato.divergence.reference import all_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams
from tests.sfumato.divergence.parties import ENTROPY, REFERENCE, Parties, parties


def finish(made: Parties) -> bytes:
    """Run all rounds of those who enrolled, and end."""
    clients = {client.identity: client for client in made.clients}
    middle = made.aggregator
    for identity, (admission, invitation) in middle.close_enrolment().items():
        middle.receive(identity, clients[identity].join(admission, invitation))
    for close, answer in (
        (middle.close_keys, PopulationClient.share_keys),
        (middle.close_shares, PopulationClient.mask),
        (middle.close_masked, PopulationClient.unmask),
    ):
        for identity, message in close().items():
            middle.receive(identity, answer(clients[identity], message))
    return middle.finish()


def test_identities_may_be_any_and_come_in_any_order() -> None:
    made = parties()
    codes = [np.array([one % 7] * 20, np.uint8) for one in range(4)]
    made.clients = [
        PopulationClient(identity, own, REFERENCE, ENTROPY, Streams(0).stream("unused"))
        for identity, own in zip((900, 3, 2**31 - 1, 70), codes, strict=True)
    ]
    for client in made.clients:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    assert len(finish(made)) == 39
    assert made.aggregator.survivors == (3, 70, 900, 2**31 - 1)


def test_forged_and_second_enrolments_are_refused_and_change_nothing() -> None:
    made = parties()
    announcement = made.server.announcement()
    messages = {client.identity: client.enrol(announcement) for client in made.clients}
    made.aggregator.receive(0, messages[0])
    with pytest.raises(SfumatoError, match="client 0 enrolled twice"):
        made.aggregator.receive(0, messages[0])
    with pytest.raises(SfumatoError, match="in the name of client 1 came from 5"):
        made.aggregator.receive(5, messages[1])
    with pytest.raises(SfumatoError, match="another session"):
        made.aggregator.receive(1, Enrolment(bytes(16), 1, 10).encode())
    with pytest.raises(SfumatoError, match="allowed"):
        made.aggregator.receive(1, b"nothing of the kind")
    for identity in range(1, 10):
        made.aggregator.receive(identity, messages[identity])
    assert len(made.aggregator.close_enrolment()) == 10


def test_messages_of_the_rounds_come_from_who_was_admitted_and_once() -> None:
    made = parties()
    for client in made.clients[:6]:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    late = made.clients[6].enrol(made.server.announcement())
    admitted = made.aggregator.close_enrolment()
    with pytest.raises(SfumatoError, match="client 6 is not enrolled"):
        made.aggregator.receive(6, late)
    keys = {i: made.clients[i].join(*parts) for i, parts in admitted.items()}
    made.aggregator.receive(0, keys[0])
    for sender, message, said in (
        (0, keys[0], "twice"),
        (1, keys[2], "in the name of"),
        (1, late, "allowed"),
    ):
        with pytest.raises(SfumatoError, match=said):
            made.aggregator.receive(sender, message)
    with pytest.raises(SfumatoError, match="the enrolment is over"):
        made.aggregator.close_enrolment()


@pytest.mark.parametrize("enrolled", [0, 1])
def test_a_sum_of_fewer_than_two_is_refused(enrolled: int) -> None:
    made = parties()
    for client in made.clients[:enrolled]:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    with pytest.raises(SfumatoError, match=rf"^{enrolled} clients? enrolled; allowed are at least 2"):
        made.aggregator.close_enrolment()


def test_rounds_before_the_end_of_the_enrolment_are_refused() -> None:
    with pytest.raises(SfumatoError, match="the enrolment is not over"):
        parties().aggregator.close_keys()


def test_a_client_that_declares_fewer_examples_than_it_counts_stops_the_release() -> None:
    made = parties(sizes=(400, 40, 40, 40, 40, 40))
    for client in made.clients:
        message = client.enrol(made.server.announcement())
        if client.identity == 0:
            message = Enrolment(Enrolment.decode(message).session, 0, 1).encode()
        made.aggregator.receive(client.identity, message)
    with pytest.raises(SfumatoError, match="counts are no counts of 201 examples") as caught:
        finish(made)
    assert re.findall(r"\d+", str(caught.value).replace("201", "")) == ["0"]


def test_one_client_is_no_plural() -> None:
    made = parties()
    made.aggregator.receive(0, made.clients[0].enrol(made.server.announcement()))
    with pytest.raises(SfumatoError, match=r"^1 client enrolled"):
        made.aggregator.close_enrolment()


@pytest.mark.parametrize("declared", [41, 10**6])
def test_a_client_that_declares_more_than_it_holds_lowers_nobodys_noise_where_every_cell_is_counted(
    declared: int,
) -> None:
    made = parties(sizes=(40,) * 6, points=all_points(REFERENCE))
    for client in made.clients:
        message = client.enrol(made.server.announcement())
        if client.identity == 0:
            message = Enrolment(Enrolment.decode(message).session, 0, declared).encode()
        made.aggregator.receive(client.identity, message)
    with pytest.raises(SfumatoError, match=f"counts are no counts of {200 + declared} examples"):
        finish(made)


def test_honest_declarations_are_released_where_every_cell_is_counted() -> None:
    made = parties(sizes=(40,) * 6, points=all_points(REFERENCE))
    for client in made.clients:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    assert len(finish(made)) == 39


def test_a_declaration_above_the_public_cap_is_refused_and_changes_nothing() -> None:
    made = parties(sizes=(40,) * 6)
    announcement = made.server.announcement()
    middle = TrustedAggregator(announcement, REFERENCE, ENTROPY, Streams(0).stream("noise"), most_examples=40)
    sent = made.clients[0].enrol(announcement)
    with pytest.raises(SfumatoError, match="client 0 declares 41 examples; allowed are at most 40"):
        middle.receive(0, Enrolment(Enrolment.decode(sent).session, 0, 41).encode())
    middle.receive(0, sent)
    with pytest.raises(SfumatoError, match="most_examples is 0"):
        CountsAggregator(parties("distributed").server.announcement(), REFERENCE, ENTROPY, most_examples=0)


@pytest.mark.parametrize("sender", [[1], {}, None, "0", 0.0, True])
def test_a_sender_that_is_no_identity_is_refused_at_every_round(sender: object) -> None:
    made = parties(sizes=(40,) * 6)
    messages = [client.enrol(made.server.announcement()) for client in made.clients]
    with pytest.raises(SfumatoError, match="allowed"):
        made.aggregator.receive(sender, messages[0])  # type: ignore[arg-type]
    for identity, message in enumerate(messages):
        made.aggregator.receive(identity, message)
    made.aggregator.close_enrolment()
    with pytest.raises(SfumatoError, match="is not enrolled"):
        made.aggregator.receive(sender, b"")  # type: ignore[arg-type]


def test_each_aggregator_takes_its_own_trust_model_only() -> None:
    trusted, distributed = parties("trusted_aggregator").server, parties("distributed").server
    with pytest.raises(SfumatoError, match="the announced trust model is 'distributed'"):
        TrustedAggregator(distributed.announcement(), REFERENCE, ENTROPY, Streams(0).stream("noise"))
    with pytest.raises(SfumatoError, match="the announced trust model is 'trusted_aggregator'"):
        CountsAggregator(trusted.announcement(), REFERENCE, ENTROPY)


def test_the_modulus_grows_with_what_has_to_fit() -> None:
    made = parties("distributed")
    session = Enrolment.decode(made.clients[0].enrol(made.server.announcement())).session
    for identity in range(6):
        made.aggregator.receive(identity, Enrolment(session, identity, 2**40).encode())
    admission, _ = made.aggregator.close_enrolment()[0]
    assert Admission.decode(admission).modulus_bits == 44


def test_noisy_counts_say_how_many_were_promised() -> None:
    made = parties("distributed")
    for client in made.clients:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    sent = NoisyCounts.decode(finish(made))
    assert (sent.clients, sent.required, sent.survivors, sent.examples) == (10, 8, 10, 500)
