// Attention over keys and values in bfloat16, in float arithmetic. Included by attention.h.

// Scores of ROWS lines and UNITS units of 16 keys: one chain of products for each line and key, by dimension.
template <int ROWS, int UNITS>
static inline void score(const float* const* query, const uint16_t* const* keys, int dim, float* scores) {
  F acc[ROWS][UNITS];
  for (int r = 0; r < ROWS; r++)
    for (int u = 0; u < UNITS; u++) acc[r][u] = zero();
  for (int d = 0; d < dim; d += 2) {
    F even[UNITS], odd[UNITS];
    for (int u = 0; u < UNITS; u++) load_pairs(keys[u] + d * 16, &even[u], &odd[u]);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const F q = set1(query[r][d]);
      for (int u = 0; u < UNITS; u++) acc[r][u] = fma(even[u], q, acc[r][u]);
    }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const F q = set1(query[r][d + 1]);
      for (int u = 0; u < UNITS; u++) acc[r][u] = fma(odd[u], q, acc[r][u]);
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int u = 0; u < UNITS; u++) store(scores + r * kTile + u * 16, acc[r][u]);
}

// Adds weighted values first <= j < last of the tile to PARTS vectors of each line's output.
template <int ROWS, int PARTS>
static inline void weigh(const float* weights, const uint16_t* const* values, int stride, int first, int last,
                         float* const* out) {
  F acc[ROWS][PARTS];
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < PARTS; p++) acc[r][p] = load(out[r] + p * 16);
  for (int j = first; j < last; j++) {
    const uint16_t* from = values[j / 16] + (size_t)(j % 16) * stride;
    F v[PARTS];
    for (int p = 0; p < PARTS; p += 2) load_pairs(from + p * 16, &v[p], &v[p + 1]);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      const F weight = set1(weights[r * kTile + j]);
      for (int p = 0; p < PARTS; p++) acc[r][p] = fma(v[p], weight, acc[r][p]);
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int p = 0; p < PARTS; p++) store(out[r] + p * 16, acc[r][p]);
}

class Bfloat16Cache {
 public:
  Bfloat16Cache(const hk_model* m, const hk_layer* layer, const Paging& paging, const Lines& lines)
      : keys_(static_cast<const uint16_t*>(layer->keys)),
        values_(static_cast<const uint16_t*>(layer->values)),
        head_elements_(paging.head_elements),
        dim_(m->head_dim),
        width_(paging.padded_dim) {
    for (int i = 0; i < lines.count * width_; i += 16) store(sums_ + i, zero());
  }

  void fetch(size_t place) const {
    for (size_t i = place * head_elements_; i < (place + 1) * head_elements_; i += 32)
      prefetch(keys_ + i), prefetch(values_ + i);
  }

  template <int ROWS>
  void attend(Lines& lines, int first_line, const Tile& tile) const {
    alignas(64) float weights[ROWS * kTile];
    float* out[ROWS];
    int from = kTile, to = 0;
    score_tile<ROWS>(lines.query + first_line, tile, weights);
    for (int r = 0; r < ROWS; r++) {
      const int line = first_line + r;
      out[r] = sums_ + (size_t)line * width_;
      const F factor = soften(lines, line, tile, weights + r * kTile);
      for (int i = 0; i < width_; i += 16) store(out[r] + i, mul(load(out[r] + i), factor));
      from = lines.first[line] - tile.begin < from ? lines.first[line] - tile.begin : from;
      to = lines.last[line] - tile.begin > to ? lines.last[line] - tile.begin : to;
    }
    from = from < 0 ? 0 : from;
    to = to > tile.units * 16 ? tile.units * 16 : to;
    int part = 0;
    for (; part + kValueParts <= width_ / 16; part += kValueParts)
      weigh_part<ROWS, kValueParts>(weights, tile, part, from, to, out);
    for (; part < width_ / 16; part += 2) weigh_part<ROWS, 2>(weights, tile, part, from, to, out);
  }

  // Vectors hold the even and the odd ones of 32 neighbours.
  void finish(const Lines& lines, int line, int dim, float factor) const {
    const float* v = sums_ + (size_t)line * width_;
    for (int d = 0; d < dim; d++) {
      const int within = d % 32;
      lines.out[line][d] = v[d - within + within / 2 + (within % 2) * 16] * factor;
    }
  }

 private:
  template <int ROWS>
  void score_tile(const float* const* query, const Tile& tile, float* scores) const {
    const uint16_t* keys[kTileUnits];
    for (int u = 0; u < tile.units; u++) keys[u] = keys_ + tile.place[u] * head_elements_;
    int u = 0;
    if (kScoreUnits > 1 && tile.units == kTileUnits) {
      score<ROWS, kScoreUnits>(query, keys, dim_, scores);
      u = kScoreUnits;
    }
    for (; u < tile.units; u++) score<ROWS, 1>(query, keys + u, dim_, scores + u * 16);
  }

  template <int ROWS, int PARTS>
  void weigh_part(const float* weights, const Tile& tile, int part, int from, int to, float** out) const {
    const uint16_t* at[kTileUnits];
    for (int u = 0; u < tile.units; u++) at[u] = values_ + tile.place[u] * head_elements_ + part * 16;
    weigh<ROWS, PARTS>(weights, at, width_, from, to, out);
    for (int r = 0; r < ROWS; r++) out[r] += PARTS * 16;
  }

  const uint16_t *keys_, *values_;
  size_t head_elements_;
  int dim_, width_;
  alignas(64) mutable float sums_[kMostLines * kWidestHead];
};
