"""Make a run folder from a model that another program trained.

python -m experiments.import_model --input FOLDER|hf://OWNER/NAME[@REVISION] --workdir W
                                   [--format marian] [--normalize_punctuation]

  marian       Hugging Face's MarianMTModel, such as those of OPUS-MT
  fsmt         Hugging Face's FSMTForConditionalGeneration
  marian-npz   Marian's own files
  ctranslate2  CTranslate2, and packages of Argos Translate
  fairseq      fairseq's Transformer

docs/published-models.md lists the files. Nothing in the folder is executed. Afterwards W is a run
like any other: the commands translate, score, evaluate, visualize, serve and export work on it, and
experiments.train --init_from=W trains it further.
"""

from absl import flags

from experiments import cli
from experiments.cli import FLAGS
from experiments.shared_flags import define_path, define_workdir, required, run_folder
from jax_transformer.formats import READ_FORMATS, import_model

define_workdir("The run folder to make, new or empty.")
flags.DEFINE_enum(
    "format", None, READ_FORMATS, "Format of the model (default: found by the names of its files)."
)
define_path(
    "input",
    "Folder to read; a zip of it, such as FILE.argosmodel; or hf://OWNER/NAME or "
    "hf://OWNER/NAME@REVISION, a model of the Hugging Face hub.",
)
flags.DEFINE_boolean(
    "normalize_punctuation",
    False,
    "Normalize the punctuation of sources by Moses' rules before they are segmented, as was done "
    "with the training text of OPUS-MT's models.",
)


@cli.command
def main() -> None:
    """Read, check, and write the run folder whole or not at all."""
    folder = run_folder()
    imported = import_model(
        required("input"),
        folder,
        format=FLAGS.format,
        normalize_punctuation=FLAGS.normalize_punctuation,
    )
    model, decoding = imported.config.model, imported.config.decoding
    both = dict.fromkeys([imported.vocabulary, imported.target_vocabulary])
    sizes = " + ".join(f"{vocabulary.size:,}" for vocabulary in both)
    cli.show(
        f"imported    {model.num_layers} + {model.num_decoder_layers} layers, d_model "
        f"{model.d_model}, {sizes} pieces; beam {decoding.beam_size}, alpha {decoding.alpha:g}"
    )
    cli.show("translate with")
    cli.show(f"  python -m experiments.translate --workdir {folder.quoted} < source.txt")


if __name__ == "__main__":
    cli.run(main)
