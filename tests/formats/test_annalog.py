"""A trained model of somebody else's own code in our Transformer: annalog's, live.

annalog (MIT) translates molecules, written as SMILES, into similar ones. Its Transformer is made of
the layers of a well-known tutorial, so this is an example for others like it: arrays get our names,
and what our settings cannot say, a position table for each side, is written in a subclass.
"""

from importlib.resources import files
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.config import DecodingConfig, ModelConfig
from jax_transformer.decoding.generate import log_probabilities, translate
from jax_transformer.formats.layout import our_layout
from jax_transformer.formats.torch_files import read_torch
from jax_transformer.models.transformer import Transformer

annalog = pytest.importorskip("annalog", reason="compares with annalog: pip install annalog")
pytestmark = pytest.mark.release

SETTINGS = ModelConfig(
    num_layers=3,
    d_model=256,
    d_ff=512,
    num_heads=8,
    attention_bias=True,
    norm_epsilon=1e-5,
    positions="learned",
    max_positions=102,
    tie_embeddings=False,
    output_bias=True,
)
OUTER = {
    "encoder.tok_embedding.weight": "embedding/matrix",
    "encoder.pos_embedding.weight": "position_table",
    "decoder.tok_embedding.weight": "target_embedding/matrix",
    "decoder.pos_embedding.weight": "target_position_table",
    "decoder.fc_out.weight": "output_embedding/matrix",
    "decoder.fc_out.bias": "output_bias",
}
PARTS = {
    "self_attn_layer_norm": "self_attention_norm/norm",
    "enc_attn_layer_norm": "cross_attention_norm/norm",
    "ff_layer_norm": "feed_forward_norm/norm",
    "encoder_attention": "cross_attention",
    "positionwise_feedforward": "feed_forward",
    "fc_q": "query",
    "fc_k": "key",
    "fc_v": "value",
    "fc_o": "output",
    "fc_1": "inner",
    "fc_2": "outer",
}
MOLECULES = [
    "CC(=O)Oc1ccccc1C(=O)O",
    "CC(=O)Nc1ccc(O)cc1",
    "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "c1ccc2ccccc2c1",
    "CCO",
    "CCN(CC)CCNC(=O)c1ccc(N)cc1",
    "OC(=O)c1ccccc1O",
    "Clc1ccccc1",
    "CC(C)NCC(O)COc1cccc2ccccc12",
    "O=C(O)CCc1ccccc1",
    "CN1CCCC1c1cccnc1",
    "Nc1ccc(S(N)(=O)=O)cc1",
    "COc1cc(C=O)ccc1O",
    "FC(F)(F)c1ccc(Br)cc1",
]


class TwoTables(Transformer):
    """The decoder has a table of positions of its own."""

    def setup(self) -> None:
        super().setup()
        shape = (self.config.max_positions, self.config.d_model)
        zeros = jax.nn.initializers.zeros
        self.target_position_table = self.param("target_position_table", zeros, shape, jnp.float32)

    def _embed_target(self, tokens: Any, positions: Any) -> Any:
        table = jnp.take(self.target_position_table, positions, axis=0)
        return self._embed(self.target_embedding, tokens, table)


def our_name(name: str) -> str:
    if name in OUTER:
        return OUTER[name]
    stack, _, number, *parts, leaf = name.split(".")
    leaf = "scale" if "norm" in parts[0] and leaf == "weight" else leaf
    return "/".join([f"{stack}_{number}", *(PARTS.get(part, part) for part in parts), leaf])


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Their own model and search."""
    folder = files(annalog) / "ckpt_and_vocab"
    pieces = str(folder / "stereo_experiment_vocab_ttf.pkl")
    handler = annalog.SMILESModelHandler(pieces, pieces, str(folder / "Lev_extended.pt"), "cpu")
    return annalog.SMILESGenerator(handler)


@pytest.fixture(scope="module")
def ours(theirs) -> Any:
    """Our module and parameters."""
    arrays = read_torch(str(files(annalog) / "ckpt_and_vocab" / "Lev_extended.pt"))
    renamed = {our_name(name): array for name, array in arrays.items()}
    ids, size = theirs.SRC.vocab.stoi, len(theirs.TRG.vocab)
    return TwoTables(SETTINGS, size, ids["<pad>"], size), our_layout(renamed, SETTINGS)


def tokens_of(field: Any, molecules: list[str]) -> np.ndarray:
    """Ids with `<sos>` and `<eos>`, then padding, which their encoder gets too."""
    return field.process([field.preprocess(molecule) for molecule in molecules]).numpy()


def test_log_p_is_annalog_s(theirs, ours):
    module, params = ours
    source = tokens_of(theirs.SRC, MOLECULES)
    target = tokens_of(theirs.TRG, MOLECULES[1:] + MOLECULES[:1])
    bos_id = theirs.TRG.vocab.stoi["<sos>"]
    found = log_probabilities(module, params, source, target[:, 1:], bos_id=bos_id).sum(axis=1)
    pairs = zip(MOLECULES, MOLECULES[1:] + MOLECULES[:1], strict=True)
    expected = [-theirs.score_smiles(*pair)[0] for pair in pairs]
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_greedy_outputs_are_annalog_s(theirs, ours):
    module, params = ours
    vocabulary = theirs.TRG.vocab
    ids = {"bos_id": vocabulary.stoi["<sos>"], "eos_id": vocabulary.stoi["<eos>"]}
    decoding = DecodingConfig(beam_size=1, max_extra_length=30)
    source = tokens_of(theirs.SRC, MOLECULES)
    found = translate(module, params, source, decoding, **ids).tokens[:, 0]
    for molecule, row in zip(MOLECULES, np.asarray(found).tolist(), strict=True):
        written = "".join(vocabulary.itos[index] for index in row[: row.index(ids["eos_id"])])
        ((expected, log_p),) = theirs.generate_smiles(molecule, 1, "beam")
        assert written == expected, log_p
