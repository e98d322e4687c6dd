// Attention over keys and values in int8, in whole numbers. Included by attention.h.
//
// A query is quantized as keys are: one scale for a head. A tile's weights take the values' scales and become bytes,
// 255 the largest of the tile; so a line's output is a sum of whole numbers for each tile, scaled once.

// Scores of ROWS lines and UNITS units of 16 keys, still whole.
template <int ROWS, int UNITS>
static inline HK_INLINE void score_int8(const Operand* const* query, const int32_t* corrections,
                                        const uint8_t* const* keys, int width, D dots[ROWS][UNITS]) {
  repeat<ROWS>([&](auto r) HK_INLINE {
    const D begin = begin_offset(corrections[r]);
    repeat<UNITS>([&](auto u) HK_INLINE { dots[r][u] = begin; });
  });
  for (int d = 0; d < width; d += 8)
    repeat<2>([&](auto i) HK_INLINE {
      repeat<kPhases>([&](auto phase) HK_INLINE {
        W key[UNITS];
        repeat<UNITS>([&](auto u) HK_INLINE { key[u] = load_phase(keys[u] + (d + i * 4) * 16, phase); });
        repeat<ROWS>([&](auto r) HK_INLINE {
          const X q = spread(query[r] + d + i * 4 + phase * 2);
          repeat<UNITS>([&](auto u) HK_INLINE { dots[r][u] = dot_offset(dots[r][u], key[u], q); });
        });
      });
    });
}

// Sums over the tile's keys of weights times values, for PARTS vectors of each line's output.
template <int ROWS, int PARTS>
static inline HK_INLINE void weigh_int8(const Weight* weights, const uint8_t* const* values, int units, int width,
                                        D dots[ROWS][PARTS]) {
  repeat<ROWS>([&](auto r) HK_INLINE { repeat<PARTS>([&](auto p) HK_INLINE { dots[r][p] = no_dots(); }); });
  for (int u = 0; u < units; u++)
    repeat<4>([&](auto four) HK_INLINE {
      W value[PARTS];
      repeat<PARTS>([&](auto p) HK_INLINE { value[p] = load_bytes(values[u] + (size_t)four * width * 4 + p * 64); });
      repeat<kPhases>([&](auto phase) HK_INLINE {
        W part[PARTS];
        repeat<PARTS>([&](auto p) HK_INLINE { part[p] = signed_phase_of(value[p], phase); });
        repeat<ROWS>([&](auto r) HK_INLINE {
          const X weight = spread(weights + r * kTile + u * 16 + four * 4 + phase * 2);
          repeat<PARTS>([&](auto p) HK_INLINE { dots[r][p] = dot_signed(dots[r][p], part[p], weight); });
        });
      });
    });
}

class Int8Cache {
 public:
  Int8Cache(const hk_model* m, const hk_layer* layer, const Paging& paging, const Lines& lines)
      : keys_(static_cast<const uint8_t*>(layer->keys)),
        values_(static_cast<const uint8_t*>(layer->values)),
        scales_(layer->kv_scales),
        head_bytes_(paging.head_elements),
        width_(paging.padded_dim) {
    for (int i = 0; i < lines.count * width_; i += 16) store(sums_ + i, zero());
    for (int i = 0; i < lines.count; i++) {
      int8_t q[kWidestHead];
      query_scales_[i] = quantize_head(lines.query[i], m->head_dim, width_, q);
      int32_t total = 0;
      for (int d = 0; d < width_; d++) total += q[d];
      store_operands(queries_ + (size_t)i * width_, q, width_);
      corrections_[i] = -128 * total;
    }
  }

  void fetch(size_t place) const {
    for (size_t i = place * head_bytes_; i < (place + 1) * head_bytes_; i += 64)
      prefetch(keys_ + i), prefetch(values_ + i);
    prefetch(scales_ + place * 32), prefetch(scales_ + place * 32 + 16);
  }

  template <int ROWS>
  void attend(Lines& lines, int first_line, const Tile& tile) const {
    alignas(64) float weights[ROWS * kTile];
    alignas(64) Weight bytes[ROWS * kTile];
    float steps[ROWS];
    F factors[ROWS];
    score_tile<ROWS>(first_line, tile, weights);
    for (int r = 0; r < ROWS; r++) {
      factors[r] = soften(lines, first_line + r, tile, weights + r * kTile);
      steps[r] = to_bytes(lines, first_line + r, tile, weights + r * kTile, bytes + r * kTile);
    }
    float* out = sums_ + (size_t)first_line * width_;
    int part = 0;
    for (; part + kByteParts <= width_ / 16; part += kByteParts)
      weigh_part<ROWS, kByteParts>(bytes, tile, part, factors, steps, out);
    for (; part < width_ / 16; part += 2) weigh_part<ROWS, 2>(bytes, tile, part, factors, steps, out);
  }

  void finish(const Lines& lines, int line, int dim, float factor) const {
    const float* v = sums_ + (size_t)line * width_;
    for (int d = 0; d < dim; d++) lines.out[line][d] = v[d] * factor;
  }

 private:
  template <int ROWS>
  void score_tile(int line, const Tile& tile, float* scores) const {
    const Operand* query[ROWS];
    for (int r = 0; r < ROWS; r++) query[r] = queries_ + (size_t)(line + r) * width_;
    int u = 0;
    if (kScoreUnits > 1 && tile.units == kTileUnits) {
      score_units<ROWS, kScoreUnits>(query, line, tile, 0, scores);
      u = kScoreUnits;
    }
    for (; u < tile.units; u++) score_units<ROWS, 1>(query, line, tile, u, scores);
  }

  template <int ROWS, int UNITS>
  void score_units(const Operand* const* query, int line, const Tile& tile, int first, float* scores) const {
    const uint8_t* keys[UNITS];
    D dots[ROWS][UNITS];
    for (int u = 0; u < UNITS; u++) keys[u] = keys_ + tile.place[first + u] * head_bytes_;
    score_int8<ROWS, UNITS>(query, corrections_ + line, keys, width_, dots);
    for (int u = 0; u < UNITS; u++) {
      const F scale = load(scales_ + tile.place[first + u] * 32);
      for (int r = 0; r < ROWS; r++)
        store(scores + r * kTile + (first + u) * 16,
              mul(mul(to_float(dots[r][u]), scale), set1(query_scales_[line + r])));
    }
  }

  // Weights, which take the values' scales, as bytes; returns what one step of them is worth.
  float to_bytes(const Lines& lines, int line, const Tile& tile, const float* weights, Weight* bytes) const {
    const int first = lines.first[line] - tile.begin, last = lines.last[line] - tile.begin;
    const bool whole = first <= 0 && last >= tile.units * 16;
    F v[kTileUnits], top = zero();
    for (int u = 0; u < tile.units; u++) {
      v[u] = mul(load(weights + u * 16), load(scales_ + tile.place[u] * 32 + 16));
      // What nobody has stored yet may hold any scale.
      if (!whole) v[u] = lanes(v[u], first - u * 16, last - u * 16, zero());
      top = max_magnitude(top, v[u]);
    }
    const float most = top_magnitude(top);
    const F inverse = set1(most > 1e-30f ? 255.0f / most : 0.0f);
    for (int u = 0; u < tile.units; u++) store_weights(bytes + u * 16, mul(v[u], inverse));
    return most * (1.0f / 255.0f);
  }

  template <int ROWS, int PARTS>
  void weigh_part(const Weight* bytes, const Tile& tile, int part, const F* factors, const float* steps,
                  float* out) const {
    const uint8_t* values[kTileUnits];
    D dots[ROWS][PARTS];
    for (int u = 0; u < tile.units; u++) values[u] = values_ + tile.place[u] * head_bytes_ + (size_t)part * 64;
    weigh_int8<ROWS, PARTS>(bytes, values, tile.units, width_, dots);
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < PARTS; p++) {
        float* at = out + (size_t)r * width_ + (part + p) * 16;
        store(at, fma(to_float(dots[r][p]), set1(steps[r]), mul(load(at), factors[r])));
      }
  }

  const uint8_t *keys_, *values_;
  const float* scales_;
  size_t head_bytes_;
  int width_;
  float query_scales_[kMostLines];
  int32_t corrections_[kMostLines];
  Operand queries_[kMostLines * kWidestHead];
  alignas(64) mutable float sums_[kMostLines * kWidestHead];
};
