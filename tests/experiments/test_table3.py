"""Table 3 in miniature, as a person runs it: rows trained once, a table of what came out."""

import json
import re

import pytest
from commands import only_error, run_command, setting_flags, text_flags

from experiments.tables import Table3Row, miniature_table
from jax_transformer.presets import EXPERIMENTS
from jax_transformer.presets.small import BASE, COUNTERPARTS, MINIATURE

# What the shared run was trained with, so that little is compiled anew. The table chooses what to
# average itself.
TINY = [
    flag for flag in setting_flags(training__learning_rate_scale=1.0) if "average_last" not in flag
]


def cells(output: str) -> dict[str, list[str]]:
    """Row name -> cells of the Markdown table in a command's output."""
    rows = [line.strip("| ").split(" | ") for line in output.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in rows if row[0] != "row"}


@pytest.mark.release
def test_rows_are_trained_once_and_shown_with_what_was_measured(text, tmp_path):
    row = "--row=miniature-D-dropout0.0"
    table = tmp_path / "table3.md"
    table.write_text("my notes")
    command = ["table3", *text_flags(text), f"--workdir={tmp_path}", row, *TINY]
    assert "table3.md" in only_error(*command)
    assert [*tmp_path.iterdir()] == [table]  # somebody else's is not replaced
    table.unlink()
    command += ["--set=training.steps=3", "--seeds=2"]
    _, output, log = run_command(*command)
    assert log.count("warning: ") == 4  # one for each row and seed
    assert "the learning rate never peaks: training.steps=3 is below training.warmup_steps=" in log
    assert re.search("\n1 of 4 rows left, about [0-9.]+ minutes here\n", log)
    assert "reference" not in output  # no samples between the rows
    table = cells(output)
    assert list(table) == ["base", "D-dropout0.0"]
    for name, row in table.items():
        means = []
        for seed, within in ((1, "."), (2, "seed-2")):
            folder = tmp_path / within / f"miniature-{name}"
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").open(encoding="utf-8")]
            assert [line["step"] for line in lines if line["split"] == "dev"] == [3]
            assert json.loads((folder / "config.json").read_text())["seed"] == seed
            scores = json.loads((folder / "results.json").read_text(encoding="utf-8"))
            metrics = [score["metric"] for score in scores]
            assert metrics == ["bleu", "loss", "nll", "perplexity"]
            assert all((score["split"], score["steps"]) == ("dev", [3]) for score in scores)
            assert scores[-1]["score"] == pytest.approx(lines[-1]["perplexity"], rel=1e-5)
            means.append((scores[-1]["score"], scores[0]["score"]))
            folder.joinpath("metrics.jsonl").unlink()  # no score depends on it
        for cell, of_seeds, digits in zip(row, zip(*means, strict=True), (3, 2), strict=False):
            assert cell.split()[0] == f"{sum(of_seeds) / 2:.{digits}f}"
    again = run_command(*command).stdout
    assert cells(again) == table
    assert not list(tmp_path.rglob("metrics.jsonl")), "trained again"
    assert cells((tmp_path / "table3.md").read_text(encoding="utf-8")) == table

    fewer = run_command(*command, "--set=training.steps=2", fails=2).stderr
    assert "training.steps=2: expected at least 3, which are trained" in fewer


def test_each_row_differs_from_the_small_base_as_its_counterpart_from_the_paper_s():
    assert set(COUNTERPARTS) == set(MINIATURE)
    base, paper = (EXPERIMENTS[name] for name in ("miniature-base", "table3-base"))
    assert dict(base.changes) == BASE
    for name, counterpart in COUNTERPARTS.items():
        ours, theirs = EXPERIMENTS[name].config(), EXPERIMENTS[counterpart].config()
        small, large = base.config(), paper.config()
        for part in ("num_heads", "d_k", "d_v", "num_layers", "d_ff", "positions", "dropout_rate"):
            changed = getattr(ours.model, part) != getattr(small.model, part)
            assert changed == (getattr(theirs.model, part) != getattr(large.model, part)), name
        smoothing = ours.training.label_smoothing
        assert smoothing == theirs.training.label_smoothing


def test_rows_agree_if_both_are_on_the_same_side_of_base():
    rows = [
        Table3Row("miniature-base", 5.0, 20.0),
        Table3Row("miniature-A-h1", 5.5, 21.0),  # the paper's: worse in both
        Table3Row("miniature-E-learned", 9.0, 20.1),  # the paper's: as base
        Table3Row("miniature-D-smoothing0.0", 5.01, 19.0),  # better PPL, worse BLEU
    ]
    verdicts = [row[-1] for row in cells(miniature_table([[row] for row in rows])).values()]
    assert verdicts[1:] == ["PPL yes, BLEU no", "PPL no, BLEU yes", "PPL unclear, BLEU yes"]


def test_with_several_seeds_a_difference_must_exceed_two_standard_errors():
    def seeds(name, *scores):
        return [Table3Row(name, perplexity, bleu) for perplexity, bleu in scores]

    rows = [
        seeds("miniature-base", (5.0, 20.0), (5.1, 20.4), (4.9, 20.2)),
        # The difference in BLEU is 0.4 with a standard error of sqrt((0.04 + 0.16) / 3) = 0.26.
        seeds("miniature-A-h1", (5.4, 19.8), (5.3, 20.2), (5.5, 19.4)),
    ]
    table = cells(miniature_table(rows))
    assert table["base"][:2] == ["5.000 ± 0.100", "20.20 ± 0.20"]
    assert table["A-h1"][:2] == ["5.400 ± 0.100", "19.80 ± 0.40"]
    assert table["A-h1"][-1] == "PPL yes, BLEU unclear"
