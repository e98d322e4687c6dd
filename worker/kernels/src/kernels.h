// The kernels, written once over vectors of sixteen floats. Included inside the namespace of an instruction set, after
// its vectors. A row's numbers never depend on what else is in the step: each is computed by the same operations in the
// same order, whichever tile, thread or chunk it falls into.

static inline float sum(F v) {
  float x[16];
  store(x, v);
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x[i] += x[i + half];
  return x[0];
}

static inline float largest(F v) {
  float x[16];
  store(x, v);
  float top = x[0];
  for (int i = 1; i < 16; i++) top = x[i] > top ? x[i] : top;
  return top;
}

static inline F exponential(F x) {
  x = min(set1(88.7f), max(set1(-87.3f), x));
  const F n = round(mul(x, set1(1.44269504f)));
  F r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(mul(p, r), r, r), set1(1.0f));
  return mul(p, power_of_two(n));
}

static inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline float from_bfloat16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}

// ---- Quantization: a group of 64 has one scale. A group with infinity or NaN gets a scale that is no number either.

static inline void quantize_group(const F v[4], int8_t* q, float* scale, int32_t* sums) {
  const float top = top_magnitude(max_magnitude(max_magnitude(v[0], v[1]), max_magnitude(v[2], v[3])));
  const float inverse = top > 1e-30f || !(top >= 0.0f) ? 127.0f / top : 0.0f;
  I stored = no_sums();
  for (int i = 0; i < 4; i++) stored = store_int8(q + i * 16, mul(v[i], set1(inverse)), stored);
  *scale = top * (1.0f / 127.0f);
  *sums = (int32_t)(0u - 128u * (uint32_t)total(stored));  // of what is no number, any sum will do
}

static inline void quantize_row(const float* x, int k, Quantized out, size_t row) {
  for (int g = 0; g < k / 64; g++) {
    F v[4];
    for (int i = 0; i < 4; i++) v[i] = load(x + g * 64 + i * 16);
    const size_t at = row * (k / 64) + g;
    quantize_group(v, out.q + row * k + g * 64, out.scales + at, out.sums + at);
  }
}

// The rows of an item.
struct Rows {
  int first, last;
  Rows(const Args& a, int item)
      : first(item * a.rows_per_item),
        last(first + a.rows_per_item < a.rows ? first + a.rows_per_item : a.rows) {}
};

static void quantize(const Args& a, int item) {
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++) quantize_row(a.x + (size_t)row * a.k, a.k, a.result, row);
}

static inline float inverse_rms(const float* x, int width, int padded, float epsilon) {
  F squares[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < padded; i += 64)
    for (int j = 0; j < 4; j++) {
      const F v = load(x + i + j * 16);
      squares[j] = fma(v, v, squares[j]);
    }
  const float mean = sum(add(add(squares[0], squares[1]), add(squares[2], squares[3]))) / (float)width;
  return 1.0f / __builtin_sqrtf(mean + epsilon);
}

static void norm_quantize(const Args& a, int item) {
  const Rows rows(a, item);
  const int k = a.k;
  for (int row = rows.first; row < rows.last; row++) {
    const float* from = a.x + (size_t)row * k;
    const F factor = set1(inverse_rms(from, a.width, k, a.epsilon));
    for (int g = 0; g < k / 64; g++) {
      F v[4];
      for (int i = 0; i < 4; i++) {
        const int at = g * 64 + i * 16;
        v[i] = mul(mul(load(from + at), factor), load(a.weight + at));
      }
      const size_t at = (size_t)row * (k / 64) + g;
      quantize_group(v, a.result.q + (size_t)row * k + g * 64, a.result.scales + at, a.result.sums + at);
    }
  }
}

// ---- Products

// ROWS at most kMatmulRows; chosen at run time for the last rows.
template <int ROWS>
static inline void multiply_some(int rows, Quantized in, size_t first, int k, const uint8_t* w, float* out) {
  if (rows == ROWS) {
    const size_t group = first * (k / 64);
    multiply<ROWS>(in.q + first * k, k, in.scales + group, in.sums + group, w, out);
  } else if constexpr (ROWS > 1) {
    multiply_some<ROWS - 1>(rows, in, first, k, w, out);
  }
}

static void matmul(const Args& a, int block) {
  const int n = a.linear->n, k = a.linear->k;
  const uint8_t* w = a.linear->weights + (size_t)block * 32 * k;
  F scale[2], bias[2] = {zero(), zero()};
  for (int i = 0; i < 2; i++) {
    scale[i] = load(a.linear->scales + block * 32 + i * 16);
    if (a.linear->bias) bias[i] = load(a.linear->bias + block * 32 + i * 16);
  }
  for (int first = 0; first < a.rows; first += kMatmulRows) {
    const int count = a.rows - first < kMatmulRows ? a.rows - first : kMatmulRows;
    alignas(64) float tile[kMatmulRows * 32];
    multiply_some<kMatmulRows>(count, a.in, first, k, w, tile);
    for (int r = 0; r < count; r++)
      for (int i = 0; i < 2; i++) {
        float* at = a.out + (size_t)(first + r) * n + block * 32 + i * 16;
        const F value = fma(load(tile + r * 32 + i * 16), scale[i], bias[i]);
        store(at, a.accumulate ? add(load(at), value) : value);
      }
  }
}

// 64 outputs of the gate and the 64 of up that belong to them give one quantized group.
static void gate_up(const Args& a, int g) {
  const int k = a.linear->k, groups = a.linear->n / 128;
  const uint8_t* w = a.linear->weights + (size_t)g * 128 * k;
  const float* scales = a.linear->scales + g * 128;
  for (int first = 0; first < a.rows; first += kMatmulRows) {
    const int count = a.rows - first < kMatmulRows ? a.rows - first : kMatmulRows;
    alignas(64) float tiles[4][kMatmulRows * 32];
    for (int i = 0; i < 4; i++) multiply_some<kMatmulRows>(count, a.in, first, k, w + (size_t)i * 32 * k, tiles[i]);
    for (int r = 0; r < count; r++) {
      F v[4];
      for (int i = 0; i < 4; i++) {
        const int tile = i / 2, at = r * 32 + (i % 2) * 16;
        const F gate = mul(load(tiles[tile] + at), load(scales + i * 16));
        const F up = mul(load(tiles[2 + tile] + at), load(scales + 64 + i * 16));
        const F sigmoid = div(set1(1.0f), add(set1(1.0f), exponential(sub(zero(), gate))));
        v[i] = mul(mul(gate, sigmoid), up);
      }
      const size_t at = (size_t)(first + r) * groups + g;
      quantize_group(v, a.result.q + at * 64, a.result.scales + at, a.result.sums + at);
    }
  }
}

// ---- Head

#ifdef HK_PLAIN_HEAD
static constexpr bool kRoundsHeadInputs = false;
template <int ROWS>
static inline void multiply_head(const float* x, const uint16_t*, int k, const uint16_t* w, size_t block, float* out) {
  for (int c = 0; c < 4; c++) {
    F acc[ROWS];
    for (int r = 0; r < ROWS; r++) acc[r] = zero();
    for (int s = 0; s < k / 2; s++) {
      F even, odd;
      load_pairs(w + c * block + (size_t)s * 32, &even, &odd);
      for (int r = 0; r < ROWS; r++) {
        acc[r] = fma(even, set1(x[(size_t)r * k + s * 2]), acc[r]);
        acc[r] = fma(odd, set1(x[(size_t)r * k + s * 2 + 1]), acc[r]);
      }
    }
    for (int r = 0; r < ROWS; r++) store(out + r * 64 + c * 16, acc[r]);
  }
}
#endif

template <int ROWS>
static inline void multiply_head_some(int rows, const float* x, const uint16_t* pairs, int k, const uint16_t* w,
                                      size_t block, float* out) {
  if (rows == ROWS)
    multiply_head<ROWS>(x, pairs, k, w, block, out);
  else if constexpr (ROWS > 1)
    multiply_head_some<ROWS - 1>(rows, x, pairs, k, w, block, out);
}

static void head(const Args& a, int item) {
  const int k = a.k, vocab = a.width;
  const size_t block = (size_t)16 * k;
  const int count = vocab - item * 64 < 64 ? vocab - item * 64 : 64;
  for (int first = 0; first < a.rows; first += kHeadRows) {
    const int some = a.rows - first < kHeadRows ? a.rows - first : kHeadRows;
    alignas(64) float tile[kHeadRows * 64];
    multiply_head_some<kHeadRows>(some, a.x + (size_t)first * k, a.pairs + (size_t)first * k, k,
                                  a.head + (size_t)item * 4 * block, block, tile);
    for (int r = 0; r < some; r++)
      __builtin_memcpy(a.out + (size_t)(first + r) * vocab + item * 64, tile + r * 64, sizeof(float) * count);
  }
}

static inline void round_row(const float* x, int k, uint16_t* pairs) {
  if (!kRoundsHeadInputs) return;
  for (int i = 0; i < k; i++) pairs[i] = to_bfloat16(x[i]);
}

static void round_pairs(const Args& a, int item) {
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++)
    round_row(a.x + (size_t)row * a.k, a.k, a.pairs + (size_t)row * a.k);
}

static void final_norm(const Args& a, int item) {
  const hk_model* m = a.model;
  const int k = (m->hidden + 63) / 64 * 64;
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++) {
    const float* from = a.x + (size_t)a.step->logit_tokens[row] * k;
    float* to = a.out + (size_t)row * k;
    const F factor = set1(inverse_rms(from, m->hidden, k, m->norm_epsilon));
    for (int i = 0; i < k; i += 16) store(to + i, mul(mul(load(from + i), factor), load(m->final_norm + i)));
    round_row(to, k, a.pairs + (size_t)row * k);
  }
}

// ---- Embedding and rotary angles

static void embed(const Args& a, int item) {
  const hk_model* m = a.model;
  const int k = (m->hidden + 63) / 64 * 64, half = m->head_dim / 2;
  const Rows rows(a, item);
  for (int t = rows.first; t < rows.last; t++) {
    const int token = a.step->token_ids[t];
    const uint16_t* from = m->embedding + (size_t)(token / 16) * 16 * k + (token % 16) * 2;
    float* to = a.out + (size_t)t * k;
    for (int i = 0; i < k; i += 2) {
      to[i] = from_bfloat16(from[(size_t)i * 16]);
      to[i + 1] = from_bfloat16(from[(size_t)i * 16 + 1]);
    }
    float* angle = a.angles + (size_t)t * m->head_dim;
    for (int i = 0; i < half; i++) {
      const float turn = (float)a.step->positions[t] * m->inverse_frequencies[i];
      angle[i] = __builtin_cosf(turn) * m->rope_factor;
      angle[half + i] = __builtin_sinf(turn) * m->rope_factor;
    }
  }
}

static inline void norm_head(float* v, const float* weight, int dim, float epsilon) {
  float squares = 0.0f;
  for (int i = 0; i < dim; i++) squares = squares + v[i] * v[i];
  const float factor = 1.0f / __builtin_sqrtf(squares / (float)dim + epsilon);
  for (int i = 0; i < dim; i++) v[i] = v[i] * factor * weight[i];
}

static inline void rotate(float* v, const float* angle, int half, float factor) {
  int i = 0;
  for (; i + 16 <= half; i += 16) {
    const F a = load(v + i), b = load(v + half + i), cosine = load(angle + i), sine = load(angle + half + i);
    store(v + i, mul(sub(mul(a, cosine), mul(b, sine)), set1(factor)));
    store(v + half + i, mul(add(mul(b, cosine), mul(a, sine)), set1(factor)));
  }
  for (; i < half; i++) {
    const float a = v[i], b = v[half + i];
    v[i] = (a * angle[i] - b * angle[half + i]) * factor;
    v[half + i] = (b * angle[i] + a * angle[half + i]) * factor;
  }
}

// ---- Keys and values

static constexpr int kWidestHead = 256;

struct Paging {
  int block_size, units_per_block, padded_dim;
  size_t head_elements, unit_elements;
  explicit Paging(const hk_model* m)
      : block_size(m->block_size),
        units_per_block(m->block_size / 16),
        padded_dim((m->head_dim + 31) / 32 * 32),
        head_elements((size_t)padded_dim * 16),
        unit_elements((size_t)padded_dim * 16 * m->kv_heads) {}
  // Where the 16 tokens around position begin.
  size_t unit(const int32_t* table, int position) const {
    return ((size_t)table[position / block_size] * units_per_block + position % block_size / 16) * unit_elements;
  }
};

// Keys and values of one token, in the lane of a unit that belongs to its position.
static inline void store_head(const float* key, const float* value, int dim, int padded_dim, int lane, uint16_t* keys,
                              uint16_t* values) {
  uint16_t key_bits[kWidestHead], value_bits[kWidestHead];
  for (int i = 0; i < dim; i++) key_bits[i] = to_bfloat16(key[i]);
  for (int i = 0; i < dim; i++) value_bits[i] = to_bfloat16(value[i]);
  for (int i = 0; i < dim; i += 2) __builtin_memcpy(keys + (i * 16 + lane * 2), key_bits + i, 4);
  __builtin_memcpy(values + (size_t)lane * padded_dim, value_bits, sizeof(uint16_t) * dim);
}

static void rope_and_store(const Args& a, int item) {
  const hk_model* m = a.model;
  const hk_layer* layer = a.layer;
  const int dim = m->head_dim, half = dim / 2, width = (m->heads + 2 * m->kv_heads) * dim;
  const int stride = (width + 63) / 64 * 64;
  const Paging paging(m);
  const Rows rows(a, item);
  for (int t = rows.first; t < rows.last; t++) {
    float* q = a.out + (size_t)t * stride;
    const float* angle = a.angles_in + (size_t)t * dim;
    for (int h = 0; h < m->heads; h++, q += dim) {
      if (layer->query_norm) norm_head(q, layer->query_norm, dim, m->norm_epsilon);
      rotate(q, angle, half, m->attention_scale);
    }
    const int position = a.step->positions[t];
    const size_t unit = paging.unit(a.step->tables + a.step->table_first[a.step->rows[t]], position);
    for (int h = 0; h < m->kv_heads; h++) {
      float* key = q + h * dim;
      if (layer->key_norm) norm_head(key, layer->key_norm, dim, m->norm_epsilon);
      rotate(key, angle, half, 1.0f);
      const size_t at = unit + h * paging.head_elements;
      store_head(key, q + (m->kv_heads + h) * dim, dim, paging.padded_dim, position % 16, layer->keys + at,
                 layer->values + at);
    }
  }
}

#include "attention.h"
