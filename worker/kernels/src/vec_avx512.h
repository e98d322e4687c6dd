// Sixteen floats in one register. Included inside the namespace of an instruction set.

typedef __m512 F;

static constexpr int kScoreUnits = 4;    // units of 16 keys scored at once
static constexpr int kAttentionRows = 6; // (query, head) pairs that share the loads of keys and values
static constexpr int kValueParts = 4;    // vectors of output held at once
static constexpr int kMatmulRows = 8;
static constexpr int kHeadRows = 6;

// With few rows a product waits for weights; their addresses are known long before.
static constexpr int kFewRows = 4, kAhead = 1536;
static inline void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

static inline F load(const float* p) { return _mm512_loadu_ps(p); }
static inline void store(float* p, F v) { _mm512_storeu_ps(p, v); }
static inline F set1(float x) { return _mm512_set1_ps(x); }
static inline F zero() { return _mm512_setzero_ps(); }
static inline F add(F a, F b) { return _mm512_add_ps(a, b); }
static inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
static inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
static inline F div(F a, F b) { return _mm512_div_ps(a, b); }
static inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
// NaN in the second argument stays.
static inline F max(F a, F b) { return _mm512_max_ps(a, b); }
static inline F min(F a, F b) { return _mm512_min_ps(a, b); }
static inline F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// 2 to the power of whole numbers between -126 and 128.
static inline F power_of_two(F n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
// Lanes first <= i < last of v, others from other.
static inline F lanes(F v, int first, int last, F other) {
  const uint32_t below = last >= 16 ? 0xffffu : last <= 0 ? 0u : (1u << last) - 1u;
  const uint32_t skipped = first <= 0 ? 0u : first >= 16 ? 0xffffu : (1u << first) - 1u;
  return _mm512_mask_blend_ps((__mmask16)(below & ~skipped), other, v);
}
// Magnitudes compared as bits, so that infinity and NaN come out on top.
static inline F max_magnitude(F a, F b) {
  const __m512i mask = _mm512_set1_epi32(0x7fffffff);
  return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                                              _mm512_and_si512(_mm512_castps_si512(b), mask)));
}
static inline float top_magnitude(F a) {
  const int32_t top = _mm512_reduce_max_epi32(_mm512_and_si512(_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(top)));
}
// Rounds to int8; the sum of what was stored is added to lanes of sums.
typedef __m512i I;
static inline I no_sums() { return _mm512_setzero_si512(); }
static inline I store_int8(int8_t* p, F v, I sums) {
  const __m512i whole = _mm512_cvtps_epi32(v);
  _mm_storeu_si128((__m128i*)p, _mm512_cvtsepi32_epi8(whole));
  return _mm512_add_epi32(sums, whole);
}
static inline int32_t total(I sums) { return _mm512_reduce_add_epi32(sums); }
// 32 neighbouring bfloat16: even ones and odd ones.
static inline void load_pairs(const uint16_t* p, F* even, F* odd) {
  const __m512i both = _mm512_loadu_si512(p);
  *even = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  *odd = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32((int)0xffff0000)));
}

// One block of 32 outputs for ROWS rows: out [ROWS][32].
template <int ROWS>
static inline void multiply(const int8_t* q, int k, const float* scales, const int32_t* sums, const uint8_t* w,
                            float* out) {
  const int groups = k / 64;
  F acc[ROWS][2];
  for (int r = 0; r < ROWS; r++) acc[r][0] = acc[r][1] = zero();
  for (int g = 0; g < groups; g++) {
    __m512i whole[ROWS][2];
    for (int r = 0; r < ROWS; r++) whole[r][0] = whole[r][1] = _mm512_set1_epi32(sums[r * groups + g]);
    const int8_t* a = q + g * 64;
#pragma GCC unroll 4
    for (int s = 0; s < 16; s++) {
      const __m512i w0 = _mm512_load_si512(w), w1 = _mm512_load_si512(w + 64);
      if (ROWS <= kFewRows) prefetch(w + kAhead), prefetch(w + kAhead + 64);
      w += 128;
#pragma GCC unroll 8
      for (int r = 0; r < ROWS; r++) {
        int32_t four;
        __builtin_memcpy(&four, a + (size_t)r * k + s * 4, 4);
        const __m512i x = _mm512_set1_epi32(four);
        whole[r][0] = _mm512_dpbusd_epi32(whole[r][0], w0, x);
        whole[r][1] = _mm512_dpbusd_epi32(whole[r][1], w1, x);
      }
    }
    for (int r = 0; r < ROWS; r++) {
      const F scale = set1(scales[r * groups + g]);
      acc[r][0] = fma(_mm512_cvtepi32_ps(whole[r][0]), scale, acc[r][0]);
      acc[r][1] = fma(_mm512_cvtepi32_ps(whole[r][1]), scale, acc[r][1]);
    }
  }
  for (int r = 0; r < ROWS; r++) {
    store(out + r * 32, acc[r][0]);
    store(out + r * 32 + 16, acc[r][1]);
  }
}

// Four blocks of 16 outputs of the head for ROWS rows: out [ROWS][64]. x is rounded to bfloat16 already, in pairs.
#ifdef __AVX512BF16__
static constexpr bool kRoundsHeadInputs = true;
template <int ROWS>
static inline void multiply_head(const float*, const uint16_t* pairs, int k, const uint16_t* w, size_t block,
                                 float* out) {
  F acc[ROWS][4];
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < 4; c++) acc[r][c] = zero();
  for (int s = 0; s < k / 2; s++) {
    __m512bh column[4];
    for (int c = 0; c < 4; c++) {
      const uint16_t* at = w + c * block + (size_t)s * 32;
      column[c] = (__m512bh)_mm512_load_si512(at);
      if (ROWS <= kFewRows) prefetch((const char*)at + kAhead);
    }
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; r++) {
      int32_t two;
      __builtin_memcpy(&two, pairs + (size_t)r * k + s * 2, 4);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
      for (int c = 0; c < 4; c++) acc[r][c] = _mm512_dpbf16_ps(acc[r][c], column[c], x);
    }
  }
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < 4; c++) store(out + r * 64 + c * 16, acc[r][c]);
}
#else
#define HK_PLAIN_HEAD 1
#endif
