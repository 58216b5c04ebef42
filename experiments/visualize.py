"""Write one HTML file that shows the attention weights of a sentence pair, or runs the model live.

python -m experiments.visualize --workdir W --text "A sentence." [--target "Ein Satz."]
                                [--output F] [--checkpoint averaged|best|last|STEP]
python -m experiments.visualize --workdir W --live [--output F]

The file needs no network and can be sent to anyone: source and translation, which of their words
belong together, a picker of layers and heads, and the weights of the token that the pointer or the
keyboard is on. With --live it contains the model itself, which translates what a person types.
"""

from pathlib import Path

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import (
    define_model_flags,
    define_path,
    required,
    trained_run,
)
from jax_transformer.data.text import single_line
from jax_transformer.data.urls import is_url
from jax_transformer.errors import InputError
from jax_transformer.files import write_text
from jax_transformer.runs.run_dir import RunFolder
from jax_transformer.runtime import prepare_process

MARK = "<title>Attention"  # in the head of each page

define_model_flags()
flags.DEFINE_string("text", None, "Sentence to translate and look at.")
flags.DEFINE_string("target", None, "Show this translation instead of the model's.")
flags.DEFINE_bool("live", False, "Write a page that runs the model on what a person types.")
define_path("output", "File to write (default: attention.html or live.html in the run folder).")


@cli.command
def main() -> None:
    """Write the page of a sentence pair, or with --live that of the model."""
    if FLAGS.live:
        _write_live_page()
    else:
        _write_attention_page()


def _write_live_page() -> None:
    """Write the page that contains the model."""
    for name in ("text", "target"):
        if FLAGS[name].value is not None:
            raise InputError(f"--{name} cannot be combined with --live; remove one of them")
    folder, _, config = trained_run()
    output = _output(folder, "live.html")
    prepare_process()
    from jax_transformer.runs.load import load
    from jax_transformer.viewer.live_page import live_page

    _write(folder, output, live_page(load(folder, FLAGS.checkpoint), config.decoding))


def _write_attention_page() -> None:
    """Translate --text, collect the attention weights of the pair, and write the page."""
    source = single_line(required("text"), "--text").strip()
    folder, run, config = trained_run()
    run.task.require("translates", "experiments.visualize")
    output = _output(folder, "attention.html")
    prepare_process()
    from jax_transformer.decoding.alignments import sentence_tokens
    from jax_transformer.runs.load import load
    from jax_transformer.viewer.attention_page import attention_page

    model = load(folder, FLAGS.checkpoint)
    translator = model.translator(config.decoding)
    sentence_tokens(translator.vocabulary, "--text", source, translator.max_source)
    if FLAGS.target is None:
        (found,) = translator.translate_lines([source])
        target = found[0].text if found else ""
    else:
        target = single_line(FLAGS.target, "--target").strip()
        sentence_tokens(translator.target_vocabulary, "--target", target, translator.max_source)
    page = attention_page(model, source, target, forced=FLAGS.target is not None)
    cli.show(target)
    _write(folder, output, page)


def _output(folder: RunFolder, name: str) -> Path:
    """Return the file to write. Raises InputError if it would replace another program's."""
    output = Path(FLAGS.output or folder.path / name)
    if is_url(FLAGS.output):
        raise InputError(
            f"--output={FLAGS.output}: an address cannot be written to; give a local file"
        )
    name = f"--output={output}" if FLAGS.output else str(output)
    cli.check_output(output, name, MARK, "an attention page")
    return output


def _write(folder: RunFolder, output: Path, page: str) -> None:
    with folder.written():
        write_text(output, page)
    cli.show(f"written to {folder.shown(output)}")


if __name__ == "__main__":
    cli.run(main)
