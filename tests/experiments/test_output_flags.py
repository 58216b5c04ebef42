"""translate with samples, prefixes, constraints and ensembles."""

import pytest
from commands import only_error, run_command

LINES = b"a b c d\n\nb c\nd a b\n"


def translated(run, *flags, text=LINES):
    done = run_command("translate", f"--workdir={run}", *flags, stdin=text)
    return done.stdout.split("\n")[:-1]


def test_samples_are_written_one_a_line_and_are_those_of_any_window(fluent):
    flags = ["--samples=3", "--temperature=1.5", "--seed=2"]
    whole = translated(fluent, *flags)
    assert len(whole) == 12
    assert whole[3:6] == ["", "", ""]
    assert translated(fluent, *flags, "--window=2") == whole
    assert translated(fluent, "--samples=3", "--temperature=1.5") != whole


def test_outputs_begin_with_the_lines_of_a_file(fluent, tmp_path):
    plain = translated(fluent)
    prefix = plain[2].split()[0]
    (tmp_path / "prefixes").write_text(f"{prefix}\n\n\n{prefix}\n", encoding="utf-8")
    outputs = translated(fluent, f"--prefixes={tmp_path / 'prefixes'}")
    assert outputs[0].split()[0] == outputs[3].split()[0] == prefix
    assert outputs[2] == plain[2]


def test_a_forbidden_word_does_not_come_out(fluent):
    word = next(filter(None, translated(fluent))).split()[0]
    outputs = translated(fluent, f"--without={word}")
    assert all(word not in output.split()[:-1] for output in outputs)


def test_a_model_twice_translates_as_once(fluent):
    assert translated(fluent, f"--ensemble={fluent}", "--ensemble_weights=2,1") == translated(
        fluent
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--temperature=0.5"], "--temperature=0.5: expected --samples with it"),
        (["--samples=2", "--n_best=2"], "cannot be combined with --"),
        (["--ensemble_weights=1,2"], "expected --ensemble with it"),
        (["--ensemble={run}", "--ensemble_weights=1,x"], "give numbers, as in 2,1"),
        (["--ensemble={run}", "--ensemble_weights=1"], "weights: expected 2 numbers above 0"),
        (["--prefixes={run}/config.json"], "expected a line with it, found no more"),
    ],
)
def test_what_makes_no_sense_is_one_line(fluent, given, message):
    flags = [flag.format(run=fluent) for flag in given]
    error = only_error("translate", f"--workdir={fluent}", *flags, stdin=LINES)
    assert message in error
