"""The real data sets through the real package clients; skipped with the reason where none can be had."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sfumato import datasets
from sfumato.datasets import SPECS, SPLITS, Dataset
from sfumato.errors import DataUnavailableError

pytestmark = pytest.mark.slow


def fetched(name: str, folder: Path, **options: str) -> Dataset:
    try:
        datasets.fetch(name, folder, **options)
    except DataUnavailableError as error:
        pytest.skip(str(error))
    return datasets.prepare(name, folder, **options)


@pytest.mark.parametrize(
    ("name", "train_counts"),
    [
        ("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]),
        ("fashion_mnist", [6000] * 10),
    ],
)
def test_idx_data_set_has_the_published_counts_and_prepares_the_same_bytes(
    tmp_path: Path, name: str, train_counts: list[int]
) -> None:
    data = fetched(name, tmp_path)
    labels = np.concatenate([data.labels("train"), data.labels("validation")])
    assert np.bincount(labels).tolist() == train_counts
    assert {split: len(data.split(split)) for split in SPLITS} == SPECS[name].sizes()
    assert float(data.inputs("test").min()) == -1.0
    assert float(data.inputs("test").max()) == 1.0
    datasets.save(tmp_path / "one.npz", data)
    datasets.save(tmp_path / "two.npz", datasets.load(tmp_path / "one.npz"))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()


@pytest.mark.parametrize(("target", "positives"), [("hypothyroid", 667), ("hyperthyroid", 241)])
def test_thyroid_is_imbalanced_and_its_features_tell_the_diagnosis(
    tmp_path: Path, target: str, positives: int
) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    data = fetched("thyroid", tmp_path, target=target)
    assert sum(int(data.labels(split).sum()) for split in SPLITS) == positives
    model = LogisticRegression(C=10.0, max_iter=2000).fit(data.inputs("train"), data.labels("train"))
    scores = model.predict_proba(data.inputs("test"))[:, 1]
    assert roc_auc_score(data.labels("test"), scores) > 0.93
