// Quantized activations times weights of several formats. Included by kernels.h.
//
// All formats work in tiles of 32 outputs and groups of 64 inputs, sum whole numbers exactly, and add up the groups'
// floats in the order of the inputs; so every instruction set and every tile gives a row the same bits.

// What a tile's rows share: one row's bytes, scale and sums of a group of 64 inputs.
struct Group {
  const int8_t* q;      // of the first row
  int stride;           // from row to row
  const Operand* x;     // the same as whole bytes are multiplied by
  int x_stride;
  const float* scales;  // likewise, of this group
  int scale_stride;
  const int32_t* sums;  // of the group's two halves
};

// Vectors of 16 outputs that ROWS rows are multiplied by at once: as many sums as there are registers for.
template <int ROWS>
static constexpr int columns() {
  return ROWS * 2 <= kMatmulSums ? 2 : 1;
}

// A step of four inputs for all rows of a tile: weights in whole bytes, 128 too large, of which part(column, phase) gives
// what is multiplied by, and
template <int ROWS, int COLUMNS, class Parts>
static inline HK_INLINE void step_offset(D dots[ROWS][COLUMNS], Parts part, const Operand* x, int stride) {
  repeat<kPhases>([&](auto phase) HK_INLINE {
    W w[COLUMNS];
    repeat<COLUMNS>([&](auto c) HK_INLINE { w[c] = part(c, phase); });
    repeat<ROWS>([&](auto r) HK_INLINE {
      const X one = spread(x + (size_t)r * stride + phase * 2);
      repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = dot_offset(dots[r][c], w[c], one); });
    });
  });
}

// STEPS of them; to jump back after each would cost a fifth.
template <int ROWS, int COLUMNS, int STEPS>
static inline HK_INLINE void steps_offset(D dots[ROWS][COLUMNS], const uint8_t* w, const Operand* x, int stride) {
  for (int s = 0; s < STEPS; s += 4, w += 4 * 128, x += 4 * 4)
    repeat<4>([&](auto i) HK_INLINE {
      const auto part = [&](int c, int phase) HK_INLINE { return load_phase(w + i * 128 + c * 64, phase); };
      step_offset<ROWS, COLUMNS>(dots, part, x + i * 4, stride);
    });
}

// weights of 4 bits.
template <int ROWS, int COLUMNS>
static inline HK_INLINE void step_small(Small dots[ROWS][COLUMNS], const W w[COLUMNS], const int8_t* q, int stride) {
  repeat<ROWS>([&](auto r) HK_INLINE {
    const X one = spread(q + (size_t)r * stride);
    repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = dot_small(dots[r][c], w[c], one); });
  });
}

// A group's rows as whole bytes are multiplied by.
template <int ROWS>
struct Operands {
  Operand room[kPhases > 1 ? ROWS * 64 : 1];
  void take(Group& group) {
    if constexpr (kPhases > 1) {
      for (int r = 0; r < ROWS; r++) store_operands(room + r * 64, group.q + (size_t)r * group.stride, 64);
      group.x = room;
      group.x_stride = 64;
    } else {
      group.x = group.q;
      group.x_stride = group.stride;
    }
  }
};

template <int COLUMNS>
static inline HK_INLINE void load_columns(const uint8_t* w, W out[COLUMNS]) {
  repeat<COLUMNS>([&](auto c) HK_INLINE { out[c] = load_bytes(w + c * 64); });
}

// Bytes [16 steps of four inputs][32 outputs][4], 128 too large; rows are scaled at the end.
struct Int8Rows {
  static constexpr size_t kGroupBytes = 2048;
  static constexpr bool kScalesRows = true, kWhole = true;
  static constexpr int kRows = kMatmulRows;

  // Outputs from 16 * column on.
  template <int ROWS, int COLUMNS>
  static inline HK_INLINE void add_group(const Group& in, const uint8_t* w, int column, F acc[ROWS][2]) {
    D dots[ROWS][COLUMNS];
    repeat<ROWS>([&](auto r) HK_INLINE {
      const int32_t* sums = in.sums + r * in.scale_stride * 2;
      const D begin = begin_offset(sums[0] + sums[1]);
      repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = begin; });
    });
    w += column * 64;
    steps_offset<ROWS, COLUMNS, 16>(dots, w, in.x, in.x_stride);
    repeat<ROWS>([&](auto r) HK_INLINE {
      const F scale = set1(in.scales[r * in.scale_stride]);
      repeat<COLUMNS>([&](auto c) HK_INLINE {
        acc[r][column + c] = fma(to_float(dots[r][c]), scale, acc[r][column + c]);
      });
    });
  }
};

// Two blocks of 32 inputs: bytes [8 steps][32 outputs][4], 128 too large, then a half precision scale for each output.
struct Blocks8 {
  static constexpr size_t kBlockBytes = 1024 + 64, kGroupBytes = 2 * kBlockBytes;
  static constexpr bool kScalesRows = false, kWhole = true;
  static constexpr int kRows = kMatmulRows;

  template <int ROWS, int COLUMNS>
  static inline HK_INLINE void add_group(const Group& in, const uint8_t* w, int column, F acc[ROWS][2]) {
    for (int b = 0; b < 2; b++, w += kBlockBytes) {
      D dots[ROWS][COLUMNS];
      repeat<ROWS>([&](auto r) HK_INLINE {
        const D begin = begin_offset(in.sums[r * in.scale_stride * 2 + b]);
        repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = begin; });
      });
      steps_offset<ROWS, COLUMNS, 8>(dots, w + column * 64, in.x + b * 32, in.x_stride);
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(w + 1024) + column * 16;
      F factor[COLUMNS];
      repeat<COLUMNS>([&](auto c) HK_INLINE { factor[c] = load_halves(halves + c * 16); });
      repeat<ROWS>([&](auto r) HK_INLINE {
        const F scale = set1(in.scales[r * in.scale_stride]);
        repeat<COLUMNS>([&](auto c) HK_INLINE {
          F& sum = acc[r][column + c];
          sum = fma(mul(to_float(dots[r][c]), factor[c]), scale, sum);
        });
      });
    }
  }
};

// Two blocks of 32 inputs: nibbles [4 steps][32 outputs][4], whose upper halves belong to the steps 4 to 7; then a scale
// and a smallest value for each output, in half precision.
struct Blocks4 {
  static constexpr size_t kBlockBytes = 512 + 128, kGroupBytes = 2 * kBlockBytes;
  static constexpr bool kScalesRows = false, kWhole = false;
  static constexpr int kRows = kSmallRows;

  template <int ROWS, int COLUMNS>
  static inline HK_INLINE void add_group(const Group& in, const uint8_t* w, int column, F acc[ROWS][2]) {
    for (int b = 0; b < 2; b++, w += kBlockBytes) {
      Small dots[ROWS][COLUMNS];
      repeat<ROWS>([&](auto r) HK_INLINE { repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = no_small(); }); });
      const uint8_t* at = w + column * 64;
#pragma GCC unroll 4
      for (int s = 0; s < 4; s++, at += 128) {
        W bytes[COLUMNS], half[COLUMNS];
        load_columns<COLUMNS>(at, bytes);
        repeat<COLUMNS>([&](auto c) HK_INLINE { half[c] = low_nibbles(bytes[c]); });
        step_small<ROWS, COLUMNS>(dots, half, in.q + b * 32 + s * 4, in.stride);
        repeat<COLUMNS>([&](auto c) HK_INLINE { half[c] = high_nibbles(bytes[c]); });
        step_small<ROWS, COLUMNS>(dots, half, in.q + b * 32 + s * 4 + 16, in.stride);
      }
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(w + 512) + column * 16;
      F factor[COLUMNS], least[COLUMNS];
      repeat<COLUMNS>([&](auto c) HK_INLINE {
        factor[c] = load_halves(halves + c * 16);
        least[c] = load_halves(halves + 32 + c * 16);
      });
      repeat<ROWS>([&](auto r) HK_INLINE {
        const float step = in.scales[r * in.scale_stride];
        const F scale = set1(step);
        // Each value of the block has the smallest one in it: times the sum of the inputs.
        const F total = set1((float)in.sums[r * in.scale_stride * 2 + b] * (-1.0f / 128.0f) * step);
        repeat<COLUMNS>([&](auto c) HK_INLINE {
          F& sum = acc[r][column + c];
          sum = fma(least[c], total, fma(mul(to_float(small_sums(dots[r][c])), factor[c]), scale, sum));
        });
      });
    }
  }
};

#include "codes.h"

// Weights that are wanted next. They come into the caches while others are multiplied by, some lines with each group.
struct Ahead {
  const uint8_t *at, *end;
  int lines;  // with a group

  Ahead() : at(nullptr), end(nullptr), lines(0) {}
  // The tile at next, while rows are multiplied by another of its size; nothing lies behind all_end.
  Ahead(const uint8_t* next, size_t bytes, const uint8_t* all_end, int groups, int rows, int rows_at_once) : Ahead() {
    const int passes = (rows + rows_at_once - 1) / rows_at_once;
    // One pass uses a tile as it comes from memory, and has nothing to do meanwhile: the processor fetches well enough.
    if (passes < 2 || next >= all_end) return;
    at = next;
    end = next + bytes;
    lines = ((int)(bytes / 64) + groups * passes - 1) / (groups * passes);
  }
  void fetch() {
    for (int i = 0; i < lines && at < end; i++, at += 64) prefetch(at);
  }
};

// One tile of 32 outputs for ROWS rows: out [ROWS][32].
template <class Format, int ROWS>
static inline void multiply(const Quantized& in, size_t first, int k, const uint8_t* w, Ahead& ahead, float* out) {
  constexpr int kColumns = columns<ROWS>();
  const int groups = k / 64;
  F acc[ROWS][2];
  Operands<ROWS> operands;
  repeat<ROWS>([&](auto r) HK_INLINE { acc[r][0] = acc[r][1] = zero(); });
  Group group = {in.q + first * k, k, nullptr, 0, in.scales + first * groups, groups, in.sums + first * groups * 2};
  for (int g = 0; g < groups; g++) {
    ahead.fetch();
    if (Format::kWhole) operands.take(group);
    repeat<2 / kColumns>([&](auto i) HK_INLINE { Format::template add_group<ROWS, kColumns>(group, w, i * kColumns, acc); });
    w += Format::kGroupBytes;
    group.q += 64;
    group.scales++;
    group.sums += 2;
  }
  repeat<ROWS>([&](auto r) HK_INLINE {
    store(out + r * 32, acc[r][0]);
    store(out + r * 32 + 16, acc[r][1]);
  });
}

// ROWS at most the format's; chosen at run time for the last rows.
template <class Format, int ROWS>
static inline void multiply_some(int rows, const Quantized& in, size_t first, int k, const uint8_t* w, Ahead& ahead,
                                 float* out) {
  if (rows == ROWS)
    multiply<Format, ROWS>(in, first, k, w, ahead, out);
  else if constexpr (ROWS > 1)
    multiply_some<Format, ROWS - 1>(rows, in, first, k, w, ahead, out);
}

// One tile of 32 outputs for count rows: out [count][32].
template <class Format>
static inline void multiply_tile(const Quantized& in, size_t first, int count, int k, const uint8_t* w, Ahead& ahead,
                                 float* out) {
  for (int done = 0, some; done < count; done += some) {
    // A small rest is shared with the rows before it.
    const int left = count - done;
    some = left <= Format::kRows ? left : left < 2 * Format::kRows ? (left + 1) / 2 : Format::kRows;
    multiply_some<Format, Format::kRows>(some, in, first + done, k, w, ahead, out + done * 32);
  }
}

// Rows whose outputs are held before they go on; a multiple of every tile's.
static constexpr int kHeldRows = 24;
static_assert(kHeldRows % kMatmulRows == 0 && kHeldRows % kSmallRows == 0, "only the last rows may be fewer than a tile's");

static inline int held_rows(int left) { return left < kHeldRows ? left : kHeldRows; }

// The rows and the outputs of an item: tiles of outputs, each in parts of rows_per_item rows.
struct Part {
  int tile, first, last;
  Part(const Args& a, int item) {
    const int parts = (a.rows + a.rows_per_item - 1) / a.rows_per_item;
    tile = item / parts;
    first = item % parts * a.rows_per_item;
    last = first + a.rows_per_item < a.rows ? first + a.rows_per_item : a.rows;
  }
};

template <class Format>
static inline void matmul_in(const Args& a, int item) {
  const Part part(a, item);
  const int n = a.linear->n, k = a.linear->k;
  const size_t tile_bytes = (size_t)(k / 64) * Format::kGroupBytes;
  const uint8_t* w = a.linear->weights + part.tile * tile_bytes;
  F scale[2], bias[2] = {zero(), zero()};
  for (int c = 0; c < 2; c++) {
    const int column = part.tile * 32 + c * 16;
    scale[c] = Format::kScalesRows ? load(a.linear->scales + column) : zero();
    if (a.linear->bias) bias[c] = load(a.linear->bias + column);
  }
  Ahead ahead(w + tile_bytes, tile_bytes, a.linear->weights + n / 32 * tile_bytes, k / 64, part.last - part.first,
              Format::kRows);
  for (int first = part.first, count; first < part.last; first += count) {
    count = held_rows(part.last - first);
    alignas(64) float tile[kHeldRows * 32];
    multiply_tile<Format>(a.in, first, count, k, w, ahead, tile);
    for (int r = 0; r < count; r++)
      for (int c = 0; c < 2; c++) {
        float* at = a.out + (size_t)(first + r) * n + part.tile * 32 + c * 16;
        const F sum = load(tile + r * 32 + c * 16);
        const F value = Format::kScalesRows ? fma(sum, scale[c], bias[c]) : add(sum, bias[c]);
        store(at, a.accumulate ? add(load(at), value) : value);
      }
  }
}

static void matmul(const Args& a, int item) {
  if (a.linear->format == HK_BLOCKS4) return matmul_in<Blocks4>(a, item);
  if (a.linear->format == HK_BLOCKS8) return matmul_in<Blocks8>(a, item);
  if (a.linear->format == HK_NF4) return matmul_in<Codes4<Nf4>>(a, item);
  if (a.linear->format == HK_FP4) return matmul_in<Codes4<Fp4>>(a, item);
  matmul_in<Int8Rows>(a, item);
}

static inline F silu(F x) {
  return div(x, add(set1(1.0f), exponential_of_two(mul(x, set1(-kLog2E)))));
}

// 64 outputs of the gate and the 64 of up that belong to them give one quantized group.
template <class Format>
static inline void gate_up_in(const Args& a, int item) {
  const Part part(a, item);
  const int k = a.linear->k, groups = a.linear->n / 128;
  const size_t tile_bytes = (size_t)(k / 64) * Format::kGroupBytes;
  const uint8_t* w = a.linear->weights + (size_t)part.tile * 4 * tile_bytes;
  const uint8_t* end = a.linear->weights + a.linear->n / 32 * tile_bytes;
  const float* scales = a.linear->scales + (size_t)part.tile * 128;
  for (int first = part.first, count; first < part.last; first += count) {
    count = held_rows(part.last - first);
    alignas(64) float tiles[4][kHeldRows * 32];
    for (int i = 0; i < 4; i++) {
      const uint8_t* tile = w + i * tile_bytes;
      // The first rows bring the tiles, the others find them.
      Ahead ahead;
      if (first == part.first) ahead = Ahead(tile + tile_bytes, tile_bytes, end, k / 64, count, Format::kRows);
      multiply_tile<Format>(a.in, first, count, k, tile, ahead, tiles[i]);
    }
    for (int r = 0; r < count; r++) {
      F v[4];
      for (int i = 0; i < 4; i++) {
        const int tile = i / 2, at = r * 32 + (i % 2) * 16;
        F gate = load(tiles[tile] + at), up = load(tiles[2 + tile] + at);
        if (Format::kScalesRows) {
          gate = mul(gate, load(scales + i * 16));
          up = mul(up, load(scales + 64 + i * 16));
        }
        v[i] = mul(silu(gate), up);
      }
      const size_t at = (size_t)(first + r) * groups + part.tile;
      quantize_group(v, a.result.q + at * 64, a.result.scales + at, a.result.sums + at * 2);
    }
  }
}

static void gate_up(const Args& a, int item) {
  if (a.linear->format == HK_BLOCKS4) return gate_up_in<Blocks4>(a, item);
  if (a.linear->format == HK_BLOCKS8) return gate_up_in<Blocks8>(a, item);
  if (a.linear->format == HK_NF4) return gate_up_in<Codes4<Nf4>>(a, item);
  if (a.linear->format == HK_FP4) return gate_up_in<Codes4<Fp4>>(a, item);
  gate_up_in<Int8Rows>(a, item);
}
