"""Secure aggregation: a server learns the sum of many clients' integer vectors, and of no one's more than that.

>>> import os
>>> import numpy as np
>>> vectors = np.array([[1, 2], [3, 4], [5, 6]])
>>> done = aggregate(vectors, Setting(clients=3, length=2, degree=2, threshold=2), os.urandom)
>>> done.total
array([ 9, 12])

The protocol is that of Bonawitz et al. (2017, "Practical secure aggregation for privacy-preserving machine learning")
against a server that follows it, on the sparse neighbour graph of Bell et al. (2020, "Secure single-server aggregation
with (poly)logarithmic overhead"). `setting` chooses the graph, `client` and `server` are the parties, which exchange
`messages` only, `masking`, `shamir`, `graph` and `unmasking` are what they compute, `aggregate` runs all of them.

Not covered: a server that departs from the protocol (their consistency round and signatures need a public-key
infrastructure), clients that send false vectors, and what the sum itself tells.
"""

from sfumato.secure_aggregation.aggregate import (
    Aggregated,
    Seconds,
    Traffic,
    aggregate,
    entropy_of,
    estimate_traffic,
)
from sfumato.secure_aggregation.client import Client
from sfumato.secure_aggregation.server import Server, ServerView
from sfumato.secure_aggregation.setting import AggregationAbortedError, Setting, modulus_bits_for

__all__ = [
    "Aggregated",
    "AggregationAbortedError",
    "Client",
    "Seconds",
    "Server",
    "ServerView",
    "Setting",
    "Traffic",
    "aggregate",
    "entropy_of",
    "estimate_traffic",
    "modulus_bits_for",
]
