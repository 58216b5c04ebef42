"""Bytes and FLOPs of compiled functions that are small enough to count by hand."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.hlo_bytes import Kernel, kernels, reduced_bytes

CUBLAS = """HloModule product

ENTRY %main (a: bf16[4,8], b: bf16[8,16]) -> bf16[4,16] {
  %a = bf16[4,8]{1,0} parameter(0)
  %b = bf16[8,16]{1,0} parameter(1)
  %gemm.1 = (bf16[4,16]{1,0}, s8[33554432]{0}) custom-call(%a, %b), \
custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":\
{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  ROOT %result = bf16[4,16]{1,0} get-tuple-element(%gemm.1), index=0
}
"""

SUMS = """HloModule sums

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

ENTRY %main (a: f32[4,8], b: bf16[16]) -> (f32[4,8], bf16[16], f32[4,8]) {
  %a = f32[4,8]{1,0} parameter(0)
  %b = bf16[16]{0} parameter(1)
  %both = (f32[4,8]{1,0}, bf16[16]{0}) all-reduce(%a, %b), to_apply=%add
  %begun = ((f32[4,8]{1,0}), f32[4,8]{1,0}) all-reduce-start(%a), to_apply=%add
  %first = f32[4,8]{1,0} get-tuple-element(%both), index=0
  %second = bf16[16]{0} get-tuple-element(%both), index=1
  %done = f32[4,8]{1,0} all-reduce-done(%begun)
  ROOT %result = (f32[4,8]{1,0}, bf16[16]{0}, f32[4,8]{1,0}) tuple(%first, %second, %done)
}
"""


def compiled(
    function: Callable[..., Any], *shapes: tuple[int, ...], **options: Any
) -> list[Kernel]:
    """The kernels of a function of float32 arrays."""
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text = jax.jit(function, **options).lower(*arguments).compile().as_text()
    return kernels(str(text))


def test_a_product_reads_both_sides_and_writes_one():
    (product,) = compiled(lambda x, y: x @ y, (300, 500), (500, 700))
    assert product.bytes == 4 * (300 * 500 + 500 * 700 + 300 * 700)
    assert product.flops == 2 * 300 * 500 * 700


def test_a_fusion_reads_what_comes_in_and_writes_what_goes_out():
    (fusion,) = compiled(lambda x, y: jnp.tanh(x + 2 * y) * y, (64, 1000), (64, 1000))
    assert fusion.bytes == 3 * 4 * 64 * 1000


def test_a_fusion_reads_the_rows_that_it_gathers_also_after_arithmetic():
    rows = jnp.array([3, 1, 4, 1])
    found = compiled(lambda x: jnp.exp(2 * x)[rows], (1000, 64))
    assert sum(kernel.bytes for kernel in found) < 4 * 3 * 4 * 64


def test_a_loop_counts_as_often_as_it_runs_where_the_compiler_knows_it():
    def repeat(x: Any, y: Any) -> Any:
        return jax.lax.fori_loop(0, 5, lambda _, x: x @ y, x)

    products = [kernel for kernel in compiled(repeat, (200, 300), (300, 300)) if kernel.flops]
    assert sum(product.runs for product in products) == 5
    assert sum(product.flops for product in products) == 5 * 2 * 200 * 300 * 300


def test_an_update_in_place_writes_only_what_is_new():
    def updated(x: Any, new: Any, start: Any) -> Any:
        return jax.lax.dynamic_update_slice(x, 2 * new, (start[0].astype(int), 0))

    found = compiled(updated, (5000, 1000), (10, 1000), (1,), donate_argnums=0)
    assert 2 * 4 * 10 * 1000 <= sum(kernel.bytes for kernel in found) < 2 * 4 * 10 * 1000 + 100


def test_scratch_space_of_a_library_is_not_counted():
    (product,) = kernels(CUBLAS)
    assert product == Kernel(1, 2 * (32 + 128 + 64), 2 * 64 * 8)


def test_an_array_is_summed_over_devices_once_whether_at_once_or_in_two_parts():
    assert reduced_bytes(SUMS) == 4 * 4 * 8 + 2 * 16 + 4 * 4 * 8
