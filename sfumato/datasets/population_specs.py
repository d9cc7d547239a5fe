"""The populations: data sets whose examples are values of a finite domain, held by many clients.

>>> sorted(POPULATION_SPECS)
['femnist_population', 'generated_population', 'mnist_population']
>>> get_population_spec("mnist_population").examples, get_population_spec("mnist_population").domain
(70000, 65536)

The number of examples is declared here, never counted, wherever the data set is a fixed one: a privacy statement for
"replace one example" treats it as public. Only FEMNIST has none, since LEAF's scripts let the user choose how much of
it to make; there the number of digits in the user's files is public by the user's own declaration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal

from sfumato.datasets.spec import resolve_options
from sfumato.errors import SfumatoError

PopulationName = Literal["mnist_population", "femnist_population", "generated_population"]

CODE_DOMAIN: Final = 1 << 16
"""How many codes there are of 4x4 binary cells."""
GENERATED_DOMAIN: Final = 1 << 10


@dataclass(frozen=True)
class PopulationSpec:
    """The public facts of one population.

    Attributes:
        name: its name in parameters and file names.
        title: its name in reports.
        examples: declared public number of examples; None where the user declares it by placing the files.
        domain: how many values a raw code has, 0..domain-1.
        unit_of_privacy: what one example is. A client holds several, so that a guarantee for an example is none for
            a client.
        client: what a client is, for each value of the option ``partition`` (``""`` where there is no such option).
        licence: under which terms the data may be used.
        source: where it comes from.
        options: option name -> allowed texts, the first one being the default.
    """

    name: str
    title: str
    examples: int | None
    domain: int
    unit_of_privacy: str
    client: Mapping[str, str]
    licence: str
    source: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))

    def resolve(self, options: Mapping[str, str]) -> dict[str, str]:
        """The options with defaults filled in.

        Raises:
            SfumatoError: if an option or its value is unknown.
        """
        return resolve_options(self.name, self.options, options)


_DIGIT_IMAGE = "one example (one digit image)"

_MNIST = PopulationSpec(
    name="mnist_population",
    title="MNIST digits",
    examples=70_000,
    domain=CODE_DOMAIN,
    unit_of_privacy=_DIGIT_IMAGE,
    client=MappingProxyType(
        {
            "dirichlet": "a pseudo-client: a share of the images with a class mix drawn from Dirichlet(1/2)",
            "writer": "a writer of NIST's Special Database 19",
        }
    ),
    licence="images: Creative Commons Attribution-ShareAlike 3.0; writers: BSD 3-clause (QMNIST)",
    source=(
        "Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits; writers: C. Yadav and "
        "L. Bottou, Cold Case: The Lost MNIST Digits (2019)"
    ),
    options=MappingProxyType({"partition": ("dirichlet", "writer")}),
)

_FEMNIST = PopulationSpec(
    name="femnist_population",
    title="FEMNIST digits",
    examples=None,
    domain=CODE_DOMAIN,
    unit_of_privacy=_DIGIT_IMAGE,
    client=MappingProxyType({"": "a writer of NIST's Special Database 19"}),
    licence="BSD 2-clause (LEAF's scripts); the images are NIST's Special Database 19",
    source="S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018), made by its scripts",
)

_GENERATED = PopulationSpec(
    name="generated_population",
    title="Generated population",
    examples=100_000,
    domain=GENERATED_DOMAIN,
    unit_of_privacy="one example (one generated code)",
    client=MappingProxyType({"": "a generated client with 50 independent examples"}),
    licence="as this project's",
    source="made by sfumato from a public seed",
)

POPULATION_SPECS: Mapping[str, PopulationSpec] = MappingProxyType(
    {spec.name: spec for spec in (_MNIST, _FEMNIST, _GENERATED)}
)


def get_population_spec(name: str) -> PopulationSpec:
    """The spec of that name.

    Raises:
        SfumatoError: if there is no such population.
    """
    if name not in POPULATION_SPECS:
        raise SfumatoError(f"there is no population {name!r}; allowed are {', '.join(POPULATION_SPECS)}.")
    return POPULATION_SPECS[name]
