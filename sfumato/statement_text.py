"""A privacy statement as prose.

>>> wrapped("Mode", "simulation").startswith("Mode: simulation")
True
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sfumato.guarantee import PrivacyStatement

WIDTH = 100
_RELATIONS = {
    "add_or_remove_one": "two data sets are neighbours if one has one record more than the other",
    "replace_one": "two data sets are neighbours if one record is replaced by any other",
}


_APPROXIMATION = (
    "The noise is a Gaussian in floating-point numbers, which only approximates the real-valued one that the proof "
    "assumes."
)


def wrapped(title: str, text: str) -> str:
    """One paragraph, indented after its first line."""
    return textwrap.fill(f"{title}: {text}", WIDTH, subsequent_indent="  ", break_long_words=False)


def _headline(statement: PrivacyStatement) -> str:
    if statement.epsilon is None:
        return f"{statement.system} / {statement.method}: NOT private. {statement.epsilon_reason}"
    red = " RED FLAG: the audit contradicts the claim." if statement.audit_crosses_claim else ""
    if statement.mode == "simulation":
        red += " (simulation: see Mode)"
    where = "locally " if statement.setting.startswith("local:") else ""
    return (
        f"{statement.system} / {statement.method}: {where}({statement.epsilon:.4g}, "
        f"{statement.delta:g})-differentially "
        f"private per {statement.unit_of_privacy}.{red}"
    )


def _meaning(
    statement: PrivacyStatement, claim: str | None, bounds: Sequence[tuple[float, float]]
) -> list[str]:
    if claim is None:
        return [
            wrapped("What it is worth", "there is no guarantee; an attacker may learn any record exactly.")
        ]
    rates = "; ".join(
        f"at {rate:.1%} false positives, at most {bound:.1%} are found" for rate, bound in bounds
    )
    lines = [
        wrapped("What it is worth", f"{claim}, up to delta = {statement.delta:g}."),
        wrapped("Any membership attack", f"{rates}."),
    ]
    if statement.delta >= 1.0 / statement.n:
        lines.append(
            wrapped(
                "Warning",
                f"delta = {statement.delta:g} is not below 1/n = {1.0 / statement.n:g}, so "
                "publishing a few records "
                "in full would satisfy it.",
            )
        )
    target = statement.target_epsilon
    if target is not None and statement.epsilon is not None and statement.epsilon > target * (1 + 1e-6):
        lines.append(
            wrapped("Warning", f"epsilon = {statement.epsilon:.6g} is above the target of {target:g}.")
        )
    return lines


def _mode(statement: PrivacyStatement) -> str:
    if statement.mode == "simulation":
        return (
            "simulation. The noise comes from a known seed, so whoever knows the seed can "
            "subtract it and the "
            "guarantee is void for these very outputs; the numbers say what the same run would "
            f"give in release mode. {_APPROXIMATION if statement.noise != 'discrete' else ''}".rstrip()
        )
    if statement.noise == "discrete":
        return "release. The noise is drawn by an exact discrete sampler from the operating system's entropy."
    return f"release. The noise is drawn from the operating system's entropy and not from a seed. {_APPROXIMATION}"


def _sampling(statement: PrivacyStatement, amplified: bool) -> str:
    if statement.sampling_used == "none":
        return "none, every record takes part; no amplification is claimed."
    text = f"assumed {statement.sampling_assumed}, used {statement.sampling_used}; "
    text += "amplification is claimed. " if amplified else "no amplification is claimed. "
    if statement.empty_batches is None:
        return text + "Empty batches release noise too; how many there were is private and was not counted."
    text += f"{statement.empty_batches} of {statement.steps} batches were empty"
    return text + (" and still released noise." if statement.epsilon is not None else ".")


def _tuning(statement: PrivacyStatement) -> str:
    tuning = statement.tuning
    if tuning.tuned_on == "not_tuned":
        return "nothing was tuned for this run."
    if tuning.tuned_on == "public_data":
        return "tuned on public data, which costs no privacy."
    if statement.epsilon is None:
        return f"chosen with {tuning.private_trials} further fits on the private data, without privacy like this one."
    cost = "are part of epsilon" if tuning.accounted else "are NOT part of epsilon: the true cost is larger"
    return f"chosen with {tuning.private_trials} further fits on the private data, which {cost}."


def _audit(statement: PrivacyStatement) -> str:
    audit = statement.audit
    if audit.epsilon_lower is None or audit.confidence is None:
        return f"none. {audit.reason}"
    text = f"epsilon is at least {audit.epsilon_lower:.4g} with {audit.confidence:.0%} confidence"
    text += f" ({audit.reason})." if audit.reason else "."
    if statement.audit_crosses_claim:
        text += (
            f" RED FLAG: that is above the claimed {statement.epsilon:.4g}, "
            "so the claim or the implementation is wrong."
        )
    return text


def _phases(statement: PrivacyStatement) -> list[str]:
    lines: list[str] = []
    for phase in statement.phases:
        clip = "nothing clipped" if phase.clip_norm is None else f"clip norm {phase.clip_norm:g}"
        share = "" if phase.budget_share is None else f", {phase.budget_share:.0%} of epsilon if alone"
        if phase.sensitivity is not None:
            deviation = phase.noise_multiplier * (phase.clip_norm or 0.0)
            lines.append(
                wrapped(
                    f"Phase {phase.name}",
                    f"{phase.steps} {'release' if phase.steps == 1 else 'releases'}, noise of standard deviation "
                    f"{deviation:.6g} on what two neighbours move by at most {phase.sensitivity:.6g}.",
                )
            )
            continue
        lines.append(
            wrapped(
                f"Phase {phase.name}",
                f"{phase.steps} {'step' if phase.steps == 1 else 'steps'}, sampling rate {phase.sampling_rate:.6g}, noise multiplier "
                f"{phase.noise_multiplier:.6g}, {clip}{share}.",
            )
        )
    return lines


def _figures(statement: PrivacyStatement) -> str:
    parts: list[str] = []
    for figure in statement.figures:
        value = "none" if figure.value is None else f"{figure.value:.4g}"
        parts.append(f"{figure.name} {value}" + (f" ({figure.note.rstrip('.')})" if figure.note else ""))
    return "; ".join(parts) + "."


def render(statement: PrivacyStatement, claim: str | None, bounds: Sequence[tuple[float, float]]) -> str:
    """The whole text; the first line says at once whether and how far the run is private.

    Args:
        statement: a checked statement.
        claim: epsilon in words, None without a guarantee.
        bounds: (false positive rate, largest true positive rate of any membership attack).
    """
    amplified = statement.sampling_assumed == "poisson"
    lines = [
        textwrap.fill(_headline(statement), WIDTH, subsequent_indent="  ", break_long_words=False),
        "",
        *_meaning(statement, claim, bounds),
        wrapped("Setting", statement.setting),
        wrapped("Adversary", statement.adversary),
        wrapped(
            "Unit and relation",
            f"{statement.unit_of_privacy}; {statement.neighbors or _RELATIONS[statement.neighboring_relation]}; "
            f"n = {statement.n} is a declared public number.",
        ),
        wrapped("Accountant", f"{statement.accountant}; beside it {_figures(statement)}"),
        wrapped("Mechanism", statement.mechanism),
        *_phases(statement),
        wrapped("Sampling", _sampling(statement, amplified and claim is not None)),
        wrapped("Not covered", "; ".join(text.rstrip(".") for text in statement.not_covered) + "."),
        wrapped("Cost of tuning", _tuning(statement)),
        wrapped("Mode", _mode(statement)),
        wrapped("Audit", _audit(statement)),
        *(wrapped("Note", note) for note in statement.notes),
    ]
    return "\n".join(lines) + "\n"
