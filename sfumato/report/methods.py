"""Every system's methods as the report names and draws them.

>>> len({entry.name for entry in ALL_METHODS}) == len(ALL_METHODS)
True
"""

from __future__ import annotations

from dataclasses import dataclass


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
RADIOMAP_METHODS = (
    Method(
        "none",
        "No defence",
        "The client sends its update as it is.",
        *_PALE,
        "x",
        "--",
    ),
    Method(
        "clip_only",
        "Clipping only",
        "The update is shortened to a fixed length; no noise.",
        *_GREY,
        "X",
        "--",
    ),
    Method(
        "uniform",
        "Uniform noise",
        "Clipped, then the same Gaussian noise on every weight: the plain mechanism, with an ε.",
        *_BLUE,
        "o",
    ),
    Method(
        "targeted_uniform",
        "Targeted noise",
        "Clipped, then all of the noise on the weights that meet the transmitter’s input channel and none on the others: no ε.",
        *_ORANGE,
        "s",
    ),
    Method(
        "static_optimal",
        "Static optimum",
        "Clipped group by group at public lengths; the shares of the noise solve the trade between its energy and ε in closed form.",
        *_BLUE,
        "^",
        "--",
    ),
    Method(
        "adaptive",
        "Adaptive noise",
        "The paper’s method: a small network reads statistics of the client’s own update and shares the noise out over the groups of "
        "weights. The shares depend on what they are to hide: no ε.",
        *_GREEN,
        "d",
    ),
    Method(
        "adaptive_certified",
        "Adaptive, certified",
        "The same network, fed with already noisy updates and public values only, with a floor on every group’s noise: an ε. Beyond the paper.",
        *_GREEN,
        "D",
        "--",
    ),
    Method(
        "shaped",
        "Shaped noise",
        "Noise in the directions in which public updates vary, and updates clipped in the same measure: an ε. Beyond the paper.",
        *_PURPLE,
        "v",
    ),
)
ALL_METHODS = (
    *METHODS,
    *MODULATED_METHODS,
    *(m for m in DIVERGENCE_METHODS if m.name != "non_private"),
    *RADIOMAP_METHODS,
)
