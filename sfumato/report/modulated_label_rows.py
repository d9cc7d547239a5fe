"""The numbers of attacks on private labels, row by row, from records; no formatting.

>>> from sfumato.records import Record
>>> levels = {"dataset": "fair", "method": "one_shot", "epsilon": "5", "messages": "1", "attack": "linear_unbiased"}
>>> names = ("mse", "mse_low", "mse_high", "floor", "floor_bayes", "prior_mse")
>>> record = Record(levels, {f"label_{name}": 1.0 for name in names})
>>> [row.own_floor for row in label_rows(Run("quick", "modulated", "base", {"attack": (record,)}))]
[1.0]

Where labels are public there is nothing to rebuild and there are no rows. The maximum-likelihood attacker is left out:
on labels, which nothing modulates, it is the linear one.
"""

from __future__ import annotations

from dataclasses import dataclass

from sfumato.report.modulated_tables import ATTACKS, UNBIASED
from sfumato.report.study import Run, number_of
from sfumato.report.vocabulary import dataset_order, epsilon_order, method_order


@dataclass(frozen=True)
class LabelRow:
    """One attack on private labels: mean squared error over clients and what bounds it.

    Attributes:
        dataset, epsilon, method: whose messages.
        messages: T messages of the same client at the same total budget.
        attack: the attacker.
        mse, low, high: mean over the clients with its 95 % interval.
        floor: Cramer-Rao, of unbiased attackers: the noise's variance over T.
        floor_bayes: of attackers who know the mean and the spread.
        prior: the error of guessing the mean for every client.
    """

    dataset: str
    epsilon: str
    method: str
    messages: int
    attack: str
    mse: float
    low: float
    high: float
    floor: float
    floor_bayes: float
    prior: float

    @property
    def own_floor(self) -> float:
        """The floor that this attacker is held against."""
        return self.floor if self.attack in UNBIASED else self.floor_bayes


_VALUES = ("mse", "mse_low", "mse_high", "floor", "floor_bayes", "prior_mse")


def label_rows(run: Run) -> list[LabelRow]:
    """A row per attack record that holds every number, ordered by data set, epsilon, method, T and attacker."""
    rows: list[LabelRow] = []
    for record in run.records.get("attack", ()):
        levels, values = record.levels, [number_of(record, f"label_{name}") for name in _VALUES]
        numbers = [value for value in values if value is not None]
        if levels.get("attack") != "maximum_likelihood" and len(numbers) == len(values):
            place = levels["dataset"], levels["epsilon"], levels["method"], int(levels["messages"])
            rows.append(LabelRow(*place, levels["attack"], *numbers))
    order = {name: place for place, name in enumerate(ATTACKS)}
    return sorted(
        rows,
        key=lambda r: (
            dataset_order(r.dataset),
            epsilon_order(r.epsilon),
            method_order(r.method),
            r.messages,
            order.get(r.attack, len(order)),
        ),
    )
