// Sixteen floats in an array that the compiler may spread over whatever registers there are.
// Included inside the namespace of an instruction set.
struct F {
  float v[16];
};

static constexpr int kScoreUnits = 1;
static constexpr int kAttentionRows = 2;
static constexpr int kValueParts = 2;
static constexpr int kByteParts = 2;
static constexpr int kMatmulRows = 2;
static constexpr int kSmallRows = 2;
static constexpr int kMatmulSums = 4;
static constexpr int kHeadRows = 1;

static inline void prefetch(const void* p) { __builtin_prefetch(p); }

#define HK_EACH(expression)                        \
  F out;                                           \
  for (int i = 0; i < 16; i++) out.v[i] = (expression); \
  return out

static inline F load(const float* p) { HK_EACH(p[i]); }
static inline void store(float* p, const F& x) { __builtin_memcpy(p, x.v, sizeof x.v); }
static inline F set1(float x) { HK_EACH(x); }
static inline F zero() { HK_EACH(0.0f); }
static inline F add(const F& x, const F& y) { HK_EACH(x.v[i] + y.v[i]); }
static inline F sub(const F& x, const F& y) { HK_EACH(x.v[i] - y.v[i]); }
static inline F mul(const F& x, const F& y) { HK_EACH(x.v[i] * y.v[i]); }
static inline F div(const F& x, const F& y) { HK_EACH(x.v[i] / y.v[i]); }
static inline F fma(const F& x, const F& y, const F& z) { HK_EACH(__builtin_fmaf(x.v[i], y.v[i], z.v[i])); }
// NaN in the second argument stays.
static inline F max(const F& x, const F& y) { HK_EACH(x.v[i] > y.v[i] ? x.v[i] : y.v[i]); }
static inline F min(const F& x, const F& y) { HK_EACH(x.v[i] < y.v[i] ? x.v[i] : y.v[i]); }
static inline uint32_t bits(float x) {
  uint32_t out;
  __builtin_memcpy(&out, &x, 4);
  return out;
}
static inline float from_bits(uint32_t x) {
  float out;
  __builtin_memcpy(&out, &x, 4);
  return out;
}
// Adding and taking away 1.5 * 2^23 rounds to the nearest even whole number, for magnitudes below 2^22.
static inline float round_one(float x) { return (x + 12582912.0f) - 12582912.0f; }
static inline F round(const F& x) { HK_EACH(round_one(x.v[i])); }
// What is no number counts as 0 here, since to convert it would be undefined.
static inline int32_t whole_one(float x) { return x > -4194304.0f && x < 4194304.0f ? (int32_t)round_one(x) : 0; }
// 2 to the power of whole numbers between -126 and 128.
static inline F power_of_two(const F& n) { HK_EACH(from_bits((uint32_t)(whole_one(n.v[i]) + 127) << 23)); }
// Lanes first <= i < last of v, others from other.
static inline F lanes(const F& x, int first, int last, const F& other) {
  HK_EACH(i >= first && i < last ? x.v[i] : other.v[i]);
}
// v where x is at least bound, else 0.
static inline F where_reaching(const F& x, const F& bound, const F& v) {
  HK_EACH(x.v[i] >= bound.v[i] ? v.v[i] : 0.0f);
}
// Magnitudes compared as bits, so that infinity and NaN come out on top.
static inline uint32_t magnitude_bits(float x) { return bits(x) & 0x7fffffffu; }
static inline float max_magnitude_one(float x, float y) {
  const uint32_t a = magnitude_bits(x), b = magnitude_bits(y);
  return from_bits(a > b ? a : b);
}
static inline F max_magnitude(const F& x, const F& y) { HK_EACH(max_magnitude_one(x.v[i], y.v[i])); }
static inline float top_magnitude(const F& x) {
  float top = 0.0f;
  for (int i = 0; i < 16; i++) top = max_magnitude_one(top, x.v[i]);
  return top;
}
// Rounds to int8; the sum of what was stored is added to sums.
typedef int32_t I;
static inline I no_sums() { return 0; }
static inline I store_int8(int8_t* p, const F& x, I sums) {
  for (int i = 0; i < 16; i++) {
    const int32_t whole = whole_one(x.v[i]);
    p[i] = (int8_t)(whole > 127 ? 127 : whole < -128 ? -128 : whole);
    sums += p[i];
  }
  return sums;
}
static inline int32_t total(I sums) { return sums; }
// 32 neighbouring bfloat16: even ones and odd ones.
static inline void load_pairs(const uint16_t* p, F* even, F* odd) {
  for (int i = 0; i < 16; i++) {
    even->v[i] = from_bits((uint32_t)p[2 * i] << 16);
    odd->v[i] = from_bits((uint32_t)p[2 * i + 1] << 16);
  }
}

// ---- Sixteen whole numbers and what they are sums of

struct D {
  int32_t v[16];
};
struct W {
  uint8_t v[64];  // four for each of sixteen sums
};
struct X {
  uint8_t v[4];
};
static inline W load_bytes(const uint8_t* p) {
  W out;
  __builtin_memcpy(out.v, p, 64);
  return out;
}
static inline W low_nibbles(const W& w) {
  W out;
  for (int i = 0; i < 64; i++) out.v[i] = w.v[i] & 15;
  return out;
}
static inline W high_nibbles(const W& w) {
  W out;
  for (int i = 0; i < 64; i++) out.v[i] = w.v[i] >> 4;
  return out;
}
// The byte of 16 that each nibble names.
typedef const uint8_t* Codebook;
static inline Codebook load_codebook(const uint8_t* p) { return p; }
static inline W look_up(Codebook book, const W& nibbles) {
  W out;
  for (int i = 0; i < 64; i++) out.v[i] = book[nibbles.v[i]];
  return out;
}
static inline X spread(const void* four) {
  X out;
  __builtin_memcpy(out.v, four, 4);
  return out;
}
// What whole bytes are multiplied by, four at a time, all in one go.
typedef int8_t Operand;
typedef uint8_t Weight;
static constexpr int kPhases = 1;
static inline void store_operands(Operand* to, const int8_t* q, int count) { __builtin_memcpy(to, q, count); }
static inline W phase_of(const W& w, int) { return w; }
static inline W load_phase(const uint8_t* p, int) { return load_bytes(p); }
static inline W signed_phase_of(const W& w, int) { return w; }
static inline D begin_offset(int32_t correction) {
  D out;
  for (int i = 0; i < 16; i++) out.v[i] = correction;
  return out;
}
static inline D no_dots() { return begin_offset(0); }
// Unsigned bytes times signed ones; sums over bytes that are 128 too large begin with a correction for it.
static inline D dot_offset(const D& sum, const W& w, const X& x) {
  D out = sum;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 4; j++) out.v[i] += w.v[i * 4 + j] * (int8_t)x.v[j];
  return out;
}
typedef D Small;
static inline Small no_small() { return no_dots(); }
static inline Small dot_small(const Small& sum, const W& w, const X& x) { return dot_offset(sum, w, x); }
static inline D small_sums(const Small& sum) { return sum; }
// Signed bytes times unsigned ones.
static inline D dot_signed(const D& sum, const W& w, const X& x) {
  D out = sum;
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 4; j++) out.v[i] += (int8_t)w.v[i * 4 + j] * x.v[j];
  return out;
}
static inline F to_float(const D& sum) { HK_EACH((float)sum.v[i]); }
static inline F load_halves(const uint16_t* p) { HK_EACH(from_half(p[i])); }
// Rounds what lies between 0 and 255.
static inline void store_weights(Weight* p, const F& x) {
  for (int i = 0; i < 16; i++) p[i] = (uint8_t)whole_one(x.v[i]);
}
// Adds and compares by halves, in the order that every instruction set keeps.
static inline float sum(F x) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x.v[i] += x.v[i + half];
  return x.v[0];
}
static inline float largest(F x) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; i++) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  return x.v[0];
}

#undef HK_EACH
#define HK_PLAIN_HEAD 1
