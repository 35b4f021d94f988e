# SPDX-License-Identifier: Apache-2.0
"""Draws the lines `epoch loss accuracy loss_alone accuracy_alone` of its standard input to the picture that is named."""
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

rows = [[float(word) for word in line.split()] for line in sys.stdin]
epoch, loss, accuracy, loss_alone, accuracy_alone = zip(*rows)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8))
left.plot(epoch, loss_alone, color="#d55e00", linewidth=4, alpha=0.4, label="one process alone")
left.plot(epoch, loss, color="#0072b2", linewidth=1.3, label=sys.argv[2])
left.set_yscale("log")
left.set_ylabel("cross entropy on the training set")
right.plot(epoch, [100 * a for a in accuracy_alone], color="#d55e00", linewidth=4, alpha=0.4)
right.plot(epoch, [100 * a for a in accuracy], color="#0072b2", linewidth=1.3)
right.axhline(95, color="#888888", linewidth=0.8, linestyle=":")
right.set_ylabel("right on the test set (%)")
for panel in (left, right):
    panel.set_xlabel("epoch")
    panel.grid(True, color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
left.legend(frameon=False)
figure.suptitle("one model trained on several ranks: handwritten digits", fontsize=11)
figure.tight_layout()
figure.savefig(sys.argv[1], dpi=150)
