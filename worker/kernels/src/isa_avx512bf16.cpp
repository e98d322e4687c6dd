// The kernels for avx512bf16.
#include <immintrin.h>

#include "kernel_table.h"

namespace hk {
namespace {
#include "numbers.h"
#include "vec_avx512.h"
#include "kernels.h"
#include "sampling.h"
#include "scoring.h"
}  // namespace

const Kernels kAvx512Bf16 = {
    embed,   norm_quantize, quantize,    matmul, rope_and_store, attention, pick,
    gate_up, final_norm,    round_pairs, head,   sample, score, find_broken};
}  // namespace hk
