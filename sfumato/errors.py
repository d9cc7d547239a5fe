"""Errors that a user's input can cause; each message is one sentence.

>>> issubclass(AccountingError, SfumatoError)
True
"""

from __future__ import annotations


class SfumatoError(ValueError):
    """Base of every error that bad input, missing data or an exhausted budget can cause."""


class DataUnavailableError(SfumatoError):
    """A data set cannot be had from any of its sources."""


class AccountingError(SfumatoError):
    """An event, a budget or a curve lies outside of what the accountants can price."""


class BudgetExceededError(SfumatoError):
    """The release book refuses a release that would pass the budget."""


class UnsupportedLayerError(SfumatoError):
    """A module holds a layer that mixes examples or that the engine cannot handle."""
