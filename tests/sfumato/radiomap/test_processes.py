"""Work side by side is what it would be one after the other; a process that ends is said."""

from __future__ import annotations

import os

import pytest
import torch

from sfumato.errors import SfumatoError
from sfumato.radiomap.processes import side_by_side


def square(number: int) -> tuple[int, int]:
    return number**2, torch.get_num_threads()


def end(_number: int) -> int:
    os._exit(3)


def test_results_come_in_the_order_of_the_items_from_processes_with_as_many_threads() -> None:
    here, there = (list(side_by_side(square, range(7), workers)) for workers in (1, 2))
    assert here == there
    assert [found for found, _threads in here] == [0, 1, 4, 9, 16, 25, 36]


@pytest.mark.slow
def test_a_process_that_ends_is_one_sentence() -> None:
    with pytest.raises(SfumatoError, match="ended before its work was done") as caught:
        list(side_by_side(end, [1, 2], 2))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", [0, -1, 1.5, True, None])
def test_no_processes_are_refused(workers: int) -> None:
    with pytest.raises(SfumatoError, match="at least 1"):
        list(side_by_side(square, [1], workers))
