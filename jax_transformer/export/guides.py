"""The README.md of an exported model: what it is, what it needs, and code that runs it."""

from string import Template

from jax_transformer.export.arrays import Format
from jax_transformer.runs.loading import Trained

HEAD = Template("""\
# $experiment, $source_language to $target_language

A Transformer of $num_layers + $num_layers layers, d_model $d_model, $num_heads heads, and $pieces
pieces of a shared vocabulary, from $steps. Sources are cut after $max_source
pieces, as they were in training.

""")

CTRANSLATE2 = Template("""\
For CTranslate2, $precision. `pip install ctranslate2 sentencepiece`, then in this folder:

```python
import ctranslate2
import sentencepiece

vocabulary = sentencepiece.SentencePieceProcessor()
vocabulary.Load("vocabulary.model")
translator = ctranslate2.Translator(".", device="cpu")

lines = open("source.txt", encoding="utf-8", newline="\\n").read().split("\\n")[:-1]
# By their ids, so that a character without a piece is <unk> however it is spelled.
sources = [[vocabulary.IdToPiece(i) for i in vocabulary.EncodeAsIds(line)] for line in lines]
results = translator.translate_batch(
    sources, beam_size=1, max_input_length=$max_length, max_decoding_length=$max_target
)
for result in results:
    print(vocabulary.DecodePieces(result.hypotheses[0]))
```

The end mark of the source and the start of the target are put in by CTranslate2 (`config.json`).

- Beam search: `beam_size=$beam_size, length_penalty=$alpha` is the nearest to what the model was
  scored with, not the same. CTranslate2 divides log P by |y|^alpha, the paper by
  ((5 + |y|) / 6)^alpha; choose `length_penalty` anew on development text. $stopping Greedy
  search is the same.
- `score_batch` gives log P of each piece of a given translation and of its end.
- An output that reaches `max_decoding_length` ends there without the end mark; we allow
  $max_extra_length more than the source's.
""")

MARIAN = Template("""\
For Hugging Face's transformers. `pip install torch transformers sentencepiece`, then in this
folder:

```python
import torch
from transformers import MarianMTModel, MarianTokenizer

tokenizer = MarianTokenizer.from_pretrained(".")
model = MarianMTModel.from_pretrained(".")
for module in model.modules():
    if isinstance(module, torch.nn.LayerNorm):
        module.eps = 1e-6  # as in training; Marian has 1e-5, and no setting for it

lines = open("source.txt", encoding="utf-8", newline="\\n").read().split("\\n")[:-1]
batch = tokenizer(lines, return_tensors="pt", padding=True, truncation=True)
outputs = model.generate(**batch, num_beams=1, max_length=$max_target)
for line in tokenizer.batch_decode(outputs, skip_special_tokens=True):
    print(line)
```

- Beam search: `generation_config.json` asks for $beam_size beams and `length_penalty` $alpha, the
  nearest to what the model was scored with, not the same: `generate` divides log P by |y|^alpha,
  the paper by ((5 + |y|) / 6)^alpha. Choose it anew on development text. Greedy search is the same.
- Without the lines on `eps` log P differs in the fourth decimal.
- A character without a piece is skipped in outputs; a line that begins with `>>xx<<` loses that,
  as Marian takes it for a language.
$positions""")

WITHOUT_PATIENCE = """\
And it leaves a sentence
  as our `--patience 1` does, where ours goes on until nothing can change the answer."""

WITH_PATIENCE = """\
It leaves a sentence
  when enough outputs have ended, as ours does: `patience=$patience`."""

SINUSOIDS = """\
- Dimensions of d_model are in another order than in the run folder: even ones before odd ones, as
  Marian's sinusoids are.
"""

LEARNED = """\
- Positions are learned. They are in `model.safetensors`, but `save_pretrained` leaves them out, so
  keep this folder.
"""

SAFETENSORS = Template("""\
The arrays as the package `jax_transformer` names them, and its settings in `config.json`. Kernels
are [inputs, outputs], those of attention [d_model, heads, width] and back.

On NumPy alone, greedy, a sentence at a time: `pip install numpy safetensors sentencepiece`, then

```
python translate.py < source.txt > translations.txt
```

In Python, in this folder:

```python
from pathlib import Path

from translate import Model

model = Model(Path("."))
for line in open("source.txt", encoding="utf-8", newline="\\n"):
    print(model.translate(line))
```

`translate.py` is short and follows the paper: a place to start from for another language.
""")


def guide(target: Format, trained: Trained, quantization: str | None = None) -> str:
    """The text of README.md."""
    config = trained.run.config
    steps = [f"{step:,}" for step in trained.steps]
    facts = {
        **vars(config.model),
        **vars(config.decoding),
        "experiment": trained.run.experiment,
        "source_language": config.data.source_language,
        "target_language": config.data.target_language,
        "pieces": f"{trained.vocabulary.size:,}",
        "steps": f"step {steps[0]}"
        if len(steps) == 1
        else f"the average of steps {steps[0]} to {steps[-1]}",
        "max_source": config.data.max_length - 1,
        "max_length": config.data.max_length,
        "max_target": config.data.max_length + config.decoding.max_extra_length,
        "precision": "weights in int8" if quantization else "in float32",
        "positions": LEARNED if config.model.positions == "learned" else SINUSOIDS,
    }
    facts["stopping"] = Template(
        WITH_PATIENCE if config.decoding.patience else WITHOUT_PATIENCE
    ).substitute(facts)
    bodies = {"ctranslate2": CTRANSLATE2, "marian": MARIAN, "safetensors": SAFETENSORS}
    return HEAD.substitute(facts) + bodies[target].substitute(facts)
