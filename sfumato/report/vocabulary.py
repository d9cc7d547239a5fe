"""The names, sentences and colours that every part of the report shares.

>>> method("tp_topk").label
'TP-TopK'
>>> percent(0.9421), signed_points(-0.0042), epsilon_order("inf") > epsilon_order("8")
('94.2 %', '−0.42', True)
"""

from __future__ import annotations

import math

from sfumato.report.methods import ALL_METHODS as ALL_METHODS
from sfumato.report.methods import DIVERGENCE_METHODS as DIVERGENCE_METHODS
from sfumato.report.methods import METHODS as METHODS
from sfumato.report.methods import MODULATED_METHODS as MODULATED_METHODS
from sfumato.report.methods import RADIOMAP_METHODS as RADIOMAP_METHODS
from sfumato.report.methods import Method as Method

MINUS = "−"

_BY_NAME = {entry.name: entry for entry in ALL_METHODS}
_ORDER = {entry.name: place for place, entry in enumerate(ALL_METHODS)}

DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "thyroid": "Thyroid",
    "digits": "Digits",
    "co2": "CO₂",
    "fair": "Fair",
    "modechoice": "Mode choice",
    "randhie": "RAND health",
    "anes96": "ANES 1996",
    "generated": "Generated",
    "mnist_population": "MNIST digits",
    "femnist_population": "FEMNIST digits",
    "generated_population": "Generated population",
    "city_maps": "City maps",
    "radiomapseer": "RadioMapSeer",
}
COMPARISONS = {
    "digits": "digit against digit",
    "codes": "image codes, drifting",
    "labels": "class labels, drifting",
    "labels_series": "class × series, drifting",
}
"""What is compared on a data set of the divergence system."""
STUDIES = {
    "epsilon": "ε",
    "coefficient": "weight λ of the control variate",
    "points": "points drawn, m",
    "batches": "batches of clients, T",
    "floor": "floor γ",
    "pair": "pair",
}
"""What is varied, one thing at a time."""
ATTACKERS = {
    "best": "best by validation",
    "least": "smallest error of all",
    "ridge": "ridge regression",
    "kernel": "kernel ridge",
    "mlp": "neural network",
    "whitened": "whitened ridge",
    "noise_aware": "noise-aware ridge",
    "known_map": "knows the building map",
    "constant": "constant guess",
}
"""Those who locate the transmitter; the first two are choices among the regressors."""
VIEWS = {"all": "all weights", "slices": "transmitter’s weights"}
"""Which weights of an update an attacker reads."""
RADIOMAP_VARIANTS = {
    "circular": "circular padding instead of zeros",
    "reflect": "reflect padding instead of zeros",
    "margin": "a loss that ignores the map’s margin",
    "circular_margin": "circular padding, and a loss that ignores the map’s margin",
    "sgd": "plain SGD on the clients instead of Adam",
    "multiplier": "the same σ on every noised weight instead of the same energy",
    "own": "every defence attacked at the weights of its own training",
}
"""Variants of a radio map run: the one thing in which each differs from the base run, in the report's order."""
GAIN_COLOURS = (
    ("#f9fdcc", "#472a7a"),
    ("#e8f6b1", "#3f4889"),
    ("#c8e9b4", "#33628d"),
    ("#8cd2ba", "#297a8e"),
    ("#55bec1", "#21918c"),
    ("#2fa4c2", "#22a884"),
    ("#1f80b8", "#40bd72"),
    ("#2356a4", "#73d056"),
    ("#243392", "#b2dd2d"),
    ("#0d2161", "#f1e51d"),
)
"""From weak to strong path gain, light and dark mode; lightness alone tells the order."""
BINARY = frozenset({"thyroid"})
PROFILES = ("smoke", "quick", "medium", "cifar10", "paper")


def method(name: str) -> Method:
    """The method of that name; an unknown one gets its own name and a neutral look."""
    return _BY_NAME.get(name) or Method(name, name, "", "#55504a", "#c9c3b8", "o")


def method_order(name: str) -> tuple[int, str]:
    """Sort key of a method."""
    return _ORDER.get(name, len(_ORDER)), name


def dataset_label(name: str) -> str:
    """A data set's name for readers."""
    return DATASETS.get(name, name)


def dataset_order(name: str) -> tuple[int, str]:
    """Sort key of a data set."""
    names = list(DATASETS)
    return (names.index(name) if name in names else len(names)), name


def comparison_label(name: str) -> str:
    """A comparison's name for readers."""
    return COMPARISONS.get(name, name)


def profile_order(name: str) -> tuple[int, str]:
    """Sort key of a profile: small ones first."""
    return (PROFILES.index(name) if name in PROFILES else len(PROFILES)), name


def epsilon_order(text: str) -> float:
    """An epsilon level as a number to sort by; ``inf`` comes last."""
    try:
        return float(text)
    except ValueError:
        return math.inf


def epsilon_label(text: str) -> str:
    """``ε = 3``, or ``no privacy``."""
    return "no privacy" if text == "inf" else f"ε = {text}"


def percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{digits}f} %".replace("-", MINUS)


def signed_points(value: float, digits: int = 2) -> str:
    """A difference of shares in percentage points, with its sign."""
    return signed(100 * value, digits)


def signed(value: float, digits: int = 2) -> str:
    """A number with its sign and a true minus; a rounded zero has none."""
    text = f"{value:+.{digits}f}"
    return (text[1:] if float(text) == 0 else text).replace("-", MINUS)


def number(value: float, digits: int = 3) -> str:
    """A number with so many significant digits, with a true minus.

    >>> number(0.0000123), number(4.04999)
    ('1.23e−05', '4.05')
    """
    return f"{value:.{digits}g}".replace("-", MINUS)
