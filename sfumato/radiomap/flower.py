"""The same client under Flower, for whoever deploys it on machines of one's own (extra ``flwr``).

>>> flower_client.__name__
'flower_client'

Flower's server then takes the place of `RadioServer`. It has to start from the public weights
(``initial_parameters``), average with ``FedAvg``, evaluate nothing at the clients (``fraction_evaluate=0``)
and send ``{"round": r}`` with each fit.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sfumato.errors import SfumatoError
from sfumato.radiomap.messages import Broadcast, Upload, read_answer
from sfumato.radiomap.participants import RadioClient

Parameters = list[NDArray[np.float32]]


def flower_client(client: RadioClient, session: bytes) -> Any:
    """A ``flwr.client.NumPyClient`` that trains, defends and answers as the client does.

    It has the method ``fit`` only. Flower's other methods would send what no defence has seen: metrics of the
    client's maps, or its properties.

    Guarantee: that of `RadioClient.respond`.

    Args:
        client: the client; its defence stays as it is, since Flower sends no uploads around. A defence that
            learns from released uploads has to be given its new state by the deployment.
        session: 16 bytes of this training.

    Returns:
        The object whose ``to_client()`` Flower's ``ClientApp`` takes.

    Raises:
        SfumatoError: if Flower is not installed.
    """
    try:
        base = importlib.import_module("flwr.client").NumPyClient
    except ImportError as error:
        raise SfumatoError(
            "Flower is not installed; allowed is flwr up to 1.32: pip install 'sfumato[flwr]'."
        ) from error

    def fit(
        _self: Any, parameters: Parameters, config: Mapping[str, Any]
    ) -> tuple[Parameters, int, dict[str, Any]]:
        return fitted(client, session, parameters, config)

    return type("FlowerRadioClient", (base,), {"fit": fit})()


def fitted(
    client: RadioClient, session: bytes, parameters: Parameters, config: Mapping[str, Any]
) -> tuple[Parameters, int, dict[str, Any]]:
    """One answer in Flower's form.

    Args:
        client: who answers.
        session: 16 bytes of this training.
        parameters: one (d,) float32 array, the global weights.
        config: ``round`` from 0, and ``phase``, which is ``joint`` if it is left out.

    Returns:
        ([(d,) float32, global weights plus the upload], 1, {}). Flower weighs by the second; with 1 from
        everybody its average is the plain one.

    Raises:
        SfumatoError: if the parameters are others, there is no round, or the local training was not finite.
    """
    if len(parameters) != 1 or "round" not in config:
        raise SfumatoError(
            f"{len(parameters)} arrays came with the settings {sorted(config)}; allowed is one flat array, with 'round'."
        )
    weights = np.asarray(parameters[0], np.float32)
    begun = Broadcast(session, config["round"], config.get("phase", "joint"), weights)
    answer = read_answer(client.respond(begun.encode()).message)
    if not isinstance(answer, Upload):
        raise SfumatoError(
            f"client {client.identity} withdrew from round {answer.round}: its local training was not finite."
        )
    return [weights + answer.delta], 1, {}
