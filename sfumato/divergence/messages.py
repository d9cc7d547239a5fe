"""What the parties of the protocol send one another, as bytes: versioned, of fixed layout, parsed strictly.

>>> sent = Enrolment(session=bytes(16), identity=7, examples=104).encode()
>>> len(sent), Enrolment.decode(sent).examples
(30, 104)
>>> Enrolment.decode(sent + b"!")
Traceback (most recent call last):
sfumato.errors.SfumatoError: an enrolment of 31 bytes came; allowed are 30 bytes.

Every message starts with the version, its kind and the session's 16 random bytes; numbers are little-endian. What
does not parse is refused in one sentence that repeats nothing of the content, so that an error log holds no data.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from sfumato.divergence.plan import FloorKind
from sfumato.divergence.wire import (
    HEADER,
    article,
    begin,
    check_count,
    check_field,
    check_session,
    is_whole,
    is_within,
    open_message,
)
from sfumato.errors import SfumatoError

Trust = Literal["trusted_aggregator", "distributed"]

DIGEST_BYTES = 32
MAX_POINTS = 65_536
MAX_CLIENTS = 2**31 - 1
MAX_EXAMPLES = 2**52


@dataclass(frozen=True, eq=False)
class Announcement:
    """The server to everybody: what will be estimated, where, and at which price.

    Attributes:
        session: 16 random bytes that all messages of this estimate carry.
        trust: who adds the noise.
        digest: (32 bytes) of the public reference, which all parties hold already.
        cells: (k,) int32, the distinct drawn cells, ascending.
        multiplicities: (k,) int64, how often each was drawn; zeros where every cell is a point with its own mass.
        floor: kind of the floor.
        level: of the floor.
        ceiling: of the floor, or None.
        coefficient: lambda.
        epsilon: of the one release.
        delta: likewise.
        confidence: of the interval.
        corrupted_share: of the clients, how many may collude with who sees the sum: the graph of the aggregation
            is safe against that many, and their noise is not counted on.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    trust: Trust
    digest: bytes
    cells: NDArray[np.int32]
    multiplicities: NDArray[np.int64]
    floor: FloorKind
    level: float
    ceiling: float | None
    coefficient: float
    epsilon: float
    delta: float
    confidence: float = 0.95
    corrupted_share: float = 0.1

    _LAYOUT = struct.Struct("<BB32sdddddddI")
    _KIND = "announcement"

    def __post_init__(self) -> None:
        """Check the fields."""
        kind, k = self._KIND, len(self.cells)
        check_session(kind, self.session)
        check_field(kind, "trust model", " or ".join(get_args(Trust)), self.trust in get_args(Trust))
        check_field(kind, "digest", f"{DIGEST_BYTES} bytes", len(self.digest) == DIGEST_BYTES)
        ascending = k <= MAX_POINTS and bool(np.all(self.cells[1:] > self.cells[:-1]))
        valid = ascending and k > 0 and int(self.cells[0]) >= 0
        check_field(kind, "list of points", f"1 to {MAX_POINTS} distinct cells in ascending order", valid)
        numbers = self.multiplicities
        drawn = bool(np.all(numbers > 0)) or not numbers.any()
        valid = len(numbers) == k and drawn and bool(np.all((numbers >= 0) & (numbers < 2**32)))
        check_field(kind, "list of multiplicities", "one positive number per point, or zeros", valid)
        check_field(kind, "floor", " or ".join(get_args(FloorKind)), self.floor in get_args(FloorKind))
        check_field(kind, "floor's level", "a number from 0 to 1", is_within(self.level, 0.0, 1.0))
        valid = self.ceiling is None or is_within(self.ceiling, 0.0, 1e300)
        check_field(kind, "floor's ceiling", "a positive number", valid)
        check_field(kind, "coefficient", "a number of at least 0", is_within(self.coefficient, 0.0, 1e300))
        check_field(kind, "epsilon", "a number above 0", is_within(self.epsilon, 1e-300, 1e300))
        check_field(kind, "delta", "a number above 0 and below 1", is_within(self.delta, 1e-300, 1 - 1e-16))
        check_field(
            kind, "confidence", "a number above 0 and below 1", is_within(self.confidence, 1e-9, 1 - 1e-12)
        )
        valid = is_within(self.corrupted_share, 0.0, 1.0 - 1e-9)
        check_field(kind, "corrupted share", "a number from 0 to below 1", valid)

    @property
    def draws(self) -> int:
        """How many points were drawn, with repetitions; 0 where every cell is a point."""
        return int(self.multiplicities.sum())

    def encode(self) -> bytes:
        """The bytes that are sent: 112 and 8 per point."""
        body = self._LAYOUT.pack(
            get_args(Trust).index(self.trust),
            get_args(FloorKind).index(self.floor),
            self.digest,
            self.level,
            math.nan if self.ceiling is None else self.ceiling,
            self.coefficient,
            self.epsilon,
            self.delta,
            self.confidence,
            self.corrupted_share,
            len(self.cells),
        )
        lists = self.cells.astype("<i4").tobytes() + self.multiplicities.astype("<u4").tobytes()
        return begin(self._KIND, self.session) + body + lists

    @classmethod
    def decode(cls, data: bytes) -> Announcement:
        """The announcement that these bytes are.

        Raises:
            SfumatoError: if they are none.
        """
        session, body = open_message(cls._KIND, data, None)
        size = HEADER.size + cls._LAYOUT.size
        if len(body) < cls._LAYOUT.size:
            raise SfumatoError(
                f"an announcement of {len(data)} bytes came; allowed are at least {size} bytes."
            )
        fields = cls._LAYOUT.unpack_from(body)
        trust, floor, digest, level, ceiling, coefficient, epsilon, delta, confidence, corrupted, k = fields
        if len(data) != size + 8 * k:
            raise SfumatoError(
                f"an announcement of {len(data)} bytes came; allowed are {size + 8 * k} bytes."
            )
        check_field(cls._KIND, "trust model", " or ".join(get_args(Trust)), trust < len(get_args(Trust)))
        check_field(cls._KIND, "floor", " or ".join(get_args(FloorKind)), floor < len(get_args(FloorKind)))
        start = cls._LAYOUT.size
        read = cls(
            session,
            get_args(Trust)[trust],
            digest,
            np.frombuffer(body, "<i4", k, start).astype(np.int32),
            np.frombuffer(body, "<u4", k, start + 4 * k).astype(np.int64),
            get_args(FloorKind)[floor],
            level,
            None if math.isnan(ceiling) else ceiling,
            coefficient,
            epsilon,
            delta,
            confidence,
            corrupted,
        )
        # Of the many ways to write "no number" for the ceiling only one is sent.
        check_field(cls._KIND, "form", "the one that encoding gives", read.encode() == data)
        return read


@dataclass(frozen=True)
class Enrolment:
    """A client to the aggregation: it will take part, with so many examples, which are public.

    Attributes:
        session: as announced.
        identity: of the client, from 0.
        examples: how many samples it holds, at least 1.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    identity: int
    examples: int

    _LAYOUT = struct.Struct("<IQ")
    _KIND = "enrolment"

    def __post_init__(self) -> None:
        """Check the fields."""
        check_session(self._KIND, self.session)
        check_count(self._KIND, "identity", self.identity, 0, MAX_CLIENTS)
        check_count(self._KIND, "number of examples", self.examples, 1, MAX_EXAMPLES)

    def encode(self) -> bytes:
        """The 30 bytes that are sent."""
        return begin(self._KIND, self.session) + self._LAYOUT.pack(self.identity, self.examples)

    @classmethod
    def decode(cls, data: bytes) -> Enrolment:
        """The enrolment that these bytes are.

        Raises:
            SfumatoError: if they are none.
        """
        session, body = open_message(cls._KIND, data, HEADER.size + cls._LAYOUT.size)
        return cls(session, *cls._LAYOUT.unpack(body))


@dataclass(frozen=True)
class Admission:
    """The aggregation to one client: its place in the secure aggregation, and how many must stay to the end.

    Attributes:
        session: as announced.
        identity: of the client that is admitted.
        place: its number in the secure aggregation, from 0.
        clients: how many take part.
        survivors: with fewer contributions at the end there is no release; at least 2.
        degree: neighbours per client.
        threshold: shares that recover a secret.
        modulus_bits: of the sums.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    identity: int
    place: int
    clients: int
    survivors: int
    degree: int
    threshold: int
    modulus_bits: int

    _LAYOUT = struct.Struct("<IIIIIIB")
    _KIND = "admission"

    def __post_init__(self) -> None:
        """Check the fields."""
        kind = self._KIND
        check_session(kind, self.session)
        check_count(kind, "identity", self.identity, 0, MAX_CLIENTS)
        check_count(kind, "number of clients", self.clients, 2, MAX_CLIENTS)
        check_count(kind, "place", self.place, 0, self.clients - 1)
        check_count(kind, "number of survivors", self.survivors, 2, self.clients)
        check_count(kind, "degree", self.degree, 1, self.clients - 1)
        check_count(kind, "threshold", self.threshold, 1, self.degree)
        check_count(kind, "number of bits", self.modulus_bits, 1, 64)

    def encode(self) -> bytes:
        """The 43 bytes that are sent."""
        return begin(self._KIND, self.session) + self._LAYOUT.pack(
            self.identity,
            self.place,
            self.clients,
            self.survivors,
            self.degree,
            self.threshold,
            self.modulus_bits,
        )

    @classmethod
    def decode(cls, data: bytes) -> Admission:
        """The admission that these bytes are.

        Raises:
            SfumatoError: if they are none.
        """
        session, body = open_message(cls._KIND, data, HEADER.size + cls._LAYOUT.size)
        return cls(session, *cls._LAYOUT.unpack(body))


@dataclass(frozen=True)
class Result:
    """The trusted aggregator to the server: the noisy value, what it is worth, and nothing else.

    Attributes:
        session: as announced.
        survivors: how many clients are in the sum.
        examples: N, of these clients, which is public.
        discrete: whether the noise is discrete and exactly sampled; its size follows from public quantities.
        value: Phi's mean plus noise.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    survivors: int
    examples: int
    discrete: bool
    value: float

    _LAYOUT = struct.Struct("<IQBd")
    _KIND = "result"

    def __post_init__(self) -> None:
        """Check the fields."""
        kind = self._KIND
        check_session(kind, self.session)
        check_count(kind, "number of survivors", self.survivors, 2, MAX_CLIENTS)
        check_count(kind, "number of examples", self.examples, 2, MAX_EXAMPLES)
        check_field(kind, "kind of noise", "0 or 1", self.discrete in (False, True))
        check_field(kind, "value", "a finite number", is_within(self.value, -1e300, 1e300))

    def encode(self) -> bytes:
        """The 39 bytes that are sent."""
        numbers = self.survivors, self.examples, int(self.discrete), self.value
        return begin(self._KIND, self.session) + self._LAYOUT.pack(*numbers)

    @classmethod
    def decode(cls, data: bytes) -> Result:
        """The result that these bytes are.

        Raises:
            SfumatoError: if they are none.
        """
        session, body = open_message(cls._KIND, data, HEADER.size + cls._LAYOUT.size)
        survivors, examples, discrete, value = cls._LAYOUT.unpack(body)
        check_field(cls._KIND, "kind of noise", "0 or 1", discrete in (0, 1))
        return cls(session, survivors, examples, bool(discrete), value)


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """The aggregation to the server, where nobody is trusted: the sum of the clients' noisy counts.

    Attributes:
        session: as announced.
        clients: how many took part.
        required: how many contributions they were promised that the sum would have at least.
        survivors: how many clients are in the sum.
        examples: N, of these clients, which is public.
        counts: (k,) int64, one per point in the announced order.

    Raises:
        SfumatoError: if a field is outside of what is allowed.
    """

    session: bytes
    clients: int
    required: int
    survivors: int
    examples: int
    counts: NDArray[np.int64]

    _LAYOUT = struct.Struct("<IIIQI")
    _KIND = "table of noisy counts"

    def __post_init__(self) -> None:
        """Check the fields."""
        kind = self._KIND
        check_session(kind, self.session)
        check_count(kind, "number of clients", self.clients, 2, MAX_CLIENTS)
        valid = is_whole(self.required, 2, self.clients) and is_whole(
            self.survivors, self.required, self.clients
        )
        check_field(kind, "number of survivors", "from what was promised to all of the clients", valid)
        check_count(kind, "number of examples", self.examples, 2, MAX_EXAMPLES)
        check_field(kind, "number of counts", f"1 to {MAX_POINTS}", 1 <= len(self.counts) <= MAX_POINTS)

    def encode(self) -> bytes:
        """The bytes that are sent: 42 and 8 per point."""
        head = self._LAYOUT.pack(self.clients, self.required, self.survivors, self.examples, len(self.counts))
        return begin(self._KIND, self.session) + head + self.counts.astype("<i8").tobytes()

    @classmethod
    def decode(cls, data: bytes) -> NoisyCounts:
        """The noisy counts that these bytes are.

        Raises:
            SfumatoError: if they are none.
        """
        session, body = open_message(cls._KIND, data, None)
        least = HEADER.size + cls._LAYOUT.size
        if len(data) < least:
            raise SfumatoError(
                f"{article(cls._KIND)} of {len(data)} bytes came; allowed are at least {least} bytes."
            )
        clients, required, survivors, examples, k = cls._LAYOUT.unpack_from(body)
        if len(data) != least + 8 * k:
            raise SfumatoError(
                f"{article(cls._KIND)} of {len(data)} bytes came; allowed are {least + 8 * k} bytes."
            )
        counts = np.frombuffer(body, "<i8", k, cls._LAYOUT.size).astype(np.int64)
        return cls(session, clients, required, survivors, examples, counts)
