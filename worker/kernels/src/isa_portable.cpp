// The kernels for portable.
#include <stdint.h>

#include "kernel_table.h"

namespace hk {
namespace {
#include "numbers.h"
#include "vec_portable.h"
#include "kernels.h"
#include "sampling.h"
#include "scoring.h"
}  // namespace

const Kernels kPortable = {
    embed,   norm_quantize, quantize,    matmul, rope_and_store, attention, pick,
    gate_up, final_norm,    round_pairs, head,   sample, score, find_broken};
}  // namespace hk
