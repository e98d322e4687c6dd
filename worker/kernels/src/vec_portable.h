// Sixteen floats in an array that the compiler may spread over whatever registers there are.
// Included inside the namespace of an instruction set.
struct F {
  float v[16];
};

static constexpr int kScoreUnits = 1;
static constexpr int kAttentionRows = 2;
static constexpr int kValueParts = 2;
static constexpr int kMatmulRows = 2;
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
static inline F fma(const F& x, const F& y, const F& z) { HK_EACH(x.v[i] * y.v[i] + z.v[i]); }
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

// One block of 32 outputs for ROWS rows: out [ROWS][32].
template <int ROWS>
static inline void multiply(const int8_t* q, int k, const float* scales, const int32_t* sums, const uint8_t* w,
                            float* out) {
  const int groups = k / 64;
  for (int i = 0; i < ROWS * 32; i++) out[i] = 0.0f;
  for (int g = 0; g < groups; g++) {
    int32_t whole[ROWS][32];
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 32; c++) whole[r][c] = sums[r * groups + g];
    for (int s = 0; s < 16; s++, w += 128)
      for (int r = 0; r < ROWS; r++) {
        const int8_t* a = q + (size_t)r * k + g * 64 + s * 4;
        for (int c = 0; c < 32; c++)
          whole[r][c] += w[c * 4] * a[0] + w[c * 4 + 1] * a[1] + w[c * 4 + 2] * a[2] + w[c * 4 + 3] * a[3];
      }
    for (int r = 0; r < ROWS; r++)
      for (int c = 0; c < 32; c++) out[r * 32 + c] += (float)whole[r][c] * scales[r * groups + g];
  }
}

#undef HK_EACH
#define HK_PLAIN_HEAD 1
