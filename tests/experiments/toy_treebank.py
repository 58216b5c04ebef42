"""Trees of a little language, for commands to learn in seconds."""

import random

NOUNS, VERBS, PLACES = ["cat", "dog", "bird", "fish"], ["sees", "hears", "likes"], ["in", "on"]
SETTINGS = {
    "decoding__max_extra_length": 30,
    "decoding__beam_size": 3,
    "data__max_length": 40,
    "data__vocabulary_size": 60,
    "data__vocabulary_up_to": True,
    "training__batch_tokens": 400,
    "training__warmup_steps": 40,
    "model__d_model": 32,
    "model__dropout_rate": 0.0,
}


def noun_phrase(draw, longer=0.3):
    phrase = f"(NP (DT the) (NN {draw.choice(NOUNS)}))"
    if draw.random() < longer:
        phrase = f"(NP {phrase} (PP (IN {draw.choice(PLACES)}) {noun_phrase(draw, 0)}))"
    return phrase


def sentences(count, seed):
    """Trees of a little language; words differ by their place and by their letters."""
    draw = random.Random(seed)
    return [
        f"( (S {noun_phrase(draw).replace('(NP ', '(NP-SBJ ', 1)} (VP (VBZ {draw.choice(VERBS)}) "
        f"{noun_phrase(draw)}) (. .)) )"
        for _ in range(count)
    ]


def write_trees(path, trees):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(trees) + "\n", encoding="utf-8")


def tree_flags(folder):
    return [f"--{split}_trees={folder / f'{split}.mrg'}" for split in ("train", "dev", "test")]
