"""The monitor of params.yaml is refused exactly where the monitoring plan would be, before anything is looked at."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from sfumato.divergence.monitoring import MonitoringPlan
from sfumato.errors import SfumatoError
from sfumato.params.drift import LEAST_ERROR, Watch, parse_watch
from tests.flows.monitored import watch_values

MOST_CHECKS = 1_000_000


def plan_of(**drift: Any) -> MonitoringPlan:
    values = watch_values(**drift)["drift"]
    names = ("checks_per_year", "epsilon_per_check", "yearly_epsilon", "threshold", "confidence", "sides")
    return MonitoringPlan(delta=1e-6, **{name: values[name] for name in names})


def accepts(make: Any, **drift: Any) -> bool:
    """Whether it is made; False only where one of the limits is what is refused."""
    try:
        make(**drift)
    except SfumatoError as error:
        if "confidence is" in str(error) or "checks_per_year is" in str(error):
            return False
        raise
    return True


def watch_of(**drift: Any) -> Watch:
    return parse_watch(watch_values(**drift))


@pytest.mark.parametrize(
    ("checks", "allowed"), [(0, False), (1, True), (MOST_CHECKS, True), (MOST_CHECKS + 1, False)]
)
def test_the_monitor_and_its_plan_allow_the_same_numbers_of_checks(checks: int, allowed: bool) -> None:
    assert [accepts(make, checks_per_year=checks) for make in (watch_of, plan_of)] == [allowed, allowed]


@pytest.mark.parametrize(("sides", "ends"), [("one", 1), ("two", 2)])
@pytest.mark.parametrize("checks", [1, 12, MOST_CHECKS])
@pytest.mark.parametrize(("factor", "allowed"), [(0.99, False), (1.01, True)])
def test_the_monitor_and_its_plan_allow_the_same_least_error(
    sides: str, ends: int, checks: int, factor: float, allowed: bool
) -> None:
    drift = {
        "confidence": 1.0 - factor * LEAST_ERROR * checks * ends,
        "sides": sides,
        "checks_per_year": checks,
    }
    assert [accepts(make, **drift) for make in (watch_of, plan_of)] == [allowed, allowed]


@pytest.mark.parametrize(("above", "allowed"), [(0.9e-9, False), (1.1e-9, True)])
def test_the_monitor_and_its_plan_allow_the_same_largest_error(above: float, allowed: bool) -> None:
    assert [accepts(make, confidence=0.5 + above) for make in (watch_of, plan_of)] == [allowed, allowed]


def test_reading_the_parameters_needs_no_scipy_which_is_why_the_limits_are_written_twice() -> None:
    code = "import sys, sfumato.params.drift; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
