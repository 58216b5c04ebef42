"""Draw the pictures of this folder: the training curve of a run, and its page of attention weights.

python docs/pictures/draw.py runs/demo [--chromium /usr/bin/chromium]

Needs `pip install -e '.[notebooks,test]'`, a Chromium, and the attention.html that this command
writes: python -m experiments.visualize --workdir=runs/demo --text="..."
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
from playwright.sync_api import sync_playwright

HERE = Path(__file__).parent


def draw_curve(metrics: Path, picture: Path) -> None:
    """Loss of training and of the dev set over the steps, and the dev set's greedy BLEU."""
    lines = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    train, dev = ([line for line in lines if line["split"] == s] for s in ("train", "dev"))
    figure, axes = plt.subplots(1, 2, figsize=(8.4, 2.9), layout="constrained")
    axes[0].plot([p["step"] for p in train], [p["loss"] for p in train], label="training")
    axes[0].plot([p["step"] for p in dev], [p["loss"] for p in dev], "o", label="development set")
    axes[0].set(xlabel="step", title="loss, nats per token", yscale="log", yticks=[0.1, 1, 5])
    axes[0].set_yticklabels(["0.1", "1", "5"])
    axes[0].legend(frameon=False)
    axes[1].plot([p["step"] for p in dev], [p["greedy_bleu"] for p in dev], "o-", color="C1")
    axes[1].set(xlabel="step", title="BLEU of the development set, greedy", ylim=(0, 100))
    for axis in axes:
        axis.set_xlim(left=0)
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(picture, dpi=110)


def photograph_page(page: Path, picture: Path, chromium: str) -> None:
    """The page with what the decoder looks at in the source when it writes the last word."""
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 900, "height": 800})
        tab.goto(page.absolute().as_uri())
        tab.locator("#queries .token").nth(-3).click()
        tab.mouse.move(0, 0)
        tab.screenshot(path=picture, full_page=True)
        browser.close()


def main() -> None:
    """Draw both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the run folder")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    arguments = parser.parse_args()
    draw_curve(arguments.run / "metrics.jsonl", HERE / "training-curve.png")
    photograph_page(arguments.run / "attention.html", HERE / "attention.png", arguments.chromium)


if __name__ == "__main__":
    main()
