// What an instruction set provides. Nothing of the standard library is included here: its inline functions, compiled for
// a better processor, might be the ones that the linker keeps for everybody.
#pragma once

#include <stddef.h>

#include "headrace_kernels.h"

namespace hk {

// Quantized activations of some rows.
struct Quantized {
  int8_t* q;        // [rows][k]
  float* scales;    // [rows][k / 64]
  int32_t* sums;    // [rows][k / 32], times -128
};

// Consecutive queries of one row and one key head: an item of attention.
struct Share {
  int32_t row, kv_head, first, last;  // tokens first <= t < last of the step
};

// Rows of logits to draw from, or to score, which threads take one by one.
struct Sampling {
  const float* logits;
  hk_draw* draws;
  hk_score* scores;
  int32_t* top;  // [rows][most_top]
  float* scratch;
  size_t scratch_floats;  // of each thread
  int rows, vocab, most_top;
  int next;
};

struct Link;

// What kernels work on; each uses what it needs.
struct Args {
  const hk_model* model;
  const hk_step* step;
  const hk_layer* layer;
  const hk_linear* linear;
  const Share* shares;
  const float* x;
  const float* attended;
  const float* weight;
  const float* angles_in;
  float* out;
  float* angles;
  uint16_t* pairs;
  Quantized in, result;
  Sampling* sampling;
  int32_t* broken;
  const Link* links;
  int64_t* link_ns;  // time spent by part, added to by every thread
  int num_links;
  int rows, width, k;
  int rows_per_item;
  float epsilon;
  bool accumulate;
};

using Kernel = void (*)(const Args&, int item);

// A kernel of which some rows are done from end to end: all tiles of its outputs, or the one that it has.
struct Link {
  Kernel kernel;
  Args args;
  int tiles, part;
};

// Items: of matmul tiles of 32 outputs and of gate_up groups of 64, each for rows_per_item rows; of head 64 tokens of the
// vocabulary; of attention shares; of sample and score threads; of find_broken rows; of the others rows_per_item rows.
struct Kernels {
  Kernel embed, norm_quantize, quantize, matmul, rope_and_store, attention, pick, gate_up, final_norm, round_pairs, head,
      sample, score, find_broken;
};

// Most (query, head) pairs in one item of attention.
constexpr int kMostLines = 48;

extern const Kernels kPortable;
#ifdef HK_X86
extern const Kernels kAvx2, kAvx512Vnni, kAvx512Bf16;
#endif

}  // namespace hk
