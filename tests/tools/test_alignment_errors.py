"""tools.alignment_errors beside the definition of AER."""

import pytest
from small_run import write_run

import jax_transformer as jt
from jax_transformer.demo import sentence_pairs
from tools import alignment_errors
from tools.demo.gold_alignments import gold_lines


@pytest.mark.release
def test_each_head_and_the_mean_have_the_error_rate_of_their_links(tmp_path, monkeypatch, capsys):
    sources, targets = zip(*sentence_pairs("dev"), strict=True)
    lines = [*sources, *targets]
    run = write_run(tmp_path / "run", "data.max_length=60", lines=lines, pieces=200)
    monkeypatch.setattr("sys.argv", ["alignment_errors", f"--workdir={run}", "--split=dev"])
    alignment_errors.main()
    _, line = capsys.readouterr().out.splitlines()
    model, expected = jt.load(run), []
    for head in (None, 0, 1):
        both = sizes = 0
        links = model.align(sources, targets, layer=0, head=head)
        for found, gold in zip(links, gold_lines("dev"), strict=True):
            found = {f"{i}-{j}" for i, j in found}
            sure = {link for link in gold.split() if "p" not in link}
            possible = {link.replace("p", "-") for link in gold.split()}
            both += len(found & sure) + len(found & possible)
            sizes += len(found) + len(sure)
        expected.append(f"{100 * (1 - both / sizes):.1f}")
    mean, *heads = expected
    assert line == f"layer 0: mean of the heads {mean}; heads {', '.join(heads)}"
    assert len(set(expected)) > 1
