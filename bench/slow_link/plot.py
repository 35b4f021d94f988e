#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the table that slow_link --csv has written: plot.py TABLE.csv PICTURE.png"""
import csv
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

with open(sys.argv[1], newline="") as table:
    rows = list(csv.DictReader(table))
figure, axes = plt.subplots(figsize=(6, 4))
for i, row in enumerate(rows):
    flat, levels = float(row["flat_ms"]), float(row["two_level_ms"])
    axes.bar(i - 0.2, flat, 0.38, color="tab:gray", label="flat ring" if i == 0 else None)
    axes.bar(i + 0.2, levels, 0.38, color="tab:blue", label="two levels" if i == 0 else None)
    axes.text(i, flat, f"{flat / levels:.2f}x (bytes predict {float(row['predicted']):.1f}x)", ha="center", va="bottom")
axes.set_xticks(range(len(rows)), [row["placement"] for row in rows])
axes.set_xlabel("host of ranks 0, 1, 2, 3")
axes.set_ylabel("all_reduce (ms)")
axes.set_title(f"{int(rows[0]['bytes']) >> 20} MiB over a slow link between two hosts")
axes.legend()
figure.tight_layout()
figure.savefig(sys.argv[2], dpi=120)
