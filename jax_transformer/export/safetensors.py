"""A trained model as safetensors: our own arrays by our own names, and a script for NumPy alone."""

import dataclasses
import json
import shutil
from pathlib import Path

from jax_transformer.export.arrays import flat_arrays
from jax_transformer.export.model_readme import model_readme
from jax_transformer.files import write_text
from jax_transformer.runs.loading import TrainedModel

_README = """\
The arrays as the package `jax_transformer` names them, and its settings in `config.json`. Kernels
are [inputs, outputs]; those of attention are [d_model, heads, width], and W^O's is [heads, width,
d_model].

To translate on NumPy alone, greedily, one sentence at a time: `pip install numpy safetensors
sentencepiece`, then

```
python translate.py < source.txt > translations.txt
```

In Python, in this folder:

```python
from pathlib import Path

from translate import Model

model = Model(Path("."))
with open("source.txt", encoding="utf-8", newline="\\n") as lines:
    for line in lines:
        print(model.translate(line))
```

`translate.py` is short and follows the paper: a place to start from for another language.
"""


def write_safetensors(trained: TrainedModel, vocabulary: Path, out: Path) -> None:
    """Write arrays, settings, vocabulary, translate.py and README.md into the folder `out`."""
    from safetensors.numpy import save

    # save_file would make a file that its owner alone can read.
    (out / "model.safetensors").write_bytes(save(flat_arrays(trained.params)))
    config, ids = trained.run.config, trained.vocabulary
    settings = {
        "experiment": trained.run.experiment,
        "steps": trained.steps,
        "vocabulary_size": ids.size,
        "pad_id": ids.pad_id,
        "bos_id": ids.bos_id,
        "eos_id": ids.eos_id,
        "unk_id": ids.unk_id,
        "max_length": config.data.max_length,
        "max_extra_length": config.decoding.max_extra_length,
        "model": dataclasses.asdict(config.model),
    }
    write_text(out / "config.json", json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
    shutil.copyfile(vocabulary, out / "vocabulary.model")
    shutil.copyfile(Path(__file__).with_name("numpy_translate.py"), out / "translate.py")
    write_text(out / "README.md", model_readme(_README, trained))
