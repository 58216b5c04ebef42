"""Write one HTML file that shows the attention weights of each token in every layer and head.

python -m experiments.visualize --workdir W --text "A sentence." [--target "Ein Satz."]
                                [--output F] [--checkpoint averaged|best|last|STEP]

The file needs no network and can be sent to anyone: source and translation, which of their words
belong together, a picker of layers and heads, and the weights of the token that the pointer or the
keyboard is on.
"""

from pathlib import Path

from absl import app, flags

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
from jax_transformer.runtime import prepare_process

MARK = "<title>Attention</title>"  # in the head of each page

define_model_flags()
flags.DEFINE_string("text", None, "Sentence to translate and look at.")
flags.DEFINE_string("target", None, "Show this translation instead of the model's.")
define_path("output", "File to write (default: attention.html in the run folder).")


@cli.command
def main() -> None:
    """Translate --text, collect the attention weights of the pair, and write the page."""
    source = single_line(required("text"), "--text").strip()
    folder, run, config = trained_run()
    run.task.require("translates", "experiments.visualize")
    output = Path(FLAGS.output or folder.path / "attention.html")
    if is_url(FLAGS.output):
        raise InputError(
            f"--output={FLAGS.output}: an address cannot be written to; give a local file"
        )
    name = f"--output={output}" if FLAGS.output else str(output)
    cli.check_output(output, name, MARK, "an attention page")
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
    with folder.written():
        write_text(output, page)
    cli.show(target)
    cli.show(f"written to {folder.shown(output)}")


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse_flags)
