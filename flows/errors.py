"""Errors of a flow, each one sentence, each with the exit status that the command line gives it.

>>> StageFailedError("train failed.", status=2).status
2
"""

from __future__ import annotations

from sfumato.errors import SfumatoError


class FlowError(SfumatoError):
    """A wrong target, a broken file or another thing that the user can put right."""

    status = 2


class StageFailedError(RuntimeError):
    """A stage ended with an error of its own; trying again would not help.

    Attributes:
        status: exit status for the command line; 2 when the stage refused its input, else 1.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        """Keep the message and the exit status."""
        super().__init__(message)
        self.status = status


class InterruptedStageError(RuntimeError):
    """A stage was killed, or DVC could not start it; trying again may help."""

    status = 1


class StoppedError(RuntimeError):
    """The run was stopped while the stage waited or ran."""

    status = 130
