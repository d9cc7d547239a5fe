r"""The parties of the federated training, which exchange bytes (Section 3.1 of docs/papers.md).

>>> import numpy as np
>>> from sfumato.radiomap.messages import Upload
>>> server = RadioServer(np.zeros(2, np.float32), session=bytes(16))
>>> server.begin(0, (1, 4), "joint")[:2]
b'\x01Q'
>>> for client, value in ((4, 3.0), (1, 1.0)):
...     server.receive(client, Upload(bytes(16), 0, client, 1, np.full(2, value, np.float32)).encode())
>>> server.finish().weights.tolist()
[2.0, 2.0]

Nobody has to trust the server: the defence acts at the client, before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import nn

from sfumato.errors import SfumatoError
from sfumato.radiomap.client import LocalTraining, Phase, local_update
from sfumato.radiomap.defences import Defence
from sfumato.radiomap.maps import MapSet
from sfumato.radiomap.messages import Broadcast, Upload, Withdrawal, read_answer
from sfumato.radiomap.unet import check_averageable, dimension
from sfumato.rng import Streams


@dataclass(frozen=True, eq=False)
class Answer:
    """What a client does in one round. Only the message leaves it; the rest is for whoever studies a simulation.

    Attributes:
        message: an upload or a withdrawal.
        norm_before: Euclidean norm of the update before clipping, None where it was not finite.
        clipped: whether clipping changed the update.
        sigmas: (G,) of the noise, None where nothing was sent.
    """

    message: bytes
    norm_before: float | None
    clipped: bool
    sigmas: NDArray[np.float64] | None


@dataclass(frozen=True, eq=False)
class RadioClient:
    """One client: its maps, its defence, its randomness.

    Attributes:
        identity: its public number.
        maps: its own.
        sessions: (rounds, b, 2) int64, the pairs [map, transmitter] that it trains on in each round.
        training: how; the server's broadcast says which stage.
        model: where the training takes place. Its weights are overwritten, so clients of one process may share it.
        defence: what is done to the update before it is sent.
        streams: of the order of the examples, and of the noise. In release mode both are the operating system's.

    Raises:
        SfumatoError: if the sessions are of another shape, the model cannot be averaged, or the defence is for
            another number of weights.
    """

    identity: int
    maps: MapSet
    sessions: NDArray[np.int64]
    training: LocalTraining
    model: nn.Module
    defence: Defence
    streams: Streams

    def __post_init__(self) -> None:
        """Check that the parts fit."""
        check_averageable(self.model)
        if self.sessions.ndim != 3 or self.sessions.shape[2] != 2 or not self.sessions.size:
            raise SfumatoError(
                f"the sessions of client {self.identity} are of shape {self.sessions.shape}; allowed is (rounds, b, 2)."
            )
        size = dimension(self.model)
        if self.defence.partition.dimension != size:
            raise SfumatoError(
                f"the defence {self.defence.name!r} is for {self.defence.partition.dimension} weights; allowed are "
                f"{size}, the model's."
            )

    def respond(self, broadcast: bytes) -> Answer:
        """Train from the broadcast weights and answer with a defended update, or with a withdrawal.

        Guarantee: that of the defence, for replacing the update by any other finite one. The message holds the
        defended update rounded to float32, and public numbers: round, identity, count of examples. That a client
        withdrew, because its training was not finite, is seen by the server and protected by nothing. Every answer is
        an upload of its own: whoever answers a round twice has to count two.

        Args:
            broadcast: the server's message.

        Raises:
            SfumatoError: if it is no broadcast, of a round without a session, or of other weights than the model's.
        """
        begun = Broadcast.decode(broadcast)
        if begun.round >= len(self.sessions):
            raise SfumatoError(
                f"round {begun.round} began; client {self.identity} has sessions for {len(self.sessions)} rounds."
            )
        pairs = self.sessions[begun.round]
        training = replace(self.training, phase=begun.phase)
        order = self.streams.stream(f"client/{self.identity}", "order", begun.round)
        delta = local_update(begun.weights, self.model, self.maps, pairs, training, order)
        if not np.isfinite(delta).all():
            return self._withdraw(begun)
        noise = self.streams.stream(f"client/{self.identity}", "noise", begun.round)
        protected = self.defence.protect(delta, begun.round, noise)
        with np.errstate(over="ignore"):
            upload = protected.upload.astype(np.float32)
        if not np.isfinite(upload).all():
            return self._withdraw(begun)
        message = Upload(begun.session, begun.round, self.identity, len(pairs), upload).encode()
        return Answer(message, protected.norm_before, protected.clipped, protected.sigmas)

    def _withdraw(self, begun: Broadcast) -> Answer:
        return Answer(Withdrawal(begun.session, begun.round, self.identity).encode(), None, False, None)


@dataclass(frozen=True, eq=False)
class FinishedRound:
    """What the server has after a round.

    Attributes:
        weights: (d,) float32, the new ones; the old ones where nobody's upload could be used.
        uploads: client -> (d,) float32, ascending.
        dropped: client -> why its upload was not used, in one sentence, ascending.
    """

    weights: NDArray[np.float32]
    uploads: Mapping[int, NDArray[np.float32]]
    dropped: Mapping[int, str]


class RadioServer:
    """Averages uploads: theta + the mean of the updates, summed in float64 in the order of the clients' numbers.

    Every upload counts the same, whatever its number of examples, and the server's learning rate is 1.
    """

    def __init__(self, weights: NDArray[np.float32], session: bytes) -> None:
        """Start.

        Args:
            weights: (d,) float32, public.
            session: 16 bytes that all messages will carry.
        """
        self._weights, self._session = weights.astype(np.float32), session
        self._round = -1
        self._active: tuple[int, ...] = ()
        self._uploads: dict[int, NDArray[np.float32]] = {}
        self._dropped: dict[int, str] = {}

    @property
    def weights(self) -> NDArray[np.float32]:
        """(d,) float32, the present global weights."""
        return self._weights

    def begin(self, round: int, active: Sequence[int], phase: Phase) -> bytes:
        """The broadcast that begins a round.

        Args:
            round: its number.
            active: the numbers of the clients that are asked.
            phase: which stage learns.

        Raises:
            SfumatoError: if the weights are no longer finite.
        """
        self._round, self._active = round, tuple(active)
        self._uploads, self._dropped = {}, {}
        if not np.isfinite(self._weights).all():
            raise SfumatoError(
                f"the averaged weights are not finite at round {round}; allowed are finite ones: lower the noise or the "
                "learning rate."
            )
        return Broadcast(self._session, round, phase, self._weights).encode()

    def receive(self, client: int, message: bytes) -> None:
        """Take one client's answer; what is no valid upload is dropped, and `finish` says why.

        Args:
            client: whom the transport has the message from.
            message: what it sent.

        Raises:
            SfumatoError: if that client was not asked, or answered already.
        """
        if client not in self._active or client in self._uploads or client in self._dropped:
            raise SfumatoError(
                f"client {client} answered in round {self._round}; allowed is one answer of each client that was asked."
            )
        try:
            answer = read_answer(message)
            self._check(client, answer)
        except SfumatoError as error:
            self._dropped[client] = f"client {client} was dropped: {error}"
            return
        if isinstance(answer, Withdrawal):
            self._dropped[client] = f"client {client} withdrew: its local training was not finite."
        else:
            self._uploads[client] = answer.delta

    def _check(self, client: int, answer: Upload | Withdrawal) -> None:
        place = (answer.session, answer.round, answer.client)
        if place != (self._session, self._round, client):
            raise SfumatoError(
                "its answer is of another session, round or client; allowed is the present one."
            )
        if isinstance(answer, Upload) and answer.delta.shape != self._weights.shape:
            raise SfumatoError(
                f"its upload has {len(answer.delta)} numbers; allowed are {len(self._weights)}, the model's."
            )

    def finish(self) -> FinishedRound:
        """Average what came, and take the average as the new weights."""
        for client in self._active:
            if client not in self._uploads and client not in self._dropped:
                self._dropped[client] = f"client {client} was dropped: it did not answer."
        uploads = {client: self._uploads[client] for client in sorted(self._uploads)}
        if uploads:
            total = np.zeros(self._weights.shape, np.float64)
            for delta in uploads.values():
                total += delta
            with np.errstate(over="ignore"):
                self._weights = (self._weights + total / len(uploads)).astype(np.float32)
        dropped = {client: self._dropped[client] for client in sorted(self._dropped)}
        return FinishedRound(self._weights, uploads, dropped)
