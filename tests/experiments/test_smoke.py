"""From text to a score and translations, once through all of it, small enough for any Python."""

import json

from doors import Doors, setting_flags

TINY = setting_flags(
    training__steps=3,
    training__checkpoint_steps=3,
    training__evaluate_steps=100,
    training__batch_tokens=600,
    decoding__batch_tokens=4096,
    data__vocabulary_size=1000,
    data__max_length=10,
)


def test_the_demo_trains_scores_and_translates(tmp_path):
    doors = Doors(tmp_path / "compiled")
    workdir = f"--workdir={tmp_path / 'demo'}"
    said = doors.run("train", workdir, *TINY, "--set=decoding.beam_size=1").stdout
    assert "from step 0 to 3" in said
    assert "BLEU" in said
    done = doors.run("translate", workdir, "--beam_size=2", stdin=b"The dog sleeps.\n\nHello.\n")
    out = done.stdout.split("\n")
    assert (len(out), out[1], out[3]) == (4, "", "")
    doors.run("evaluate", workdir, "--split=dev", "--checkpoint=3", "--beam_size=1")
    results = json.loads((tmp_path / "demo" / "results.json").read_text(encoding="utf-8"))
    assert [(r["metric"], r["split"], r["checkpoint"]) for r in results[:2]] == [
        ("bleu", "test", "averaged"),
        ("bleu", "dev", "3"),
    ]
    assert {"bleu_paper", "chrf", "perplexity"} <= {r["metric"] for r in results[2:]}
