// Embeddings, rotary angles, and what they do to queries and keys. Included by kernels.h.

static inline void embed_bfloat16(const hk_linear& table, int token, float* to) {
  const int k = table.k;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(table.weights) + (size_t)(token / 16) * 16 * k + token % 16 * 2;
  for (int i = 0; i < k; i += 2) {
    to[i] = from_bfloat16(from[(size_t)i * 16]);
    to[i + 1] = from_bfloat16(from[(size_t)i * 16 + 1]);
  }
}

static inline void embed_blocks8(const hk_linear& table, int token, float* to) {
  const uint8_t* from = table.weights + (size_t)(token / 32) * (table.k / 32) * Blocks8::kBlockBytes;
  for (int i = 0; i < table.k; i += 32, from += Blocks8::kBlockBytes) {
    uint16_t half;
    __builtin_memcpy(&half, from + 1024 + token % 32 * 2, 2);
    const float scale = from_half(half);
    for (int j = 0; j < 32; j++) to[i + j] = (float)(from[j / 4 * 128 + token % 32 * 4 + j % 4] - 128) * scale;
  }
}

static void embed(const Args& a, int item) {
  const hk_model* m = a.model;
  const int k = (m->hidden + 63) / 64 * 64, half = m->head_dim / 2;
  const Rows rows(a, item);
  for (int t = rows.first; t < rows.last; t++) {
    const int token = a.step->token_ids[t];
    if (m->embedding.format == HK_BLOCKS8)
      embed_blocks8(m->embedding, token, a.out + (size_t)t * k);
    else
      embed_bfloat16(m->embedding, token, a.out + (size_t)t * k);
    float* angle = a.angles + (size_t)t * m->head_dim;
    for (int i = 0; i < half; i++) {
      const float turn = (float)a.step->positions[t] * m->inverse_frequencies[i];
      angle[i] = __builtin_cosf(turn) * m->rope_factor;
      angle[half + i] = __builtin_sinf(turn) * m->rope_factor;
    }
  }
}

static inline void norm_head(float* v, const float* weight, int dim, float epsilon) {
  F squares = zero();
  int i = 0;
  for (; i + 16 <= dim; i += 16) squares = fma(load(v + i), load(v + i), squares);
  float total = sum(squares);
  for (; i < dim; i++) total = total + v[i] * v[i];
  const float factor = 1.0f / __builtin_sqrtf(total / (float)dim + epsilon);
  for (i = 0; i < dim; i++) v[i] = v[i] * factor * weight[i];
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

