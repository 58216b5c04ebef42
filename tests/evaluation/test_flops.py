"""Counts of parameters and FLOPs against sums by hand; the paper's tables have their own tests."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jax_transformer.config import ModelConfig
from jax_transformer.evaluation.flops import count_parameters, count_training_flops, product_flops
from jax_transformer.models.transformer import Transformer
from jax_transformer.training.optimizer import adam_with_warmup
from jax_transformer.training.train_step import Batch, initial_state, make_train_step

# No two widths are alike, so that none can stand in for another.
MODEL = ModelConfig(num_layers=2, d_model=10, d_ff=14, num_heads=3, d_k=4, d_v=5, dropout_rate=0.1)
SIZE, SOURCE, TARGET = 23, 6, 7  # rows of the vocabulary, tokens of a pair


def flops_of(function, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return product_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def attention_flops(queries, keys):
    m, h, k, v = MODEL.d_model, MODEL.num_heads, MODEL.d_k, MODEL.d_v
    projections = 2 * queries * m * h * k + 2 * keys * m * h * k + 2 * keys * m * h * v
    scores, weighted = 2 * h * queries * keys * k, 2 * h * queries * keys * v
    return projections + scores + weighted + 2 * queries * h * v * m


def pair_flops():
    """Each product of §3, forward and two for it backward, 2 m n k operations."""
    feed_forward = 2 * 2 * MODEL.d_model * MODEL.d_ff  # for each token
    encoder = attention_flops(SOURCE, SOURCE) + SOURCE * feed_forward
    decoder = attention_flops(TARGET, TARGET) + attention_flops(TARGET, SOURCE)
    decoder += TARGET * feed_forward
    logits = 2 * TARGET * MODEL.d_model * SIZE
    return 3 * (MODEL.num_layers * (encoder + decoder) + logits)


def step_flops(pairs):
    """Of the whole training step, under dropout and with Adam."""
    model = Transformer(MODEL, SIZE, pad_id=0)
    optimizer = adam_with_warmup(MODEL.d_model, 10)
    state = jax.eval_shape(lambda: initial_state(model, optimizer, jax.random.key(0)))
    batch = [np.ones((pairs, length), np.int32) for length in (SOURCE, TARGET)]
    step = make_train_step(model, optimizer, 1, 0.1)
    return product_flops(jax.make_jaxpr(lambda state: step(state, Batch(*batch)))(state).jaxpr)


def test_a_product_of_matrices_is_two_operations_for_each_multiply_add():
    assert flops_of(jnp.dot, (3, 4), (4, 5)) == 2 * 3 * 4 * 5
    assert flops_of(jnp.dot, (4,), (4,)) == 2 * 4


def test_a_batched_product_counts_once_for_each_matrix_of_the_batch():
    def scores(q, k):
        return jnp.einsum("bqhd,bkhd->bhqk", q, k)

    assert flops_of(scores, (2, 3, 5, 7), (2, 11, 5, 7)) == 2 * (2 * 5) * 3 * 11 * 7


def test_two_contracted_axes_both_count():
    def output(x, w):
        return jnp.einsum("bhd,hdm->bm", x, w)

    assert flops_of(output, (2, 3, 5), (3, 5, 7)) == 2 * 2 * 7 * (3 * 5)


def test_the_gradient_of_a_product_is_two_more():
    def loss(x, w):
        return jnp.sin(x @ w).sum()

    assert flops_of(jax.grad(loss, argnums=1), (3, 4), (4, 5)) == 2 * 2 * 3 * 4 * 5
    assert flops_of(jax.grad(loss, argnums=(0, 1)), (3, 4), (4, 5)) == 3 * 2 * 3 * 4 * 5


def test_what_is_called_inside_counts_and_a_scan_counts_every_round():
    def rounds(x, w):
        return jax.lax.scan(lambda x, _: (jax.jit(jnp.dot)(x, w), None), x, length=6)[0]

    assert flops_of(jax.jit(jnp.dot), (3, 4), (4, 4)) == 2 * 3 * 4 * 4
    assert flops_of(rounds, (3, 4), (4, 4)) == 6 * 2 * 3 * 4 * 4
    assert flops_of(jax.checkpoint(jnp.dot), (3, 4), (4, 4)) == 2 * 3 * 4 * 4


def test_a_product_that_runs_an_unknown_number_of_times_is_refused():
    def until(x, w):
        return jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x @ w, x)

    def perhaps(x, w):
        return jax.lax.cond(x.sum() < 9, lambda: x @ w, lambda: x)

    for function, name in ((until, "while"), (perhaps, "cond")):
        with pytest.raises(ValueError, match=f"found one in {name}"):
            flops_of(function, (3, 4), (4, 4))


def test_element_wise_work_and_look_ups_have_no_products():
    def lookup(table):
        return jax.nn.softmax(jnp.take(table, jnp.array([1, 2]), axis=0)) ** 2

    assert flops_of(lookup, (5, 4)) == 0


def test_training_flops_of_a_pair_are_those_of_the_matrices_of_section_3():
    assert count_training_flops(MODEL, SIZE, SOURCE, TARGET) == pair_flops()


def test_a_whole_training_step_needs_that_for_each_of_its_pairs():
    for pairs in (1, 3):
        assert step_flops(pairs) == pairs * pair_flops()


def test_parameters_are_those_that_training_starts_with():
    for untied in (MODEL, ModelConfig(num_layers=1, d_model=6, d_ff=4, tie_embeddings=False)):
        model = Transformer(untied, SIZE, pad_id=0)
        params = initial_state(model, adam_with_warmup(4, 10), jax.random.key(0)).params
        drawn = sum(np.asarray(leaf).size for leaf in jax.tree.leaves(params))
        assert count_parameters(untied, SIZE) == drawn
