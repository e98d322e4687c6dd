// Attention of some (query, head) lines to one key head. Included by kernels.h.
//
// Keys are taken in tiles of 64 that begin at multiples of 64, so that a line meets the same tiles in the same order
// in every chunk; the running maximum, sum and output are corrected once a tile. What differs between the forms of the
// cache is in attention_bfloat16.h and attention_int8.h.

static constexpr int kTile = 64, kTileUnits = kTile / 16;

struct Lines {
  int count;
  const float* query[kMostLines];
  float* out[kMostLines];
  int first[kMostLines], last[kMostLines];  // keys first <= position < last are seen
  float top[kMostLines];
  F total[kMostLines];
};

// What the lines of an item see of the cache at once.
struct Tile {
  int begin, units;          // its first position; units of 16 that somebody sees
  size_t place[kTileUnits];  // of each unit, for this key head
};

// A line's scores in [0, units * 16) become weights; returns what its output so far must be multiplied by.
static inline F soften(Lines& lines, int line, const Tile& tile, float* scores) {
  const int first = lines.first[line] - tile.begin, last = lines.last[line] - tile.begin;
  const bool whole = first <= 0 && last >= tile.units * 16;
  F v[kTileUnits], top = set1(lines.top[line]);
  for (int u = 0; u < tile.units; u++) {
    v[u] = load(scores + u * 16);
    if (!whole) v[u] = lanes(v[u], first - u * 16, last - u * 16, set1(-__builtin_inff()));
    top = max(top, v[u]);
  }
  const float before = lines.top[line], now = largest(top);
  F factor = set1(1.0f);
  if (before != now) factor = before == -__builtin_inff() ? zero() : exponential_of_two(set1((before - now) * kLog2E));
  F sums = mul(lines.total[line], factor);
  for (int u = 0; u < tile.units; u++) {
    F weight = exponential_of_two(mul(sub(v[u], set1(now)), set1(kLog2E)));
    if (!whole) weight = lanes(weight, first - u * 16, last - u * 16, zero());
    store(scores + u * 16, weight);
    sums = add(sums, weight);
  }
  lines.total[line] = sums;
  lines.top[line] = now;
  return factor;
}

#include "attention_bfloat16.h"
#include "attention_int8.h"

template <class Cache, int ROWS>
static inline void attend_some(int rows, const Cache& cache, Lines& lines, int line, const Tile& tile) {
  if (rows == ROWS)
    cache.template attend<ROWS>(lines, line, tile);
  else if constexpr (ROWS > 1)
    attend_some<Cache, ROWS - 1>(rows, cache, lines, line, tile);
}

template <class Cache>
static inline void attend_tile(const Cache& cache, Lines& lines, const Tile& tile) {
  for (int line = 0; line < lines.count;) {
    // Lines are in the order of their queries; a run of lines that see something of this tile is taken together.
    if (lines.last[line] <= tile.begin || lines.first[line] >= tile.begin + kTile) {
      line++;
      continue;
    }
    int rows = 1;
    while (rows < kAttentionRows && line + rows < lines.count && lines.last[line + rows] > tile.begin &&
           lines.first[line + rows] < tile.begin + kTile)
      rows++;
    attend_some<Cache, kAttentionRows>(rows, cache, lines, line, tile);
    line += rows;
  }
}

template <class Cache>
static inline void attend(const hk_model* m, const hk_layer* layer, const int32_t* table, int kv_head, Lines& lines) {
  const Paging paging(m);
  Cache cache(m, layer, paging, lines);
  int from = lines.first[0], to = lines.last[0];
  for (int i = 0; i < lines.count; i++) {
    from = lines.first[i] < from ? lines.first[i] : from;
    to = lines.last[i] > to ? lines.last[i] : to;
    lines.top[i] = -__builtin_inff();
    lines.total[i] = zero();
  }
  for (Tile tile = {from / kTile * kTile, 0, {}}; tile.begin < to; tile.begin += kTile) {
    tile.units = to - tile.begin < kTile ? (to - tile.begin + 15) / 16 : kTileUnits;
    for (int u = 0; u < tile.units; u++) {
      // Nothing before the window is looked at; what is read in its place is hidden.
      const int at = tile.begin + u * 16;
      tile.place[u] = paging.place(table, at + 16 <= from ? from : at, kv_head);
      // One or few queries wait for the next tile's keys and values; many find work enough meanwhile.
      if (at + kTile < to) cache.fetch(paging.place(table, at + kTile, kv_head));
    }
    attend_tile(cache, lines, tile);
  }
  for (int i = 0; i < lines.count; i++) cache.finish(lines, i, m->head_dim, 1.0f / sum(lines.total[i]));
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
  const int32_t* table = s->tables + s->table_first[share.row];
  (m->kv_format == HK_KV_INT8 ? attend<Int8Cache> : attend<Bfloat16Cache>)(m, a.layer, table, share.kv_head, lines);
}
