"""Regression from clients that hold one sample each (Section 1 of docs/papers.md).

>>> import numpy as np
>>> plan = ModulatedPlan(Domain(features=2, radius=1.0), Modulation(amplitude=0.5))
>>> plan.calibrate(epsilon=5.0, delta=1e-5).plan.neighbor_distance
2.0

A client clips, modulates and noises its sample (`client`), the server removes the noise's known second moment
(`server`) and estimates, from one release or round by round (`iterative`). `theory` says how well, `baselines` and
`sufficient_statistics` what it is compared with, `aggregate` how to sweep quickly, `chooser` what to run.
"""

from sfumato.modulated.baselines import LocalSgdPlan, local_sgd, ordinary_least_squares, predict_the_mean
from sfumato.modulated.chooser import Choice, choose
from sfumato.modulated.client import Message, messages, orthonormal_directions, send
from sfumato.modulated.iterative import Fit, Steps, iterate, one_release, release_of
from sfumato.modulated.plan import CalibratedModulation, Domain, ModulatedPlan, Modulation
from sfumato.modulated.server import NormalEquations, Stabilization, collect, descend, estimate, solve
from sfumato.modulated.statement import privacy_statement
from sfumato.modulated.sufficient_statistics import SufficientStatisticsPlan, ada_ssp
from sfumato.modulated.theory import Interval, confidence_interval

__all__ = [
    "CalibratedModulation",
    "Choice",
    "Domain",
    "Fit",
    "Interval",
    "LocalSgdPlan",
    "Message",
    "ModulatedPlan",
    "Modulation",
    "NormalEquations",
    "Stabilization",
    "Steps",
    "SufficientStatisticsPlan",
    "ada_ssp",
    "choose",
    "collect",
    "confidence_interval",
    "descend",
    "estimate",
    "iterate",
    "local_sgd",
    "messages",
    "one_release",
    "ordinary_least_squares",
    "orthonormal_directions",
    "predict_the_mean",
    "privacy_statement",
    "release_of",
    "send",
    "solve",
]
