// Sixteen floats in one register. Included inside the namespace of an instruction set.

typedef __m512 F;

static constexpr int kScoreUnits = 4;    // units of 16 keys scored at once
static constexpr int kAttentionRows = 6; // (query, head) pairs that share the loads of keys and values
static constexpr int kValueParts = 4;    // vectors of output held at once
static constexpr int kByteParts = 4;     // likewise, of values in bytes
static constexpr int kMatmulRows = 8;  // their sums have registers; those of the groups before them lie in the first-level cache
static constexpr int kSmallRows = 6;
static constexpr int kMatmulSums = 16;
static constexpr int kHeadRows = 6;

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
// v where x is at least bound, else 0.
static inline F where_reaching(F x, F bound, F v) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), v);
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

// ---- Sixteen whole numbers and what they are sums of

typedef __m512i D;
typedef __m512i W;  // 64 bytes of weights, keys or values: four for each of sixteen sums
typedef __m512i X;  // four bytes, repeated
static inline W load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
static inline W low_nibbles(W w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
static inline W high_nibbles(W w) { return _mm512_and_si512(_mm512_srli_epi16(w, 4), _mm512_set1_epi8(15)); }
// The byte of 16 that each nibble names.
typedef __m512i Codebook;
static inline Codebook load_codebook(const uint8_t* p) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i*)p));
}
static inline W look_up(Codebook book, W nibbles) { return _mm512_shuffle_epi8(book, nibbles); }
static inline X spread(const void* four) {
  int32_t bits;
  __builtin_memcpy(&bits, four, 4);
  return _mm512_set1_epi32(bits);
}
// What whole bytes are multiplied by, four at a time, all in one go.
typedef int8_t Operand;
typedef uint8_t Weight;
static constexpr int kPhases = 1;
static inline void store_operands(Operand* to, const int8_t* q, int count) { __builtin_memcpy(to, q, count); }
static inline W phase_of(W w, int) { return w; }
static inline W load_phase(const uint8_t* p, int) { return load_bytes(p); }
static inline W signed_phase_of(W w, int) { return w; }
static inline D no_dots() { return _mm512_setzero_si512(); }
// Where sums over bytes that are 128 too large begin: correction is -128 times the sum of the other side.
static inline D begin_offset(int32_t correction) { return _mm512_set1_epi32(correction); }
// Of the intrinsic GCC makes two copies of each sum, and then keeps other sums in memory.
static inline D dot_offset(D sum, W w, X x) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  return sum;
}
// Bytes up to 15 times signed ones.
typedef D Small;
static inline Small no_small() { return no_dots(); }
static inline Small dot_small(Small sum, W w, X x) { return dot_offset(sum, w, x); }
static inline D small_sums(Small sum) { return sum; }
// Signed bytes times unsigned ones.
static inline D dot_signed(D sum, W w, X x) { return dot_offset(sum, x, w); }
static inline F to_float(D sum) { return _mm512_cvtepi32_ps(sum); }
static inline F load_halves(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p)); }
// Rounds what lies between 0 and 255.
static inline void store_weights(Weight* p, F v) {
  _mm_storeu_si128((__m128i*)p, _mm512_cvtusepi32_epi8(_mm512_cvtps_epi32(v)));
}
// Adds and compares by halves, in the order that every instruction set keeps.
static inline float sum(F v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float largest(F v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
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
