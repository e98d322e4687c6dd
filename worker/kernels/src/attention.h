// Attention of some (query, head) lines to one key head. Included by kernels.h.
//
// Keys are taken in tiles of 64 that begin at multiples of 64, so that a line meets the same tiles in the same order
// in every chunk; the running maximum, sum and output are corrected once a tile.

static constexpr int kTile = 64;

struct Lines {
  int count;
  const float* query[kMostLines];
  float* out[kMostLines];
  int first[kMostLines], last[kMostLines];  // keys first <= position < last are seen
  float top[kMostLines];
  F total[kMostLines];
};

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

template <int ROWS>
static inline void score_tile(const float* const* query, const uint16_t* const* keys, int units, int dim,
                              float* scores) {
  int u = 0;
  if (kScoreUnits > 1 && units == kTile / 16) {
    score<ROWS, kScoreUnits>(query, keys, dim, scores);
    u = kScoreUnits;
  }
  for (; u < units; u++) score<ROWS, 1>(query, keys + u, dim, scores + u * 16);
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

// Scores become weights; the line's sum and output so far are brought to the new maximum.
static inline void soften(Lines& lines, int line, float* scores, int tile, int units, float* sum_so_far, int width) {
  const int first = lines.first[line] - tile, last = lines.last[line] - tile;
  const F hidden = set1(-__builtin_inff());
  F top = set1(lines.top[line]);
  for (int u = 0; u < units; u++)
    top = max(top, lanes(load(scores + u * 16), first - u * 16, last - u * 16, hidden));
  const float now = largest(top);
  float fix[16];
  store(fix, exponential(set1(lines.top[line] - now)));
  const F factor = set1(lines.top[line] == now ? 1.0f : lines.top[line] == -__builtin_inff() ? 0.0f : fix[0]);
  F sums = mul(lines.total[line], factor);
  for (int u = 0; u < units; u++) {
    const F weight = exponential(sub(load(scores + u * 16), set1(now)));
    const F seen = lanes(weight, first - u * 16, last - u * 16, zero());
    store(scores + u * 16, seen);
    sums = add(sums, seen);
  }
  lines.total[line] = sums;
  lines.top[line] = now;
  for (int i = 0; i < width; i += 16) store(sum_so_far + i, mul(load(sum_so_far + i), factor));
}

template <int ROWS>
static inline void attend_rows(Lines& lines, int first_line, const uint16_t* const* keys, const uint16_t* const* values,
                               int tile, int units, int dim, int padded_dim, float* accumulated) {
  alignas(64) float scores[ROWS * kTile];
  float* out[ROWS];
  int from = kTile, to = 0;
  score_tile<ROWS>(lines.query + first_line, keys, units, dim, scores);
  for (int r = 0; r < ROWS; r++) {
    const int line = first_line + r;
    out[r] = accumulated + (size_t)line * padded_dim;
    soften(lines, line, scores + r * kTile, tile, units, out[r], padded_dim);
    from = lines.first[line] - tile < from ? lines.first[line] - tile : from;
    to = lines.last[line] - tile > to ? lines.last[line] - tile : to;
  }
  from = from < 0 ? 0 : from;
  to = to > units * 16 ? units * 16 : to;
  int part = 0;
  for (; part + kValueParts <= padded_dim / 16; part += kValueParts) {
    const uint16_t* at[kTile / 16];
    for (int u = 0; u < units; u++) at[u] = values[u] + part * 16;
    weigh<ROWS, kValueParts>(scores, at, padded_dim, from, to, out);
    for (int r = 0; r < ROWS; r++) out[r] += kValueParts * 16;
  }
  for (; part < padded_dim / 16; part += 2) {
    const uint16_t* at[kTile / 16];
    for (int u = 0; u < units; u++) at[u] = values[u] + part * 16;
    weigh<ROWS, 2>(scores, at, padded_dim, from, to, out);
    for (int r = 0; r < ROWS; r++) out[r] += 32;
  }
}

template <int ROWS>
static inline void attend_some(int rows, Lines& lines, int first_line, const uint16_t* const* keys,
                               const uint16_t* const* values, int tile, int units, int dim, int padded_dim,
                               float* accumulated) {
  if (rows == ROWS)
    attend_rows<ROWS>(lines, first_line, keys, values, tile, units, dim, padded_dim, accumulated);
  else if constexpr (ROWS > 1)
    attend_some<ROWS - 1>(rows, lines, first_line, keys, values, tile, units, dim, padded_dim, accumulated);
}

static void attend(const hk_model* m, const hk_layer* layer, const Paging& paging, const int32_t* table, int kv_head,
                   Lines& lines) {
  alignas(64) float accumulated[kMostLines * kWidestHead];
  const int width = paging.padded_dim;
  int from = lines.first[0], to = lines.last[0];
  for (int i = 0; i < lines.count; i++) {
    from = lines.first[i] < from ? lines.first[i] : from;
    to = lines.last[i] > to ? lines.last[i] : to;
    lines.top[i] = -__builtin_inff();
    lines.total[i] = zero();
  }
  for (int i = 0; i < lines.count * width; i++) accumulated[i] = 0.0f;
  for (int tile = from / kTile * kTile; tile < to; tile += kTile) {
    const int units = to - tile < kTile ? (to - tile + 15) / 16 : kTile / 16;
    const uint16_t *keys[kTile / 16], *values[kTile / 16];
    for (int u = 0; u < units; u++) {
      // Nothing before the window is looked at; what is read in its place is hidden.
      const int at = tile + u * 16 + 16 <= from ? from : tile + u * 16;
      const size_t unit = paging.unit(table, at) + kv_head * paging.head_elements;
      keys[u] = layer->keys + unit;
      values[u] = layer->values + unit;
    }
    // One or few queries wait for the next tile's keys and values; many find work enough meanwhile.
    for (int u = 0; u < kTile / 16; u++) {
      const int at = tile + kTile + u * 16;
      if (at >= to) break;
      const size_t unit = paging.unit(table, at) + kv_head * paging.head_elements;
      for (size_t i = 0; i < paging.head_elements; i += 32) {
        prefetch(layer->keys + unit + i);
        prefetch(layer->values + unit + i);
      }
    }
    for (int line = 0; line < lines.count;) {
      // Lines are in the order of their queries; a run of lines that see something of this tile is taken together.
      if (lines.last[line] <= tile || lines.first[line] >= tile + kTile) {
        line++;
        continue;
      }
      int rows = 1;
      while (rows < kAttentionRows && line + rows < lines.count && lines.last[line + rows] > tile &&
             lines.first[line + rows] < tile + kTile)
        rows++;
      attend_some<kAttentionRows>(rows, lines, line, keys, values, tile, units, m->head_dim, width, accumulated);
      line += rows;
    }
  }
  for (int i = 0; i < lines.count; i++) {
    const float factor = 1.0f / sum(lines.total[i]);
    const float* v = accumulated + (size_t)i * width;
    // Vectors hold the even and the odd ones of 32 neighbours.
    for (int d = 0; d < m->head_dim; d++) {
      const int within = d % 32;
      lines.out[i][d] = v[d - within + within / 2 + (within % 2) * 16] * factor;
    }
  }
}

static void attention(const Args& a, int item) {
  const hk_model* m = a.model;
  const hk_step* s = a.step;
  const Share share = a.shares[item];
  const int dim = m->head_dim, group = m->heads / m->kv_heads, window = a.layer->window;
  const int stride = ((m->heads + 2 * m->kv_heads) * dim + 63) / 64 * 64, out_stride = (m->heads * dim + 63) / 64 * 64;
  Lines lines;
  lines.count = 0;
  for (int t = share.first; t < share.last; t++) {
    const int end = s->positions[t] + 1;
    for (int g = 0; g < group; g++) {
      const int at = lines.count++, head = share.kv_head * group + g;
      lines.query[at] = a.x + (size_t)t * stride + head * dim;
      lines.out[at] = a.out + (size_t)t * out_stride + head * dim;
      lines.last[at] = end;
      lines.first[at] = window && end > window ? end - window : 0;
    }
    // Padding behind the heads takes part in quantization.
    if (share.kv_head == 0)
      for (int i = m->heads * dim; i < out_stride; i++) a.out[(size_t)t * out_stride + i] = 0.0f;
  }
  attend(m, a.layer, Paging(m), s->tables + s->table_first[share.row], share.kv_head, lines);
}
