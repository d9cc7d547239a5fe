"""The names, sentences and colours that every part of the report shares.

>>> method("tp_topk").label
'TP-TopK'
>>> percent(0.9421), signed_points(-0.0042), epsilon_order("inf") > epsilon_order("8")
('94.2 %', '−0.42', True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MINUS = "−"


@dataclass(frozen=True)
class Method:
    """A method as the report names it.

    Attributes:
        name: as in records.
        label: short, for charts and tables.
        sentence: what it does, in plain words.
        colour: light-mode colour, from a palette that colour-blind readers can tell apart.
        dark: the same in dark mode.
        marker: matplotlib marker, so that colour is never the only sign.
        line: matplotlib line style.
    """

    name: str
    label: str
    sentence: str
    colour: str
    dark: str
    marker: str
    line: str = "-"


METHODS = (
    Method(
        "tp_topk",
        "TP-TopK",
        "Spends part of the budget on a private warm-up, keeps the coordinates (weights) in which that warm-up "
        "saw the most gradient, and trains only those from then on, so that noise is added to fewer numbers.",
        "#0067a8",
        "#5ab4ef",
        "o",
    ),
    Method(
        "tp_rand",
        "TP-Rand",
        "The control: the same warm-up, budget and number of active coordinates, but the coordinates are drawn "
        "at random. What TP-TopK gains over it is what learning the support is worth.",
        "#c4570a",
        "#f59a55",
        "s",
    ),
    Method(
        "on_topk",
        "ON-TopK",
        "Chooses the coordinates again every few steps from one more noisy full step, which is charged.",
        "#007a5e",
        "#3cc8a3",
        "^",
    ),
    Method(
        "on_rand",
        "ON-Rand",
        "Draws new random coordinates every few steps.",
        "#a8518a",
        "#dd93c3",
        "v",
    ),
    Method(
        "dense",
        "Dense DP-SGD",
        "The standard: noise on every coordinate in every step, the whole budget in one phase, with a learning "
        "rate and clip norm of its own.",
        "#55504a",
        "#c9c3b8",
        "D",
    ),
    Method(
        "non_private",
        "No privacy",
        "Ordinary training without clipping or noise; no guarantee. A ceiling for accuracy and a target for the attack.",
        "#8d877e",
        "#9a948a",
        "x",
    ),
)
_BLUE, _ORANGE, _GREEN = ("#0067a8", "#5ab4ef"), ("#c4570a", "#f59a55"), ("#007a5e", "#3cc8a3")
_PURPLE, _GREY, _PALE = ("#a8518a", "#dd93c3"), ("#55504a", "#c9c3b8"), ("#8d877e", "#9a948a")
MODULATED_METHODS = (
    Method(
        "one_shot",
        "One-shot",
        "Every client sends one message; the server removes the noise’s share from the moments and solves for the "
        "coefficients in closed form.",
        *_BLUE,
        "o",
    ),
    Method(
        "one_shot_ridge",
        "One-shot, ridge",
        "The same messages; the matrix gets a ridge of the size of its noise, a public number.",
        *_BLUE,
        "P",
    ),
    Method(
        "one_shot_floor",
        "One-shot, floor",
        "The same messages; eigenvalues of the matrix below its noise are raised to it.",
        *_BLUE,
        "D",
    ),
    Method(
        "one_shot_descent",
        "One-shot, descent",
        "The same messages; gradient descent at the server, which costs no further privacy.",
        *_BLUE,
        "^",
    ),
    Method(
        "iterative",
        "Iterative",
        "Every client answers in every round, so the rounds share its budget; the server takes a gradient step per round.",
        *_ORANGE,
        "s",
    ),
    Method(
        "iterative_disjoint",
        "Iterative, disjoint groups",
        "Every client answers in one round only and spends its whole budget there.",
        *_ORANGE,
        "v",
    ),
    Method(
        "one_shot_lipschitz",
        "One-shot, paper’s noise",
        "One-shot with the noise that the paper’s sensitivity bound asks for.",
        *_BLUE,
        "o",
        ":",
    ),
    Method(
        "one_shot_descent_lipschitz",
        "One-shot, descent, paper’s noise",
        "Descent at the server, with the noise that the paper’s sensitivity bound asks for.",
        *_BLUE,
        "^",
        ":",
    ),
    Method(
        "iterative_lipschitz",
        "Iterative, paper’s noise",
        "Iterative with the noise that the paper’s sensitivity bound asks for.",
        *_ORANGE,
        "s",
        ":",
    ),
    Method(
        "no_modulation",
        "No modulation (λ = 0)",
        "The twin of one-shot descent that sends the clipped sample with Gaussian noise and nothing else.",
        *_GREY,
        "X",
    ),
    Method(
        "other_frequency",
        "Other frequency (8 ω)",
        "The twin of one-shot descent with an eight times larger frequency.",
        *_GREY,
        "p",
    ),
    Method(
        "dp_sgd",
        "DP-SGD",
        "The baseline under the same local privacy: every client clips its gradient and noises it itself, in every round.",
        *_GREEN,
        "d",
        "--",
    ),
    Method(
        "dp_sgd_disjoint",
        "DP-SGD, disjoint groups",
        "The baseline where every client answers in one round only.",
        *_GREEN,
        "<",
        "--",
    ),
    Method(
        "ada_ssp",
        "Central (AdaSSP)",
        "For scale only: a trusted server sees all samples and adds the noise once. Not comparable with the others.",
        *_PURPLE,
        "*",
        "-.",
    ),
    Method("least_squares", "Least squares", "No privacy.", *_PALE, "x", "--"),
    Method(
        "mean",
        "Predicting the mean",
        "No privacy needed and nothing learned: the error 1.",
        *_PALE,
        "+",
        "--",
    ),
)
DIVERGENCE_METHODS = (
    Method(
        "non_private",
        "No privacy",
        "The estimate from the exact counts at the drawn points. What it lacks in accuracy is due to the draw and the floor, not "
        "to privacy.",
        "#8d877e",
        "#9a948a",
        "x",
        "--",
    ),
    Method(
        "trusted_aggregator",
        "Trusted aggregator",
        "The paper’s method: counts at a few points drawn from the reference are summed over all clients, and the aggregator "
        "adds noise once, to the finished estimate.",
        *_BLUE,
        "o",
    ),
    Method(
        "all_cells",
        "All cells",
        "The same with every cell of the reference counted instead of a few drawn ones: nothing is left to the draw, and the "
        "message grows with the domain. Beyond the paper.",
        *_BLUE,
        "^",
        "--",
    ),
    Method(
        "per_batch",
        "Per batch",
        "The paper’s batches: disjoint groups of clients, each with points and noise of its own; the estimates are averaged. The "
        "logarithm of a small group’s ratio is too large on average, so it is biased upwards.",
        *_ORANGE,
        "s",
    ),
    Method(
        "distributed",
        "Distributed noise",
        "No aggregator is trusted: every client adds a share of the noise to its counts, and only the sum is opened. The "
        "logarithm then meets noisy counts, which biases it. Beyond the paper.",
        *_GREEN,
        "d",
    ),
    Method(
        "local_mix",
        "Local noise, mixed floor",
        "The baseline (Algorithm 1): every client noises its counts on its own; the ratio is mixed with 1 to keep it positive.",
        *_PURPLE,
        "v",
    ),
    Method(
        "local_clip",
        "Local noise, clipped floor",
        "The same baseline with the ratio clipped at the floor.",
        *_PURPLE,
        "<",
        ":",
    ),
    Method(
        "histogram",
        "Noisy histogram",
        "For scale: a trusted server adds noise to the count of every cell and computes the divergence from those.",
        *_GREY,
        "D",
        "-.",
    ),
)
"""``non_private`` has the name of the first system's; its own words are read here, its place in the order there."""
ALL_METHODS = (*METHODS, *MODULATED_METHODS, *(m for m in DIVERGENCE_METHODS if m.name != "non_private"))
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
BINARY = frozenset({"thyroid"})
PROFILES = ("smoke", "quick", "medium", "paper")


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
