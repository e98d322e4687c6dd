// Logits, from weights in 16 bit or in blocks of 8. Included by kernels.h.

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

static void head_bfloat16(const Args& a, int item) {
  const int k = a.k, vocab = a.width;
  const size_t block = (size_t)16 * k;
  const int count = vocab - item * 64 < 64 ? vocab - item * 64 : 64;
  for (int first = 0; first < a.rows; first += kHeadRows) {
    const int some = a.rows - first < kHeadRows ? a.rows - first : kHeadRows;
    alignas(64) float tile[kHeadRows * 64];
    multiply_head_some<kHeadRows>(some, a.x + (size_t)first * k, a.pairs + (size_t)first * k, k,
                                  reinterpret_cast<const uint16_t*>(a.linear->weights) + (size_t)item * 4 * block, block, tile);
    for (int r = 0; r < some; r++)
      __builtin_memcpy(a.out + (size_t)(first + r) * vocab + item * 64, tile + r * 64, sizeof(float) * count);
  }
}

static void head_blocks8(const Args& a, int item) {
  const int k = a.linear->k, vocab = a.width;
  const size_t tile_bytes = (size_t)(k / 64) * Blocks8::kGroupBytes;
  const uint8_t* end = a.linear->weights + a.linear->n / 32 * tile_bytes;
  for (int tile = item * 2; tile < item * 2 + 2 && tile * 32 < vocab; tile++) {
    const int width = vocab - tile * 32 < 32 ? vocab - tile * 32 : 32;
    const uint8_t* w = a.linear->weights + tile * tile_bytes;
    Ahead ahead(w + tile_bytes, tile_bytes, end, k / 64, a.rows, Blocks8::kRows);
    for (int first = 0, count; first < a.rows; first += count) {
      count = held_rows(a.rows - first);
      alignas(64) float out[kHeldRows * 32];
      multiply_tile<Blocks8>(a.in, first, count, k, w, ahead, out);
      for (int r = 0; r < count; r++)
        __builtin_memcpy(a.out + (size_t)(first + r) * vocab + tile * 32, out + r * 32, sizeof(float) * width);
    }
  }
}

static void head(const Args& a, int item) {
  if (a.linear->format == HK_BLOCKS8) return head_blocks8(a, item);
  head_bfloat16(a, item);
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

// Of the last layer nobody wants more than the tokens behind which there are logits: their residuals, and quantized what
// attention gave them.
static void pick(const Args& a, int item) {
  const int width = (a.model->hidden + 63) / 64 * 64;
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++) {
    const size_t token = a.step->logit_tokens[row];
    __builtin_memcpy(a.out + (size_t)row * width, a.x + token * width, sizeof(float) * width);
    quantize_row(a.attended + token * a.k, a.k, a.result, row);
  }
}

static void final_norm(const Args& a, int item) {
  const hk_model* m = a.model;
  const int k = (m->hidden + 63) / 64 * 64;
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++) {
    float* x = a.out + (size_t)row * k;
    const F factor = set1(inverse_rms(x, m->hidden, k, m->norm_epsilon));
    for (int i = 0; i < k; i += 16) store(x + i, mul(mul(load(x + i), factor), load(m->final_norm + i)));
    if (m->head.format == HK_BLOCKS8)
      quantize_row(x, k, a.result, row);
    else
      round_row(x, k, a.pairs + (size_t)row * k);
  }
}

