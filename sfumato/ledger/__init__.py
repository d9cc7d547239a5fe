"""What was spent: the events of a run while they happen, and the book of all releases of a data set.

>>> EventLedger().steps
0
"""

from sfumato.ledger.book import Charge, ReleaseBook
from sfumato.ledger.recorder import EventJson, EventLedger

__all__ = ["Charge", "EventJson", "EventLedger", "ReleaseBook"]
