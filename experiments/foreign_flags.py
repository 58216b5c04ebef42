"""Answers to flags that a command does not have: other programs' names, settings, mistypings."""

import difflib
import re
from collections.abc import Iterable

from jax_transformer.config import SETTINGS
from jax_transformer.errors import OURS

# What to give here -> the names that other programs have for it.
THEIRS = {
    "--set=training.steps=N, where the line batches at the start of training has the steps of an "
    "epoch": "epochs max_epoch max_epochs num_epochs num_train_epochs",
    "--set=training.learning_rate_scale=1, a factor on the paper's, or with --init_from "
    "--set=training.learning_rate=1e-4": "lr learning_rate",
    "--set=training.batch_tokens=N, or --set=decoding.batch_tokens=N for a search": "batch_size "
    "max_tokens batch_tokens",
    "--set=training.keep_best=bleu --set=training.stop_after=N": "patience early_stopping",
    "--set=model.compute_dtype=bfloat16": "fp16 bf16 amp mixed_precision precision",
    "--vocabulary=FILE": "vocab vocabs spm_model sentencepiece_model",
    "--experiment=NAME, one of those in experiments.train --help": "arch task preset",
    "--experiment=NAME to train, and the run's --workdir=FOLDER afterwards": "model path",
    "--workdir=FOLDER": "save_dir output_dir model_dir checkpoint_dir job_dir logdir",
    "the same --workdir: training continues after its last checkpoint": "resume continue "
    "restore_file resume_from_checkpoint",
    "--init_from=RUN": "finetune finetune_from_model pretrained",
    "--train_source=FILE --train_target=FILE of train, --source=FILE of evaluate and score, "
    "< FILE of translate": "input src tgt source target data data_dir dataset train_file",
    "> FILE of translate and score, --workdir=FOLDER of train": "output",
    "not needed: all devices are used, or those of JAX_PLATFORMS=cpu, CUDA_VISIBLE_DEVICES=0, set "
    "before the command": "device devices gpu gpus cuda cpu no_cuda",
    "that of the run, which experiments.train --seed=N sets": "seed",
}
REMEDIES = {name: ours for ours, names in THEIRS.items() for name in names.split()}


def answer(flag: str, known: Iterable[str]) -> str:
    """Return one line about a flag that a command does not have.

    known: the names of the flags that it has.
    """
    name = re.sub(r"\W+", "_", flag).lower()
    meant = OURS.get(name, name)
    ours = [s for s in SETTINGS if meant in (s.replace(".", "_"), s.partition(".")[2])]
    near = difflib.get_close_matches(name, [each for each in known if len(each) > 1], n=1)
    if name in REMEDIES:
        remedy = f"here it is {REMEDIES[name]}"
    elif name in OURS and OURS[name] in known:
        remedy = f"here it is --{OURS[name]}"
    elif ours:
        remedy = f"here it is --set={ours[0]}=VALUE"
    else:
        remedy = f"did you mean --{near[0]}?" if near else "see --help"
    return f"--{flag}: this command has no such flag; {remedy}"
