"""The regression data sets: five that statsmodels carries with it, and a generated one.

>>> sorted(REGRESSION_SPECS)
['anes96', 'co2', 'fair', 'generated', 'modechoice', 'randhie']
>>> get_regression_spec("fair").label.name, get_regression_spec("fair").sizes()
('yrs_married', {'train': 4456, 'validation': 637, 'test': 1273})

Every bound is a constant from the column's meaning: the range of codes that the documentation lists where it
lists one, else a round number that is wide enough for what the column means. None is a smallest or largest
value of the rows. A column without a word on its range in ``meaning`` has the documented range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from sfumato.datasets.regression_columns import Column, RegressionSpec
from sfumato.errors import SfumatoError

_OCCUPATION = (
    "1 student, 2 farming, agriculture, semi-skilled or unskilled, 3 white-collar, 4 teacher, nurse, artist, "
    "technician or skilled, 5 managerial or business, 6 professional with advanced degree"
)
_LEANING = "from 1 extremely liberal to 7 extremely conservative"

_CO2 = RegressionSpec(
    name="co2",
    title="CO2 at Mauna Loa",
    features=(
        Column(
            "trend", -1.0, 1.0, "time, -1 at the start of 1958 and 1 at the end of 2001", "half of 44 years"
        ),
        Column("trend_squared", 0.0, 1.0, "the square of trend", "its square"),
        Column("sine_1", -1.0, 1.0, "sin(2 pi times the years since the start of 1958)", "none"),
        Column("cosine_1", -1.0, 1.0, "cos(2 pi times the years since the start of 1958)", "none"),
        Column("sine_2", -1.0, 1.0, "sin(4 pi times the years since the start of 1958)", "none"),
        Column("cosine_2", -1.0, 1.0, "cos(4 pi times the years since the start of 1958)", "none"),
    ),
    label=Column(
        "co2",
        300.0,
        400.0,
        "weekly mean of the CO2 concentration; round constants around the 315 ppm of the first year",
        "ppm",
    ),
    n_train=1_557,
    n_validation=223,
    n_test=445,
    unit_of_privacy="one week's measurement",
    licence="public domain",
    source="C. D. Keeling and T. P. Whorf, Atmospheric CO2 concentrations at Mauna Loa (2004), in statsmodels",
    known_radius=2.0,  # two trends of at most 1 each, and two pairs of sine and cosine of norm exactly 1
)

_FAIR = RegressionSpec(
    name="fair",
    title="Fair's survey of marriages",
    features=(
        Column("rate_marriage", 1.0, 5.0, "rating of the marriage, 1 very poor to 5 very good", "code"),
        Column("age", 15.0, 60.0, "age, as the middle of an interval; round constants", "years"),
        Column("children", 0.0, 6.0, "number of children; round constants", "children"),
        Column("religious", 1.0, 4.0, "1 not, 2 mildly, 3 fairly, 4 strongly", "code"),
        Column("educ", 9.0, 20.0, "years of education, 9 grade school to 20 advanced degree", "years"),
        Column("occupation", 1.0, 6.0, _OCCUPATION, "code"),
        Column("occupation_husb", 1.0, 6.0, f"the husband's: {_OCCUPATION}", "code"),
        Column(
            "affairs",
            0.01,
            100.0,
            "time spent in affairs over the years married; no documented range, so from once in a hundred years, "
            "as which 0 counts, to a hundred times a year",
            "times per year",
            "log",
        ),
    ),
    label=Column(
        "yrs_married", 0.0, 30.0, "years married, as the middle of an interval; round constants", "years"
    ),
    n_train=4_456,
    n_validation=637,
    n_test=1_273,
    unit_of_privacy="one respondent",
    licence="included in statsmodels with the permission of the author",
    source="R. C. Fair, A theory of extramarital affairs, Journal of Political Economy (1978), in statsmodels",
)

_MODECHOICE = RegressionSpec(
    name="modechoice",
    title="Travel mode choice",
    features=(
        Column("mode", 1.0, 4.0, "1 air, 2 train, 3 bus, 4 car; a code, taken as a number", "code"),
        Column("choice", 0.0, 1.0, "whether the traveller chose this mode", "yes or no", "indicator"),
        Column("ttme", 0.0, 120.0, "waiting time at the terminal; two hours, a round constant", "minutes"),
        Column("invc", 0.0, 200.0, "cost in the vehicle for all stages; a round constant", "dollars"),
        Column(
            "invt", 0.0, 1440.0, "time in the vehicle for all stages; one day, a round constant", "minutes"
        ),
        Column("hinc", 0.0, 100.0, "household income; a round constant", "1,000 dollars"),
        Column("psize", 1.0, 10.0, "size of the travelling group; a round constant", "travellers"),
    ),
    label=Column(
        "gc",
        0.0,
        400.0,
        "generalised cost, invc and the value of invt; twice the bound of invc, a round constant",
        "dollars",
    ),
    n_train=588,
    n_validation=84,
    n_test=168,
    unit_of_privacy="one mode's offer to one traveller; each of the 210 travellers has four rows",
    licence="public domain",
    source="W. H. Greene and D. Hensher, Multinomial logit and discrete choice models (1997), in statsmodels",
)

_RANDHIE = RegressionSpec(
    name="randhie",
    title="RAND health insurance experiment",
    features=(
        Column(
            "lncoins", 0.0, math.log(101.0), "ln(coinsurance + 1), coinsurance from 0 to 100", "log per cent"
        ),
        Column("idp", 0.0, 1.0, "whether the plan has an individual deductible", "yes or no", "indicator"),
        Column(
            "lpi",
            0.0,
            8.0,
            "ln(max(1, yearly participation incentive)); a round constant, 2,981 dollars",
            "log dollars",
        ),
        Column(
            "fmde",
            0.0,
            math.log(4000.0),
            "0 with an individual deductible, else ln(max(1, maximum expenditure / (0.01 coinsurance))): the "
            "experiment's plans had at most 1,000 dollars at a coinsurance of at least 25 per cent",
            "log dollars",
        ),
        Column(
            "physlm",
            0.0,
            1.0,
            "whether the person has a physical limitation; a number between 0 and 1, in the file apparently a mean "
            "of other rows in place of an answer, counts as missing",
            "yes or no",
            "indicator",
        ),
        Column(
            "disea",
            0.0,
            100.0,
            "index of chronic diseases; no documented range, a round constant; the file's values with more than one "
            "decimal are apparently means of other rows in place of an answer, and stay",
            "index",
        ),
        Column(
            "hlthg", 0.0, 1.0, "whether the person rates the own health as good", "yes or no", "indicator"
        ),
        Column(
            "hlthf", 0.0, 1.0, "whether the person rates the own health as fair", "yes or no", "indicator"
        ),
        Column(
            "hlthp", 0.0, 1.0, "whether the person rates the own health as poor", "yes or no", "indicator"
        ),
    ),
    label=Column(
        "mdvis", 0.0, 52.0, "visits to a physician in a year; one a week, a round constant", "visits"
    ),
    n_train=14_133,
    n_validation=2_019,
    n_test=4_038,
    unit_of_privacy="one year of one participant; each of the 5,912 participants has up to five rows",
    licence="public domain",
    source="RAND Corporation, Health Insurance Experiment (1974-1982), in statsmodels",
)

_ANES96 = RegressionSpec(
    name="anes96",
    title="American National Election Survey 1996",
    features=(
        Column(
            "popul",
            0.1,
            10_000.0,
            "population of the place; no documented range, so from 100 people, as which 0 counts, to ten million",
            "1,000 people",
            "log",
        ),
        Column("TVnews", 0.0, 7.0, "how often the respondent watches TV news", "days per week"),
        Column("selfLR", 1.0, 7.0, f"the respondent's own leaning, {_LEANING}", "code"),
        Column("ClinLR", 1.0, 7.0, f"Bill Clinton's leaning as the respondent sees it, {_LEANING}", "code"),
        Column("DoleLR", 1.0, 7.0, f"Bob Dole's leaning as the respondent sees it, {_LEANING}", "code"),
        Column("age", 18.0, 100.0, "age, from the voting age to a round constant", "years"),
        Column("educ", 1.0, 7.0, "education, 1 up to eight grades to 7 doctorate", "code"),
        Column(
            "income",
            1.0,
            24.0,
            "income of the household, 1 below 3,000 to 24 at least 105,000 dollars",
            "code",
        ),
        Column("vote", 0.0, 1.0, "expected vote, 0 Clinton, 1 Dole", "code", "indicator"),
    ),
    label=Column("PID", 0.0, 6.0, "party identification, 0 strong Democrat to 6 strong Republican", "code"),
    n_train=661,
    n_validation=94,
    n_test=189,
    unit_of_privacy="one respondent",
    licence="public domain",
    source="American National Election Studies (1996), in statsmodels",
)

_GENERATED = RegressionSpec(
    name="generated",
    title="Generated linear data",
    features=tuple(
        Column(f"x{number}", -1.0, 1.0, "a coordinate of a uniform draw from the unit ball", "none")
        for number in range(1, 9)
    ),
    label=Column(
        "y", -1.0, 1.0, "intercept, linear part and noise; within the bounds by construction", "none"
    ),
    n_train=50_000,
    n_validation=5_000,
    n_test=10_000,
    unit_of_privacy="one generated client",
    licence="as this project's",
    source="sfumato.datasets.generated",
    known_radius=1.0,  # drawn from the unit ball
)

REGRESSION_SPECS: Mapping[str, RegressionSpec] = MappingProxyType(
    {spec.name: spec for spec in (_CO2, _FAIR, _MODECHOICE, _RANDHIE, _ANES96, _GENERATED)}
)


def get_regression_spec(name: str) -> RegressionSpec:
    """The spec of that name.

    Raises:
        SfumatoError: if there is no such regression data set.
    """
    if name not in REGRESSION_SPECS:
        raise SfumatoError(
            f"there is no regression data set {name!r}; allowed are {', '.join(REGRESSION_SPECS)}."
        )
    return REGRESSION_SPECS[name]
