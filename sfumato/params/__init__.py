"""The typed schema of params.yaml: strict, frozen, and one sentence per mistake.

>>> parse({"privacy": {"mode": "simulated"}})
Traceback (most recent call last):
...
sfumato.errors.SfumatoError: params: privacy.mode is 'simulated'; allowed is 'simulation' or 'release'.
"""

from sfumato.params.fields import DatasetName
from sfumato.params.modulated import Modulated, RegressionName
from sfumato.params.reading import load, merged, parse, read_yaml
from sfumato.params.schema import Params
from sfumato.params.topk import TopK

__all__ = [
    "DatasetName",
    "Modulated",
    "Params",
    "RegressionName",
    "TopK",
    "load",
    "merged",
    "parse",
    "read_yaml",
]
