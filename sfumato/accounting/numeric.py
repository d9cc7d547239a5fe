"""Typed doors to the few scipy functions that the accountants need.

>>> float(log_normal_cdf(0.0).round(4))
-0.6931
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import scipy.fft
import scipy.optimize
import scipy.signal
import scipy.special
from numpy.typing import NDArray

Array = NDArray[np.float64]
ComplexArray = NDArray[np.complex128]
_special = cast(Any, scipy.special)
_fft = cast(Any, scipy.fft)
_optimize = cast(Any, scipy.optimize)
_signal = cast(Any, scipy.signal)


def log_normal_cdf(x: float | Array) -> Array:
    """Natural logarithm of the standard normal distribution function."""
    return np.asarray(_special.log_ndtr(x), dtype=np.float64)


def normal_cdf(x: Array) -> Array:
    """The standard normal distribution function."""
    return cast(Array, _special.ndtr(x))


def normal_quantile(log_probability: float) -> float:
    """X with log Phi(x) equal to the given logarithm of a probability."""
    return float(_special.ndtri_exp(log_probability))


def scaled_erfc(x: float) -> float:
    """exp(x^2) erfc(x)."""
    return float(_special.erfcx(x))


def log_sum_exp(values: Array, axis: int) -> Array:
    """Log of the sum of exp along an axis."""
    return np.asarray(_special.logsumexp(values, axis=axis), dtype=np.float64)


def find_root(function: Callable[[float], float], low: float, high: float, tolerance: float) -> float:
    """Brent's root of a function that changes sign between low and high, to an absolute tolerance."""
    return float(_optimize.brentq(function, low, high, xtol=tolerance, rtol=1e-14, maxiter=200))


def minimum(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """(argument, value) of a unimodal function's minimum on an interval."""
    result = _optimize.minimize_scalar(
        function, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    )
    return float(result.x), float(result.fun)


def fast_length(size: int) -> int:
    """The next length that a real FFT handles fast."""
    return int(_fft.next_fast_len(size, real=True))


def real_fft(values: Array) -> ComplexArray:
    """Discrete Fourier transform of a real vector."""
    return cast(ComplexArray, _fft.rfft(values))


def inverse_real_fft(values: ComplexArray, size: int) -> Array:
    """Inverse of ``real_fft`` for a vector of that size."""
    return cast(Array, _fft.irfft(values, size))


def decaying_sums(values: Array, decay: float) -> Array:
    """s[k] = values[k] + decay * s[k - 1], for non-negative values without any cancellation."""
    return cast(Array, _signal.lfilter([1.0], [1.0, -decay], values))
