// The paged cache: where keys and values of a token are, and how they are stored. Included by kernels.h.

static constexpr int kWidestHead = 256;

struct Paging {
  int block_size, units_per_block, padded_dim, kv_heads;
  size_t head_elements;  // of one key head in a unit
  explicit Paging(const hk_model* m)
      : block_size(m->block_size),
        units_per_block(m->block_size / 16),
        padded_dim((m->head_dim + 31) / 32 * 32),
        kv_heads(m->kv_heads),
        head_elements((size_t)padded_dim * 16) {}
  // Which (unit, key head) holds the 16 tokens around position.
  size_t place(const int32_t* table, int position, int kv_head) const {
    const size_t unit = (size_t)table[position / block_size] * units_per_block + position % block_size / 16;
    return unit * kv_heads + kv_head;
  }
};

static inline void store_bfloat16(const hk_layer* layer, const Paging& paging, size_t place, int lane, const float* key,
                                  const float* value, int dim) {
  uint16_t bits[kWidestHead];
  uint16_t* keys = static_cast<uint16_t*>(layer->keys) + place * paging.head_elements;
  uint16_t* values = static_cast<uint16_t*>(layer->values) + place * paging.head_elements;
  for (int i = 0; i < dim; i++) bits[i] = to_bfloat16(key[i]);
  for (int i = 0; i < dim; i += 2) __builtin_memcpy(keys + (i * 16 + lane * 2), bits + i, 4);
  for (int i = 0; i < dim; i++) bits[i] = to_bfloat16(value[i]);
  __builtin_memcpy(values + (size_t)lane * paging.padded_dim, bits, sizeof(uint16_t) * dim);
}

// Int8 values of one head with one scale; zeros behind them.
static inline float quantize_head(const float* from, int dim, int padded_dim, int8_t* to) {
  alignas(64) float v[kWidestHead];
  F top = zero();
  __builtin_memcpy(v, from, sizeof(float) * dim);
  for (int i = dim; i < padded_dim; i++) v[i] = 0.0f;
  for (int i = 0; i < padded_dim; i += 16) top = max_magnitude(top, load(v + i));
  const float most = top_magnitude(top);
  const F inverse = set1(most > 1e-30f || !(most >= 0.0f) ? 127.0f / most : 0.0f);
  for (int i = 0; i < padded_dim; i += 16) store_int8(to + i, mul(load(v + i), inverse), no_sums());
  return most * (1.0f / 127.0f);
}

static inline void store_int8_head(const hk_layer* layer, const Paging& paging, size_t place, int lane, const float* key,
                                   const float* value, int dim) {
  const int padded = paging.padded_dim;
  int8_t q[kWidestHead];
  uint8_t* keys = static_cast<uint8_t*>(layer->keys) + place * paging.head_elements;
  uint8_t* values = static_cast<uint8_t*>(layer->values) + place * paging.head_elements;
  float* scales = layer->kv_scales + place * 32;
  scales[lane] = quantize_head(key, dim, padded, q);
  for (int i = 0; i < padded; i += 4) {
    uint32_t four;
    __builtin_memcpy(&four, q + i, 4);
    four ^= 0x80808080u;  // 128 more
    __builtin_memcpy(keys + i * 16 + lane * 4, &four, 4);
  }
  scales[16 + lane] = quantize_head(value, dim, padded, q);
  uint8_t* to = values + (size_t)(lane / 4) * padded * 4 + lane % 4;
  for (int i = 0; i < padded; i++) to[i * 4] = (uint8_t)q[i];
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
    const int32_t* table = a.step->tables + a.step->table_first[a.step->rows[t]];
    for (int h = 0; h < m->kv_heads; h++) {
      float* key = q + h * dim;
      if (layer->key_norm) norm_head(key, layer->key_norm, dim, m->norm_epsilon);
      rotate(key, angle, half, 1.0f);
      const size_t place = paging.place(table, position, h);
      const float* value = q + (m->kv_heads + h) * dim;
      (m->kv_format == HK_KV_INT8 ? store_int8_head : store_bfloat16)(layer, paging, place, position % 16, key, value,
                                                                      dim);
    }
  }
}
