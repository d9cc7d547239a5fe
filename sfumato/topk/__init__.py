"""TP-TopK: coordinate-sparse DP-SGD whose support is learned in a private warm-up (Section 2 of docs/papers.md).

>>> TwoPhasePlan().method
'tp_topk'
"""

from __future__ import annotations

from sfumato.topk.fit import Fit, fit
from sfumato.topk.plan import METHODS, CalibratedPlan, TwoPhasePlan

__all__ = ["METHODS", "CalibratedPlan", "Fit", "TwoPhasePlan", "fit"]
