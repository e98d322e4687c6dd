// Drawing tokens. Included inside the namespace of an instruction set, after the kernels.
//
// A row is cut into blocks of 64 tokens. Weights are e to the power of (logit - largest) / temperature: the likeliest
// token's is 1. Filters keep what reaches a threshold, so that tokens of equal probability stay or go together. Blocks in
// which nothing is left have a top of 0 and are passed over: what they hold is never read.

static constexpr int kSpan = 64;
static constexpr float kLeastExponent = -81.0f;  // no random number of 53 bits ever meets a weight that small
static constexpr float kLeastWeight = 1.8e-35f;
static constexpr float kTrialWeight = 1.0f / 4096;  // a nucleus nearly always ends above
static constexpr float kTrialStrangeness = 4;    // and a typical set below
static constexpr int kBins = 2048;

static inline uint32_t float_bits(float x) {
  uint32_t out;
  __builtin_memcpy(&out, &x, 4);
  return out;
}

static inline float bits_float(uint32_t x) {
  float out;
  __builtin_memcpy(&out, &x, 4);
  return out;
}

// A row of logits and, in scratch memory, what is left of it.
struct Line {
  const float* logits;
  int vocab, blocks;
  float peak, temperature;
  float* weights;   // [blocks][64]
  float* summits;   // [blocks]: largest logits
  float* tops;      // [blocks]: largest weights
  float* sums;      // [blocks]: of weights
  uint32_t* keys;   // [blocks][64]: of what is being ordered
  float* masses;    // [blocks][64]: its weights
  double* bins;     // [kBins]
};

static inline void load_span(const Line& line, int block, F v[4]) {
  const float* from = line.logits + (size_t)block * kSpan;
  const int count = line.vocab - block * kSpan;
  alignas(64) float padded[kSpan];
  if (count < kSpan) {
    for (int i = 0; i < kSpan; i++) padded[i] = i < count ? from[i] : -__builtin_inff();
    from = padded;
  }
  for (int i = 0; i < 4; i++) v[i] = load(from + i * 16);
}

static inline float largest_of(const F v[4]) { return largest(max(max(v[0], v[1]), max(v[2], v[3]))); }

static inline void keep_span(const Line& line, int block, const F v[4]) {
  for (int i = 0; i < 4; i++) store(line.weights + (size_t)block * kSpan + i * 16, v[i]);
  line.tops[block] = largest_of(v);
  line.sums[block] = sum(add(add(v[0], v[1]), add(v[2], v[3])));
}

static void survey(Line& line) {
  line.peak = -__builtin_inff();
  for (int b = 0; b < line.blocks; b++) {
    F v[4];
    load_span(line, b, v);
    line.summits[b] = largest_of(v);
    if (line.summits[b] > line.peak) line.peak = line.summits[b];
  }
}

// The first of the largest.
static int greediest(const Line& line) {
  for (int b = 0; b < line.blocks; b++)
    if (line.summits[b] == line.peak)
      for (int i = b * kSpan; i < line.vocab; i++)
        if (line.logits[i] == line.peak) return i;
  return -1;
}

static inline double total_of(const Line& line) {
  double total = 0;
  for (int b = 0; b < line.blocks; b++) total += line.sums[b];
  return total;
}

// The smallest of keys below 2^31 up to which the masses sum to what is wanted; false and the largest key where they never
// do. Keys and masses are lost. Each round looks at fewer bits of fewer keys.
static bool key_reaching(const Line& line, int count, double wanted, uint32_t* key) {
  double before = 0;
  bool is_reached = true;
  for (int shift = 20; shift >= 0; shift -= 10) {
    const uint32_t mask = shift == 20 ? kBins - 1 : 1023;
    __builtin_memset(line.bins, 0, sizeof(double) * (mask + 1));
    for (int i = 0; i < count; i++) line.bins[line.keys[i] >> shift & mask] += line.masses[i];
    uint32_t bin = 0, last = 0;
    for (; bin <= mask; bin++) {
      if (line.bins[bin] == 0) continue;
      last = bin;
      if (before + line.bins[bin] >= wanted) break;
      before += line.bins[bin];
    }
    if (bin > mask) {
      // Sums in another order may miss by a rounding what the round before had found.
      if (shift == 20) is_reached = false;
      bin = last;
      before -= line.bins[bin];
    }
    int kept = 0;
    for (int i = 0; i < count; i++) {
      const uint32_t one = line.keys[i];
      const float mass = line.masses[i];
      line.keys[kept] = one;
      line.masses[kept] = mass;
      kept += (one >> shift & mask) == bin;
    }
    count = kept;
  }
  *key = line.keys[0];
  return is_reached;
}

static inline uint32_t descending(float x) {  // of any sign; the larger, the smaller the key
  const uint32_t bits = float_bits(x);
  return bits >> 31 ? bits : ~bits & 0x7fffffffu;
}

// The wanted-th largest of count keys that descending gave, as a key.
static uint32_t key_of_rank(uint32_t* keys, double* bins, int count, int wanted) {
  uint32_t* counts = reinterpret_cast<uint32_t*>(bins);
  int before = 0;
  for (int shift = 21; count > 1; shift = shift == 21 ? 10 : 0) {
    const uint32_t mask = shift ? kBins - 1 : 1023;
    __builtin_memset(counts, 0, sizeof(uint32_t) * (mask + 1));
    for (int i = 0; i < count; i++) counts[keys[i] >> shift & mask]++;
    uint32_t bin = 0;
    while (before + (int)counts[bin] < wanted) before += (int)counts[bin++];
    int kept = 0;
    for (int i = 0; i < count; i++) {
      const uint32_t one = keys[i];
      keys[kept] = one;
      kept += (one >> shift & mask) == bin;
    }
    count = kept;
    if (shift == 0) break;
  }
  return keys[0];
}

// The k-th largest logit, k at most the vocabulary. At least k logits reach the k-th largest summit.
static float logit_of_rank(const Line& line, int k) {
  uint32_t bound = 0xffffffffu;
  if (k <= line.blocks) {
    for (int b = 0; b < line.blocks; b++) line.keys[b] = descending(line.summits[b]);
    bound = key_of_rank(line.keys, line.bins, line.blocks, k);
  }
  int count = 0;
  for (int b = 0; b < line.blocks; b++) {
    if (descending(line.summits[b]) > bound) continue;
    const int end = line.vocab < (b + 1) * kSpan ? line.vocab : (b + 1) * kSpan;
    for (int i = b * kSpan; i < end; i++) {
      const uint32_t key = descending(line.logits[i]);
      line.keys[count] = key;
      count += key <= bound;
    }
  }
  const uint32_t key = key_of_rank(line.keys, line.bins, count, k);
  return bits_float(key >> 31 ? key : ~key & 0x7fffffffu);
}

// Exponents of a span.
static inline void exponents(const Line& line, int block, F z[4]) {
  load_span(line, block, z);
  for (int i = 0; i < 4; i++)
    z[i] = max(div(sub(z[i], set1(line.peak)), set1(line.temperature)), set1(kLeastExponent));
}

// Weights of logits from a bound on, as far as they reach the least.
static void weigh(const Line& line, float bound, float least) {
  for (int b = 0; b < line.blocks; b++) {
    line.tops[b] = line.sums[b] = 0;
    const float exponent = (line.summits[b] - line.peak) / line.temperature;
    if (line.summits[b] < bound || !(exponent >= kLeastExponent)) continue;
    F v[4], x[4];
    exponents(line, b, v);
    load_span(line, b, x);
    for (int i = 0; i < 4; i++) {
      v[i] = exponential(v[i]);
      v[i] = where_reaching(x[i], set1(bound), where_reaching(v[i], set1(least), v[i]));
    }
    keep_span(line, b, v);
  }
}

static void keep_from(const Line& line, float edge) {
  for (int b = 0; b < line.blocks; b++) {
    if (line.tops[b] < edge) line.tops[b] = line.sums[b] = 0;
    if (line.tops[b] == 0) continue;
    F v[4];
    for (int i = 0; i < 4; i++) {
      v[i] = load(line.weights + (size_t)b * kSpan + i * 16);
      v[i] = where_reaching(v[i], set1(edge), v[i]);
    }
    keep_span(line, b, v);
  }
}

// The smallest weight in the smallest set of weights whose share of the mass reaches top_p; at least the largest is in it.
static float nucleus_edge(const Line& line, double top_p) {
  const double wanted = total_of(line) * top_p;
  uint32_t key = 0;
  for (float trial = kTrialWeight;; trial = kLeastWeight) {
    int count = 0;
    for (int b = 0; b < line.blocks; b++) {
      if (line.tops[b] < trial) continue;
      for (int i = b * kSpan; i < (b + 1) * kSpan; i++) {
        const float weight = line.weights[i];
        line.keys[count] = 0x3f800000u - float_bits(weight);
        line.masses[count] = weight;
        count += weight >= trial;
      }
    }
    if (key_reaching(line, count, wanted, &key) || trial == kLeastWeight) return bits_float(0x3f800000u - key);
  }
}

// How far a span's exponents are from their mean.
static inline void strangeness(const Line& line, int block, float mean, F s[4]) {
  exponents(line, block, s);
  for (int i = 0; i < 4; i++) s[i] = max_magnitude(sub(s[i], set1(mean)), zero());
}

// What all of a block's are at least.
static inline float least_strangeness(const Line& line, int block, float mean) {
  const float below = mean - (line.summits[block] - line.peak) / line.temperature;
  return below > 0 ? below : 0;
}

// The smallest strangeness up to which the weights sum to what is wanted: looked for among the least strange first, which
// are few.
static float strangest(const Line& line, float mean, double wanted) {
  uint32_t key = 0;
  for (float trial = kTrialStrangeness;; trial = __builtin_inff()) {
    int count = 0;
    for (int b = 0; b < line.blocks; b++) {
      if (line.tops[b] == 0 || least_strangeness(line, b, mean) > trial) continue;
      F s[4];
      alignas(64) float found[kSpan];
      strangeness(line, b, mean, s);
      for (int i = 0; i < 4; i++) store(found + i * 16, s[i]);
      for (int i = 0; i < kSpan; i++) {
        const float weight = line.weights[(size_t)b * kSpan + i];
        line.keys[count] = float_bits(found[i]);
        line.masses[count] = weight;
        count += (weight > 0) & (found[i] <= trial);
      }
    }
    const bool is_last = trial > kTrialStrangeness;
    if ((count && key_reaching(line, count, wanted, &key)) || is_last) return bits_float(key);
  }
}

// Keeps the tokens whose surprise is nearest to the expected one, as many as it takes for their share to reach typical_p.
static void keep_typical(const Line& line, double typical_p) {
  const double total = total_of(line);
  double expected = 0;  // of weight times exponent
  for (int b = 0; b < line.blocks; b++) {
    if (line.tops[b] == 0) continue;
    F z[4];
    exponents(line, b, z);
    for (int i = 0; i < 4; i++) z[i] = mul(z[i], load(line.weights + (size_t)b * kSpan + i * 16));
    expected += sum(add(add(z[0], z[1]), add(z[2], z[3])));
  }
  // log p = z - log total and the entropy is log total - expected / total: the logarithm cancels out.
  const float mean = (float)(expected / total);
  const float limit = strangest(line, mean, typical_p * total);
  for (int b = 0; b < line.blocks; b++) {
    if (line.tops[b] == 0) continue;
    if (least_strangeness(line, b, mean) > limit) {
      line.tops[b] = line.sums[b] = 0;
      continue;
    }
    F s[4];
    strangeness(line, b, mean, s);
    for (int i = 0; i < 4; i++)
      s[i] = where_reaching(set1(limit), s[i], load(line.weights + (size_t)b * kSpan + i * 16));
    keep_span(line, b, s);
  }
}

// The token behind which the weights, summed in the vocabulary's order, are more than this share of all.
static int token_at(const Line& line, double share) {
  const double target = total_of(line) * share;
  double before = 0;
  int block = -1;
  for (int b = 0; b < line.blocks; b++) {
    if (line.sums[b] == 0) continue;
    if (block >= 0) before += line.sums[block];
    block = b;
    if (before + line.sums[b] > target) break;
  }
  if (block < 0) return -1;
  const float* weights = line.weights + (size_t)block * kSpan;
  double inside = 0;
  for (int i = 0; i < kSpan; i++) inside += weights[i];
  // The block's sum was rounded otherwise than this one: the share counts, not the sum.
  const double rest = (target - before) / line.sums[block] * inside;
  double passed = 0;
  int token = -1;
  for (int i = 0; i < kSpan; i++) {
    if (weights[i] == 0) continue;
    token = block * kSpan + i;
    passed += weights[i];
    if (passed > rest) break;
  }
  return token;
}

static int draw_token(Line& line, const hk_draw& draw) {
  survey(line);
  if (line.peak == -__builtin_inff()) return -1;
  if (draw.temperature == 0) return greediest(line);
  line.temperature = draw.temperature;
  const bool has_top_k = draw.top_k > 0 && draw.top_k < line.vocab;
  const float bound = has_top_k ? logit_of_rank(line, draw.top_k) : -__builtin_inff();
  const float least = draw.min_p > kLeastWeight ? draw.min_p : kLeastWeight;
  weigh(line, bound, draw.top_p < 1 ? kLeastWeight : least);
  if (draw.top_p < 1) {
    const float edge = nucleus_edge(line, draw.top_p);
    keep_from(line, edge > least ? edge : least);
  }
  if (draw.typical_p < 1) keep_typical(line, draw.typical_p);
  return token_at(line, draw.random);
}

// A line over a thread's scratch memory.
static Line line_in(const Sampling& work, int thread) {
  Line line{};
  line.vocab = work.vocab;
  line.blocks = (work.vocab + kSpan - 1) / kSpan;
  const size_t padded = (size_t)line.blocks * kSpan;
  float* scratch = work.scratch + work.scratch_floats * thread;
  line.bins = reinterpret_cast<double*>(scratch);
  line.weights = scratch + kBins * 2;
  line.keys = reinterpret_cast<uint32_t*>(line.weights + padded);
  line.masses = line.weights + padded * 2;
  line.summits = line.weights + padded * 3;
  line.tops = line.summits + padded / kSpan;
  line.sums = line.tops + padded / kSpan;
  return line;
}

// An item is a thread, which takes rows until there are none.
static void sample(const Args& a, int item) {
  Sampling& work = *a.sampling;
  Line line = line_in(work, item);
  for (int row; (row = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED)) < work.rows;) {
    line.logits = work.logits + (size_t)row * work.vocab;
    work.draws[row].token = draw_token(line, work.draws[row]);
  }
}

// A row whose logits are not all finite numbers.
static void find_broken(const Args& a, int row) {
  const float* logits = a.x + (size_t)row * a.width;
  F top = zero();
  int i = 0;
  for (; i + kSpan <= a.width; i += kSpan)
    for (int j = 0; j < kSpan; j += 16) top = max_magnitude(top, load(logits + i + j));
  alignas(64) float last[kSpan] = {};
  __builtin_memcpy(last, logits + i, sizeof(float) * (size_t)(a.width - i));
  for (int j = 0; j < kSpan; j += 16) top = max_magnitude(top, load(last + j));
  a.broken[row] = !(top_magnitude(top) < __builtin_inff());
}
