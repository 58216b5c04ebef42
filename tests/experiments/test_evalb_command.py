"""experiments.evalb: what it prints."""

from commands import run_command

GOLD = "(S (A (x a) (x b)) (x c))\n(S (x d))\n(S (x e))\n"
TEST = "(S (x a) (A (x b) (x c)))\n\n(S (x f))\n"
HEAD = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
"""
ROWS = """\
   1    3    0   50.00  50.00     1      2    2      1      3     3   100.00
   2    1    2    0.00   0.00     0      0    0      0      0     0     0.00
   3    1    1    0.00   0.00     0      0    0      0      0     0     0.00
"""
TOTAL = "                 50.00  50.00      1     2     2      1      3     3   100.00\n"
SHORT = """
-- len<=2 --
Number of sentence        =      2
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      0
Bracketing Recall         =   0.00
"""


def files(folder, gold=GOLD, test=TEST):
    for name, content in (("gold", gold), ("test", test)):
        (folder / name).write_text(content, encoding="utf-8")
    return str(folder / "gold"), str(folder / "test")


def test_the_report_has_evalbs_layout_and_errors_are_logged(tmp_path):
    gold, test = files(tmp_path)
    done = run_command("evalb", gold, test, "--cutoff_len=2")
    rule = "=" * 76 + "\n"
    assert done.stdout.startswith(HEAD + rule + ROWS + rule + TOTAL + "=== Summary ===\n\n-- All")
    assert SHORT in done.stdout
    assert done.stderr == f"warning: {test}, line 3: Words unmatch (e|f); left out\n"


def test_it_stops_one_error_after_max_error_as_evalb_does(tmp_path):
    sentences = ["(S (x a))\n"] * 5
    pair = files(tmp_path, "".join(sentences), "(S (x b))\n" * 3 + "".join(sentences[3:]))
    run_command("evalb", *pair, "--max_error=2")
    done = run_command("evalb", *pair, "--max_error=1", fails=2)
    assert done.stdout == ""
    assert "line 3: expected at most 2 sentences" in done.stderr.splitlines()[-1]
