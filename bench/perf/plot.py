# SPDX-License-Identifier: Apache-2.0
"""Draws what `collectx_perf --json` writes (standard input) to the picture that is named: time and bus bandwidth over size."""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#8c6d31", "#444444"]
MARKERS = "osD^v<>PX"


def size_name(size, _=None):
    for power, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if size >= 1 << power:
            return f"{size / (1 << power):g}{suffix}"
    return f"{size:g}"


def panels(rows):
    """One per collective, and per type, operation and root where there are several."""
    found = {}
    for row in rows:
        title = row["collective"]
        for key in ("type", "redop", "root"):
            if len({r[key] for r in rows if r["collective"] == title}) > 1:
                title += f", {key} {row[key]}" if key == "root" else f", {row[key]}"
        found.setdefault(title, {}).setdefault(row["algorithm"], []).append(row)
    return found


def values(rows, key):
    points = [(r["bytes"], (r["out_of_place"] or r["in_place"])[key]) for r in rows]
    return [p[0] for p in points], [p[1] for p in points]


def main():
    picture = sys.argv[1]
    data = json.load(sys.stdin)
    data["rows"] = [r for r in data["rows"] if r["bytes"] > 0]
    if not data["rows"]:
        sys.exit("plot.py: every size is 0: there is nothing to draw")
    found = panels(data["rows"])
    names = list(dict.fromkeys(r["algorithm"] for r in data["rows"]))
    look = {}
    for i, name in enumerate(n for n in names if n != "auto"):
        look[name] = dict(color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], markersize=3.5, linewidth=1.2)
    look["auto"] = dict(color="black", linewidth=3.2, alpha=0.25, zorder=1)

    columns = len(found)
    figure, axes = plt.subplots(2, columns, figsize=(max(3.3 * columns, 7), 6.4), squeeze=False, sharex="col")
    for column, (title, algorithms) in enumerate(found.items()):
        for line, (key, label) in enumerate((("time_us", "time per call (µs)"), ("busbw", "bus bandwidth (GB/s)"))):
            panel = axes[line][column]
            for name, rows in algorithms.items():
                panel.plot(*values(rows, key), label=name, **look[name])
            panel.set_xscale("log", base=2)
            panel.xaxis.set_major_formatter(FuncFormatter(size_name))
            panel.grid(True, which="major", color="#dddddd", linewidth=0.6)
            panel.set_axisbelow(True)
            for side in ("top", "right"):
                panel.spines[side].set_visible(False)
            if column == 0:
                panel.set_ylabel(label)
        axes[0][column].set_yscale("log")
        axes[1][column].set_ylim(bottom=0)
        axes[0][column].set_title(title, fontsize=10)
        axes[1][column].set_xlabel("size (B)")

    times = [panel.get_ylim() for panel in axes[0]]
    for panel in axes[0]:
        panel.set_ylim(min(t[0] for t in times), max(t[1] for t in times))

    handles = {}
    for panel in axes[0]:
        for handle, label in zip(*panel.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    per_line = min(len(handles), int(figure.get_figwidth() / 2))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=per_line, frameon=False, fontsize=9)
    types = {(r["type"], r["redop"]) for r in data["rows"] if r["redop"] != "none"}
    what = f", {types.copy().pop()[0]} {types.copy().pop()[1]}" if len(types) == 1 else ""
    figure.suptitle(f"{data['ranks']} ranks over {data['transport']}{what}: {data['processor']}, {data['cores']} cores", fontsize=11)
    legend_lines = -(-len(handles) // per_line)
    figure.tight_layout(rect=(0, 0.02 + 0.035 * legend_lines, 1, 1))
    figure.savefig(picture, dpi=150)


main()
