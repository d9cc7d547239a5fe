"""The report's charts, each a pure function from rows to an inline SVG text.

>>> from sfumato.records import MeanInterval
>>> from sfumato.report.tables import SweepPoint, Sweep
>>> point = SweepPoint(0.1, MeanInterval(0.9, 0.01, 3), None)
>>> sweep_chart(Sweep("medium", "ratio", "mnist", "1", (point,)), "example").startswith("<svg")
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfumato.records import MeanInterval
from sfumato.report.figure import ALERT, GRID, INK, MUTED, PAPER, label_axis, spread, styled, subplots, to_svg
from sfumato.report.tables import AuditRow, DensityRow, DifferenceRow, EnergyRow, MethodRow, RankingRow, Sweep
from sfumato.report.vocabulary import (
    dataset_label,
    epsilon_label,
    epsilon_order,
    method,
    method_order,
    percent,
)

WIDTH = 9.4


def whole(value: float) -> str:
    """A share as a percentage, with as many digits as it needs."""
    return f"{100 * value:.3g} %"


def end_labels(axes: Any, labels: Sequence[tuple[float, str, str]], size: float = 8.0) -> None:
    """Labels at the right edge, beside their lines' ends and apart from each other."""
    low, high = axes.get_ylim()
    height = axes.figure.get_size_inches()[1] * axes.get_subplotspec().get_position(axes.figure).height
    gap = (high - low) * (size * 1.35 / 72) / height
    places = spread([min(max(place, low), high) for place, _text, _colour in labels], gap)
    for place, (value, text, colour) in zip(places, labels, strict=True):
        axes.annotate(
            text,
            xy=(1.0, value),
            xycoords=axes.get_yaxis_transform(),
            xytext=(1.035, place),
            textcoords=axes.get_yaxis_transform(),
            color=colour,
            fontsize=size,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "lw": 0.5,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0, 0.5),
            },
        )


def accuracy_chart(rows: Sequence[MethodRow], dataset: str, name: str) -> str:
    """Test accuracy against epsilon, one line per method, 95 % intervals over seeds."""
    mine = [row for row in rows if row.dataset == dataset and row.accuracy]
    epsilons = sorted({row.epsilon for row in mine if row.epsilon != "inf"}, key=epsilon_order)
    methods = sorted({row.method for row in mine if row.epsilon != "inf"}, key=method_order)
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 3.7)
        ax, labels = axes[0][0], list[tuple[float, str, str]]()
        for index, entry in enumerate(methods):
            look = method(entry)
            shift = (index - (len(methods) - 1) / 2) * 0.055
            points = [(epsilons.index(r.epsilon) + shift, r.accuracy) for r in mine if r.method == entry]
            points = [(x, mean) for x, mean in points if mean]
            xs, means = [x for x, _ in points], [mean.mean for _, mean in points]
            ax.plot(xs, means, color=look.colour, marker=look.marker, lw=1.1, alpha=0.95, zorder=3)
            for x, mean in points:
                if mean.half_width:
                    ends = max(mean.mean - mean.half_width, 0), min(mean.mean + mean.half_width, 1)
                    ax.plot([x, x], ends, color=look.colour, lw=1.4, solid_capstyle="butt", zorder=2)
            if means:
                labels.append((means[-1], look.label, look.colour))
        for row in mine:
            if row.epsilon == "inf" and row.accuracy:
                look = method(row.method)
                ax.axhline(row.accuracy.mean, color=look.colour, lw=1.0, ls=(0, (4, 3)), zorder=1)
                labels.append((row.accuracy.mean, look.label, look.colour))
        ax.set_xticks(range(len(epsilons)), [epsilon_label(e) for e in epsilons])
        ax.set_xlim(-0.35, len(epsilons) - 0.65)
        ax.set_ylabel("test accuracy")
        label_axis(ax.yaxis, lambda value: percent(value, 0 if _coarse(ax) else 1))
        ax.grid(axis="x", visible=False)
        ax.margins(y=0.06)
        ax.set_ylim(*ax.get_ylim())
        end_labels(ax, labels)
        text = "; ".join(
            f"{method(r.method).label} {epsilon_label(r.epsilon)} {percent(r.accuracy.mean)}"
            for r in mine
            if r.accuracy
        )
        return to_svg(figure, name, f"Test accuracy against ε on {dataset_label(dataset)}", text)


def _coarse(axes: Any) -> bool:
    low, high = axes.get_ylim()
    return high - low > 0.05


def difference_chart(rows: Sequence[DifferenceRow], name: str) -> str:
    """Paired differences in points with 95 % intervals and the single seeds, zero marked."""
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.75 + 0.27 * len(rows))
        ax, words, names = axes[0][0], list[str](), list[str]()
        for place, row in enumerate(rows):
            look, mean = method(row.method), 100 * row.difference.mean
            half = 100 * (row.difference.half_width or 0.0)
            ax.plot(
                [mean - half, mean + half], [place, place], color=look.colour, lw=1.6, solid_capstyle="butt"
            )
            seeds = [100 * value for value in row.seeds.values()]
            ax.plot(
                seeds, [place] * len(seeds), ls="", marker="|", ms=7, mew=1.0, color=look.colour, alpha=0.55
            )
            ax.plot([mean], [place], ls="", marker=look.marker, color=look.colour, ms=6)
            names.append(
                f"{look.label} − {method(row.reference).label}, {dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}"
            )
            words.append(f"{names[-1]}: {mean:+.2f} points")
        ax.axvline(0, color=INK, lw=0.8, zorder=1)
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlabel(
            "difference in test accuracy, percentage points (right of 0: the first method is better)"
        )
        ax.grid(axis="y", visible=False)
        return to_svg(figure, name, "Paired differences in test accuracy", "; ".join(words))


def density_chart(rows: Sequence[DensityRow], share: float, name: str) -> str:
    """The share of active coordinates in every parameter, one bar per method; the overall share as a line."""
    methods = sorted({m for row in rows for m in row.densities}, key=method_order)
    height = 0.8 / max(len(methods), 1)
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.7 + len(rows) * max(0.24, 0.15 * len(methods)))
        ax = axes[0][0]
        for index, entry in enumerate(methods):
            look = method(entry)
            places = [p - 0.4 + height * (index + 0.5) for p in range(len(rows))]
            ax.barh(places, [row.densities.get(entry, 0.0) for row in rows], height * 0.86, color=look.colour)
        ax.axvline(share, color=INK, lw=0.8, ls=(0, (4, 3)))
        ax.annotate(
            f"overall {percent(share)}",
            xy=(share, 1.0),
            xycoords=ax.get_xaxis_transform(),
            xytext=(3, 2),
            textcoords="offset points",
            fontsize=7.5,
            color=MUTED,
        )
        names = [row.parameter + (f"  ({row.size:,})" if row.size else "") for row in rows]
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.45, -0.55)
        label_axis(ax.xaxis, whole)
        ax.set_xlabel("share of the parameter's coordinates that are active (in brackets: how many it has)")
        ax.grid(axis="y", visible=False)
        words = "; ".join(
            f"{row.parameter}: "
            + ", ".join(f"{method(m).label} {percent(v)}" for m, v in row.densities.items())
            for row in rows
        )
        return to_svg(figure, name, "Density of the support in every parameter", words)


def energy_chart(rows: Sequence[EnergyRow], name: str) -> str:
    """Left: retained energy beside the share of active coordinates. Right: energy dropped against noise saved."""
    with styled(name):
        figure, axes = subplots(1, 2, WIDTH, 0.95 + 0.27 * len(rows), sharey=True)
        left, right = axes[0]
        for place, row in enumerate(rows):
            look, kept = method(row.method), row.retained
            left.barh([place], [kept.mean], 0.55, color=look.colour, alpha=0.9)
            if kept.half_width:
                ends = max(kept.mean - kept.half_width, 0), min(kept.mean + kept.half_width, 1)
                left.plot(ends, [place, place], color=INK, lw=1.0)
            left.plot([row.share_active] * 2, [place - 0.38, place + 0.38], color=INK, lw=1.4)
            tone = look.colour if row.dropped < row.saved else ALERT
            if row.dropped > 0:
                right.plot([row.dropped], [place], ls="", marker="o", color=tone, ms=5.5, zorder=3)
            if row.dropped > 0 and row.saved > 0:
                right.plot([row.dropped, row.saved], [place, place], color=tone, lw=1.2, zorder=2)
                right.plot(
                    [row.saved], [place], ls="", marker="o", mfc=PAPER, mec=tone, mew=1.4, ms=5.5, zorder=3
                )
        labels = [
            f"{method(r.method).label}, {dataset_label(r.dataset)}, {epsilon_label(r.epsilon)}" for r in rows
        ]
        left.set_yticks(range(len(rows)), labels)
        left.set_ylim(len(rows) - 0.4, -0.6)
        left.set_xlim(0, 1)
        label_axis(left.xaxis, whole)
        left.set_title("Gradient energy kept (black mark: k/d, what chance keeps)", fontsize=8.5)
        right.set_title("Energy dropped ● against noise energy saved ○, per step", fontsize=8.5)
        if any(row.dropped > 0 for row in rows):
            _log_axis(right)
        for ax in (left, right):
            ax.grid(axis="y", visible=False)
        words = "; ".join(
            f"{label}: keeps {percent(r.retained.mean)} of the energy with {percent(r.share_active)} of the coordinates, "
            f"drops {r.dropped:.3g}, saves noise {r.saved:.3g}"
            for label, r in zip(labels, rows, strict=True)
        )
        return to_svg(figure, name, "Gradient energy kept and noise energy saved by the support", words)


def _log_axis(axes: Any) -> None:
    """A logarithmic x axis with plain numbers at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    wide = high / low > 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    label_axis(axes.xaxis, lambda value: f"{value:.10f}".rstrip("0").rstrip("."))


def ranking_chart(rows: Sequence[RankingRow], name: str) -> str:
    """Measured against predicted misranking, one point per seed, on the line if the prediction is right."""
    colours = [method(m).colour for m in ("tp_topk", "tp_rand", "on_topk", "on_rand", "dense")]
    with styled(name):
        figure, axes = subplots(1, 1, 4.4, 3.4)
        ax, labels = axes[0][0], list[tuple[float, str, str]]()
        values = [value for row in rows for point in row.points for value in point]
        low, high = max(min(values) - 0.03, 0), min(max(values) + 0.03, 1)
        ax.plot([low, high], [low, high], color=MUTED, lw=0.8, ls=(0, (4, 3)))
        for index, row in enumerate(rows):
            colour = colours[index % len(colours)]
            ax.plot(
                [x for x, _ in row.points],
                [y for _, y in row.points],
                ls="",
                marker="o",
                color=colour,
                alpha=0.8,
            )
            labels.append(
                (row.measured.mean, f"{dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}", colour)
            )
        ax.set_xlim(low, high)
        ax.set_ylim(low, high)
        ax.set_xlabel("predicted share of pairs ranked wrongly")
        ax.set_ylabel("measured share")
        ax.locator_params(nbins=5)
        for axis in (ax.xaxis, ax.yaxis):
            label_axis(axis, whole)
        end_labels(ax, labels)
        words = "; ".join(
            f"{t}: measured {r.measured.mean:.3f}, predicted {r.predicted.mean:.3f}"
            for (_, t, _), r in zip(labels, rows, strict=True)
        )
        return to_svg(figure, name, "Misranking, predicted and measured", words)


def audit_chart(rows: Sequence[AuditRow], name: str) -> str:
    """The claimed epsilon as a bar and the audit's lower bound as a point; red where it crosses."""
    with styled(name):
        figure, axes = subplots(1, 1, WIDTH, 0.85 + 0.36 * len(rows))
        ax, words, names = axes[0][0], list[str](), list[str]()
        for place, row in enumerate(rows):
            look, tone = method(row.method), ALERT if row.crossed else method(row.method).colour
            ax.barh([place], [row.claimed], 0.5, color=GRID)
            ax.plot([row.claimed] * 2, [place - 0.33, place + 0.33], color=INK, lw=1.6)
            if row.ceiling is not None:
                ax.plot([row.ceiling], [place], ls="", marker="|", ms=9, mew=1.2, color=MUTED)
            ax.plot([0, row.lower], [place, place], color=tone, lw=2.2, solid_capstyle="butt")
            ax.plot([row.lower], [place], ls="", marker="o", color=tone, ms=6.5)
            names.append(
                f"{look.label}, {dataset_label(row.dataset)}, {epsilon_label(row.epsilon)}, {row.space} space"
            )
            words.append(f"{names[-1]}: claimed {row.claimed:g}, at least {row.lower:.2f}")
            text = f"at least {row.lower:.2f}" + (": above the claim" if row.crossed else "")
            ax.annotate(
                text,
                xy=(row.lower, place),
                xytext=(6, 6),
                textcoords="offset points",
                fontsize=7.5,
                color=tone,
            )
        ax.set_yticks(range(len(rows)), names)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        top = max(
            [row.claimed for row in rows] + [row.lower for row in rows] + [row.ceiling or 0 for row in rows]
        )
        ax.set_xlim(0, top * 1.12)
        ax.set_xlabel(
            "ε: black mark = claimed; point = proven by the audit; grey mark = the most this audit could have proven"
        )
        ax.grid(axis="y", visible=False)
        return to_svg(figure, name, "ε claimed beside ε audited", "; ".join(words))


def sweep_chart(sweep: Sweep, name: str) -> str:
    """Accuracy of TP-TopK, and its gain over TP-Rand, against a swept setting."""
    label = {"share": "share of the budget for the warm-up", "ratio": "active share of the coordinates"}
    look, xs = method("tp_topk"), [point.value for point in sweep.points]
    with styled(name):
        figure, axes = subplots(1, 2, WIDTH, 2.7)
        left, right = axes[0]
        _series(left, xs, [point.accuracy for point in sweep.points], look.colour, 100)
        gains = [(p.value, p.gain) for p in sweep.points if p.gain]
        _series(right, [x for x, _ in gains], [gain for _, gain in gains], look.colour, 100)
        right.axhline(0, color=INK, lw=0.8)
        left.set_title("TP-TopK, test accuracy in %", fontsize=8.5)
        right.set_title("Gain over TP-Rand, points, same seeds", fontsize=8.5)
        for ax in (left, right):
            ax.set_xlabel(label.get(sweep.name, sweep.name))
            if sweep.name == "ratio":
                ax.set_xscale("log")
            ax.set_xticks(xs, [f"{x:g}" for x in xs])
            ax.minorticks_off()
        words = "; ".join(f"{p.value:g}: accuracy {percent(p.accuracy.mean)}" for p in sweep.points)
        title = f"{dataset_label(sweep.dataset)}, {epsilon_label(sweep.epsilon)}: {label.get(sweep.name, sweep.name)}"
        return to_svg(figure, name, title, words)


def _series(axes: Any, xs: Sequence[float], means: Sequence[MeanInterval], colour: str, scale: float) -> None:
    axes.plot(xs, [scale * mean.mean for mean in means], color=colour, marker="o", lw=1.2)
    for x, mean in zip(xs, means, strict=True):
        if mean.half_width:
            ends = [scale * (mean.mean - mean.half_width), scale * (mean.mean + mean.half_width)]
            axes.plot([x, x], ends, color=colour, lw=1.4, solid_capstyle="butt")
