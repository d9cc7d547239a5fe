"""The whole protocol: what the server learns is what the paper says, whoever falls silent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sfumato.divergence.counting import Counts, count_points
from sfumato.divergence.distributed import DistributedEstimate, count_noise, draw_noise, estimate
from sfumato.divergence.estimator import Estimate, release
from sfumato.divergence.intervals import Tail
from sfumato.divergence.messages import Admission, Announcement, Enrolment, NoisyCounts, Result, Trust
from sfumato.divergence.plan import EstimatorPlan, Floor
from sfumato.divergence.protocol import (
    CountsAggregator,
    Limits,
    PopulationClient,
    PopulationServer,
    TrustedAggregator,
    run_protocol,
)
from sfumato.divergence.reference import PublicPoints, Reference, all_points, draw_points
from sfumato.errors import SfumatoError
from sfumato.rng import Streams, SystemStream
from sfumato.secure_aggregation import AggregationAbortedError
from tests.sfumato.divergence.parties import (
    ENTROPY,
    PLAN,
    POINTS,
    REFERENCE,
    STREAMS,
    Parties,
    parties,
    population,
)

SILENT = st.dictionaries(st.integers(0, 9), st.integers(0, 3), max_size=2)


def counts_of(made: Parties, survivors: tuple[int, ...], points: PublicPoints = POINTS) -> Counts:
    """The exact sum of the survivors' counts."""
    return count_points(np.concatenate([made.codes[one] for one in survivors]), REFERENCE, points)


@given(silent=SILENT)
@settings(deadline=None, max_examples=8)
def test_the_server_learns_the_release_over_the_survivors(silent: dict[int, int]) -> None:
    made = parties()
    done = run_protocol(made.server, made.clients, made.aggregator, silent)
    assert done.survivors == tuple(one for one in range(10) if silent.get(one, 3) == 3)
    examples = sum(len(made.codes[one]) for one in done.survivors)
    wanted = release(
        counts_of(made, done.survivors),
        examples,
        POINTS,
        REFERENCE,
        PLAN,
        1.0,
        1e-5,
        STREAMS.stream("noise", "aggregator"),
    )
    assert isinstance(done.estimate, Estimate)
    for name, value in vars(wanted).items():
        if name != "sensitivity":
            assert getattr(done.estimate, name) == value, name
    assert done.result_bytes == 39


@given(silent=SILENT)
@settings(deadline=None, max_examples=8)
def test_without_trust_the_server_learns_the_sum_of_counts_and_all_noise(silent: dict[int, int]) -> None:
    made = parties("distributed")
    done = run_protocol(made.server, made.clients, made.aggregator, silent)
    # Of ten clients one may be corrupted and two may fall silent, so seven shares are counted on.
    noise = count_noise(1.0, 1e-5, 7)
    shares = [draw_noise(noise.sigma, POINTS.count, STREAMS.stream("noise", one)) for one in done.survivors]
    examples = sum(len(made.codes[one]) for one in done.survivors)
    noisy = counts_of(made, done.survivors) + sum(shares)
    wanted = estimate(noisy, examples, len(shares), noise, POINTS, REFERENCE, PLAN, 1e-5)
    assert done.estimate == wanted
    assert isinstance(done.estimate, DistributedEstimate)
    assert done.estimate.epsilon <= 1.0


@pytest.mark.parametrize("trust", ["trusted_aggregator", "distributed"])
@pytest.mark.parametrize("stage", [0, 1, 2])
def test_too_many_silent_clients_end_it_without_a_release(trust: Trust, stage: int) -> None:
    made = parties(trust)
    with pytest.raises(AggregationAbortedError):
        run_protocol(made.server, made.clients, made.aggregator, {0: stage, 4: stage, 7: stage})
    with pytest.raises(SfumatoError):
        made.aggregator.finish()
    assert made.aggregator.survivors == ()


@pytest.mark.parametrize("trust", ["trusted_aggregator", "distributed"])
def test_all_cells_can_be_points_and_the_systems_entropy_the_source(trust: Trust) -> None:
    every, codes, stream = all_points(REFERENCE), population((200,) * 6), SystemStream()
    server = PopulationServer(REFERENCE, every, PLAN, 50.0, 1e-5, ENTROPY, trust)
    clients = [
        PopulationClient(one, own, REFERENCE, ENTROPY, stream, limits=Limits(epsilon=50.0))
        for one, own in enumerate(codes)
    ]
    announcement = server.announcement()
    middle = (
        TrustedAggregator(announcement, REFERENCE, ENTROPY, stream)
        if trust == "trusted_aggregator"
        else CountsAggregator(announcement, REFERENCE, ENTROPY)
    )
    found = run_protocol(server, clients, middle).estimate
    counts = count_points(np.concatenate(codes), REFERENCE, every)
    exact = float(every.weights @ PLAN.values(counts / (1200 * REFERENCE.probabilities)))
    # epsilon is large, so the noise is small: ten standard deviations of it are below 0.1.
    assert abs(found.raw - exact) < 0.1
    assert found.sampling == "none"


def test_the_message_with_the_counts_stays_below_a_kilobyte_at_two_to_the_sixteen() -> None:
    reference = Reference.from_probabilities(np.full(2**16, 2.0**-16))
    points = draw_points(reference, 10, Streams(0).stream("points"))
    codes = np.random.default_rng(0).integers(0, 2**16, (30, 10)).astype(np.uint16)
    server = PopulationServer(reference, points, PLAN, 1.0, 1e-5, ENTROPY)
    clients = [
        PopulationClient(one, own, reference, ENTROPY, STREAMS.stream("unused"))
        for one, own in enumerate(codes)
    ]
    middle = TrustedAggregator(server.announcement(), reference, ENTROPY, STREAMS.stream("noise"))
    traffic = run_protocol(server, clients, middle).traffic
    assert traffic.masked_input == 22 + 4 * points.count
    assert traffic.downloaded["announcement"].tolist() == [112 + 8 * points.count] * 30
    # Keys and shares weigh more than the counts, and are part of what a client sends.
    assert 1024 < traffic.largest_client < 30_000
    assert set(traffic.uploaded) == {"enrolment", "keys", "shares", "masked input", "opened shares"}


def test_an_empty_client_and_samples_out_of_the_domain_are_refused_without_naming_any() -> None:
    for codes, said in (
        (np.array([], np.uint8), "samples are none"),
        (np.array([1, 77], np.int64), "outside of the public domain"),
        (np.array([1, -77], np.int64), "outside of the public domain"),
        (np.array([0.5, 77.0]), "samples are float64"),
    ):
        with pytest.raises(SfumatoError, match=said) as caught:
            PopulationClient(0, codes, REFERENCE, ENTROPY, STREAMS.stream("noise"))
        assert "77" not in str(caught.value)


@pytest.mark.parametrize("identity", [-1, 2**31, 1.0, True, None])
def test_what_is_no_identity_is_refused(identity: int) -> None:
    with pytest.raises(SfumatoError, match="identity is"):
        PopulationClient(identity, np.array([1]), REFERENCE, ENTROPY, STREAMS.stream("noise"))


def test_two_clients_of_one_identity_are_refused() -> None:
    made = parties()
    twin = PopulationClient(3, np.array([1]), REFERENCE, ENTROPY, STREAMS.stream("noise"))
    with pytest.raises(SfumatoError, match="two clients have one identity"):
        run_protocol(made.server, [*made.clients, twin], made.aggregator)


def test_a_client_takes_part_once_in_what_it_trusts() -> None:
    made = parties()
    made.clients[0].enrol(made.server.announcement())
    with pytest.raises(SfumatoError, match="client 0 was asked to enrol twice"):
        made.clients[0].enrol(made.server.announcement())
    wary = PopulationClient(
        1, np.array([1]), REFERENCE, ENTROPY, STREAMS.stream("noise"), trusts_aggregator=False
    )
    with pytest.raises(SfumatoError, match="client 1 trusts no aggregator"):
        wary.enrol(made.server.announcement())
    assert Enrolment.decode(wary.enrol(parties("distributed").server.announcement())).examples == 1


def test_a_client_refuses_rounds_out_of_order_and_what_is_not_its_own() -> None:
    made = parties("distributed")
    first, second = made.clients[:2]
    for act in (first.share_keys, first.mask, first.unmask):
        with pytest.raises(SfumatoError, match="client 0 was not admitted"):
            act(b"")
    with pytest.raises(SfumatoError, match="client 0 has not enrolled"):
        first.join(b"", b"")
    for client in made.clients:
        made.aggregator.receive(client.identity, client.enrol(made.server.announcement()))
    admitted = made.aggregator.close_enrolment()
    with pytest.raises(SfumatoError, match="an admission that is not its own"):
        second.join(*admitted[0])
    first.join(*admitted[0])
    with pytest.raises(SfumatoError, match="client 0 was admitted twice"):
        first.join(*admitted[0])


def test_a_client_refuses_a_promise_of_survivors_that_leaves_no_noise() -> None:
    made = parties("distributed")
    server = PopulationServer(REFERENCE, POINTS, PLAN, 1.0, 1e-5, ENTROPY, "distributed", corrupted_share=0.4)
    session = Enrolment.decode(made.clients[0].enrol(server.announcement())).session
    promise = Admission(session, 0, 0, 10, 4, 9, 6, 32).encode()
    with pytest.raises(SfumatoError, match="more survivors than corrupted"):
        made.clients[0].join(promise, b"")


def test_the_server_takes_one_result_of_its_session() -> None:
    made = parties()
    other = parties()
    run_protocol(made.server, made.clients, made.aggregator)
    for client in other.clients:
        other.aggregator.receive(client.identity, client.enrol(other.server.announcement()))
    with pytest.raises(SfumatoError, match="allowed"):
        other.server.receive(b"")
    foreign = Result(bytes(16), 10, 500, False, 0.1).encode()
    with pytest.raises(SfumatoError, match="of another session"):
        other.server.receive(foreign)
    session = Enrolment.decode(parties().clients[0].enrol(made.server.announcement())).session
    with pytest.raises(SfumatoError, match="a second result came"):
        made.server.receive(Result(session, 10, 500, False, 0.1).encode())


def test_a_server_needs_a_floor_and_points_that_can_be_announced() -> None:
    with pytest.raises(SfumatoError, match="floor is None"):
        PopulationServer(REFERENCE, POINTS, EstimatorPlan(None, 0.0), 1.0, 1e-5, ENTROPY)
    odd = PublicPoints(np.array([0, 1], np.int32), np.array([0.35, 0.65]), 10)
    with pytest.raises(SfumatoError, match="no shares of draws"):
        PopulationServer(REFERENCE, odd, EstimatorPlan(Floor("mix", 0.1)), 1.0, 1e-5, ENTROPY)


@pytest.mark.parametrize(
    ("epsilon", "delta", "share", "sentence"),
    [
        (1e4, 1e-5, 0.1, "the announced epsilon is 10000; allowed for this client is at most 10"),
        (1.0, 0.5, 0.1, "the announced delta is 0.5; allowed for this client is at most 0.001"),
        (1.0, 1e-5, 0.05, "the announced corrupted_share is 0.05; allowed for this client is at least 0.1"),
    ],
)
def test_a_client_answers_to_no_weaker_guarantee_than_its_own_limits(
    epsilon: float, delta: float, share: float, sentence: str
) -> None:
    server = PopulationServer(
        REFERENCE, POINTS, PLAN, epsilon, delta, ENTROPY, "distributed", corrupted_share=share
    )
    client = PopulationClient(
        0,
        np.array([0, 1]),
        REFERENCE,
        ENTROPY,
        STREAMS.stream("noise", 0),
        limits=Limits(corrupted_share=0.1),
    )
    with pytest.raises(SfumatoError, match=sentence):
        client.enrol(server.announcement())


@pytest.mark.parametrize("trust", ["trusted_aggregator", "distributed"])
def test_the_servers_interval_has_the_tail_that_it_asks_for_and_by_default_that_of_the_release(
    trust: Trust,
) -> None:
    ends: dict[str | None, tuple[float, float]] = {}
    tails: tuple[Tail | None, ...] = ("normal", "guaranteed", None)
    for tail in tails:
        server = PopulationServer(REFERENCE, POINTS, PLAN, 1.0, 1e-5, lambda _: bytes(16), trust, tail=tail)
        message = (
            Result(bytes(16), 10, 500, False, 0.1).encode()
            if trust == "trusted_aggregator"
            else NoisyCounts(bytes(16), 10, 8, 9, 500, np.full(POINTS.count, 40)).encode()
        )
        found = server.receive(message)
        ends[tail] = (found.low, found.high)
    default = "normal" if trust == "trusted_aggregator" else "guaranteed"
    assert ends[None] == ends[default]
    assert ends["guaranteed"][1] > ends["normal"][1]
    with pytest.raises(SfumatoError, match="tail is 'fat'"):
        PopulationServer(REFERENCE, POINTS, PLAN, 1.0, 1e-5, ENTROPY, trust, tail="fat")  # type: ignore[arg-type]


WIDE = Reference.from_probabilities(np.full(10_001, 1 / 10_001))


@pytest.mark.parametrize(
    ("reference", "epsilon", "said"),
    [
        (WIDE, 1.0, "points are 10001; allowed are at most 10000"),
        (REFERENCE, 1e-6, "the noise of a sum of 1 counts is"),
    ],
    ids=["points", "noise"],
)
def test_a_release_that_nobody_could_read_is_refused_before_anything_is_spent(
    reference: Reference, epsilon: float, said: str
) -> None:
    every = all_points(reference)
    with pytest.raises(SfumatoError, match=said):
        PopulationServer(reference, every, PLAN, epsilon, 1e-12, ENTROPY, "distributed")
    # Another server announces it all the same, and no client answers; a trusted aggregator can.
    trusted = PopulationServer(reference, every, PLAN, epsilon, 1e-12, ENTROPY).announcement()
    announced = replace(Announcement.decode(trusted), trust="distributed").encode()
    client = PopulationClient(0, np.array([1]), reference, ENTROPY, STREAMS.stream("noise"))
    with pytest.raises(SfumatoError, match=said):
        client.enrol(announced)
    assert Enrolment.decode(client.enrol(trusted)).examples == 1


def test_a_sum_of_too_many_clients_noise_is_refused_before_anything_is_spent() -> None:
    """One client's noise would do at this epsilon; the noise of all that are promised, few of whom count, would not."""
    server = PopulationServer(
        REFERENCE, POINTS, PLAN, 1e-4, 1e-12, ENTROPY, "distributed", corrupted_share=0.0
    )
    client = PopulationClient(0, np.array([1]), REFERENCE, ENTROPY, STREAMS.stream("noise"))
    session = Enrolment.decode(client.enrol(server.announcement())).session
    with pytest.raises(SfumatoError, match="the noise of a sum of 400 counts is"):
        client.join(Admission(session, 0, 0, 400, 2, 9, 6, 32).encode(), b"")


def test_a_client_answers_to_no_plan_that_makes_no_estimate() -> None:
    read = Announcement.decode(parties().server.announcement())
    client = PopulationClient(0, np.array([1]), REFERENCE, ENTROPY, STREAMS.stream("noise"))
    for changed, said in (({"level": 0.0}, "floor level is 0.0"), ({"coefficient": 1e7}, "coefficient is")):
        with pytest.raises(SfumatoError, match=said):
            client.enrol(replace(read, **changed).encode())  # type: ignore[arg-type]
