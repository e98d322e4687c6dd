// Sixteen floats in two registers. Included inside the namespace of an instruction set.

struct F {
  __m256 a, b;
};

static constexpr int kScoreUnits = 1;
static constexpr int kAttentionRows = 4;
static constexpr int kValueParts = 2;
static constexpr int kByteParts = 1;
static constexpr int kMatmulRows = 4;  // eight registers of sums: of four rows and 16 outputs, or two and 32
static constexpr int kSmallRows = 6;   // products of 4-bit weights need fewer registers beside the sums
static constexpr int kMatmulSums = 4;
static constexpr int kHeadRows = 1;

static inline void prefetch(const void* p) { _mm_prefetch((const char*)p, _MM_HINT_T0); }

static inline F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
static inline void store(float* p, F v) {
  _mm256_storeu_ps(p, v.a);
  _mm256_storeu_ps(p + 8, v.b);
}
static inline F set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
static inline F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
static inline F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
static inline F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
static inline F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
static inline F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
static inline F fma(F x, F y, F z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
// NaN in the second argument stays.
static inline F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
static inline F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
static inline F round(F x) {
  constexpr int how = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, how), _mm256_round_ps(x.b, how)};
}
static inline __m256 power_of_two_half(__m256 n) {
  const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
}
// 2 to the power of whole numbers between -126 and 128.
static inline F power_of_two(F n) { return {power_of_two_half(n.a), power_of_two_half(n.b)}; }
// Lanes first <= i < last of v, others from other.
static inline F lanes(F v, int first, int last, F other) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
  const __m256i from = _mm256_set1_epi32(first - 1), to = _mm256_set1_epi32(last);
  const __m256i keep_a = _mm256_and_si256(_mm256_cmpgt_epi32(low, from), _mm256_cmpgt_epi32(to, low));
  const __m256i keep_b = _mm256_and_si256(_mm256_cmpgt_epi32(high, from), _mm256_cmpgt_epi32(to, high));
  return {_mm256_blendv_ps(other.a, v.a, _mm256_castsi256_ps(keep_a)),
          _mm256_blendv_ps(other.b, v.b, _mm256_castsi256_ps(keep_b))};
}
// v where x is at least bound, else 0.
static inline F where_reaching(F x, F bound, F v) {
  return {_mm256_and_ps(_mm256_cmp_ps(x.a, bound.a, _CMP_GE_OQ), v.a),
          _mm256_and_ps(_mm256_cmp_ps(x.b, bound.b, _CMP_GE_OQ), v.b)};
}
static inline __m256i magnitude_bits(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
}
// Magnitudes compared as bits, so that infinity and NaN come out on top.
static inline F max_magnitude(F x, F y) {
  return {_mm256_castsi256_ps(_mm256_max_epi32(magnitude_bits(x.a), magnitude_bits(y.a))),
          _mm256_castsi256_ps(_mm256_max_epi32(magnitude_bits(x.b), magnitude_bits(y.b)))};
}
static inline float top_magnitude(F x) {
  const __m256i eight = _mm256_max_epi32(magnitude_bits(x.a), magnitude_bits(x.b));
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(four));
}
// Rounds to int8; the sum of what was stored is added to lanes of sums.
typedef __m256i I;
static inline I no_sums() { return _mm256_setzero_si256(); }
static inline I store_int8(int8_t* p, F v, I sums) {
  const __m256i low = _mm256_cvtps_epi32(v.a), high = _mm256_cvtps_epi32(v.b);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128((__m128i*)p, bytes);
  return _mm256_add_epi32(sums, _mm256_add_epi32(low, high));
}
static inline int32_t total(I sums) {
  __m128i four = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}
// 32 neighbouring bfloat16: even ones and odd ones.
static inline void load_pairs(const uint16_t* p, F* even, F* odd) {
  const __m256i low = _mm256_loadu_si256((const __m256i*)p), high = _mm256_loadu_si256((const __m256i*)(p + 16));
  const __m256i mask = _mm256_set1_epi32((int)0xffff0000);
  *even = {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
  *odd = {_mm256_castsi256_ps(_mm256_and_si256(low, mask)), _mm256_castsi256_ps(_mm256_and_si256(high, mask))};
}

// ---- Sixteen whole numbers and what they are sums of

struct D {
  __m256i a, b;
};
typedef D W;        // 64 bytes of weights, keys or values: four for each of sixteen sums
typedef __m256i X;  // four bytes, repeated
static inline W load_bytes(const uint8_t* p) {
  return {_mm256_loadu_si256((const __m256i*)p), _mm256_loadu_si256((const __m256i*)(p + 32))};
}
static inline W low_nibbles(W w) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(w.a, mask), _mm256_and_si256(w.b, mask)};
}
static inline W high_nibbles(W w) { return low_nibbles({_mm256_srli_epi16(w.a, 4), _mm256_srli_epi16(w.b, 4)}); }
// The byte of 16 that each nibble names.
typedef __m256i Codebook;
static inline Codebook load_codebook(const uint8_t* p) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i*)p));
}
static inline W look_up(Codebook book, W nibbles) {
  return {_mm256_shuffle_epi8(book, nibbles.a), _mm256_shuffle_epi8(book, nibbles.b)};
}
static inline X spread(const void* four) {
  int32_t bits;
  __builtin_memcpy(&bits, four, 4);
  return _mm256_set1_epi32(bits);
}
static inline D no_dots() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
// There is no product of bytes without a chance that neighbours overflow 16 bits, so whole bytes are multiplied as words:
// the even ones of four in one phase, the odd ones in another.
typedef int16_t Operand;   // of four inputs the first, third, second and fourth
typedef uint16_t Weight;
static constexpr int kPhases = 2;
static inline __m256i even_first(__m256i words) {
  const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0, 1, 4, 5, 2, 3, 6, 7, 8,
                                         9, 12, 13, 10, 11, 14, 15);
  return _mm256_shuffle_epi8(words, order);
}
// count is a multiple of 16.
static inline void store_operands(Operand* to, const int8_t* q, int count) {
  for (int i = 0; i < count; i += 16) {
    const __m256i words = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)(q + i)));
    _mm256_storeu_si256((__m256i*)(to + i), even_first(words));
  }
}
static inline W phase_of(W w, int phase) {
  if (phase) return {_mm256_srli_epi16(w.a, 8), _mm256_srli_epi16(w.b, 8)};
  const __m256i mask = _mm256_set1_epi16(255);
  return {_mm256_and_si256(w.a, mask), _mm256_and_si256(w.b, mask)};
}
// Loaded anew for each phase: between them there is no register for what was loaded.
static inline W load_phase(const uint8_t* p, int phase) {
  __asm__("" : "+r"(p));
  return phase_of(load_bytes(p), phase);
}
static inline W signed_phase_of(W w, int phase) {
  if (!phase) w = {_mm256_slli_epi16(w.a, 8), _mm256_slli_epi16(w.b, 8)};
  return {_mm256_srai_epi16(w.a, 8), _mm256_srai_epi16(w.b, 8)};
}
// Where sums over bytes that are 128 too large begin: correction is -128 times the sum of the other side.
static inline D begin_offset(int32_t correction) { return {_mm256_set1_epi32(correction), _mm256_set1_epi32(correction)}; }
// As instructions of their own: the compiler would rather add products to one another first, copies sums, and then keeps
// other sums in memory.
static inline __m256i add_words(__m256i sum, __m256i w, X x) {
  __m256i products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(w), "x"(x));
  return sum;
}
static inline __m256i add_bytes(__m256i sum, __m256i w, X x) {
  __m256i products;
  __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(products) : "x"(w), "x"(x));
  return sum;
}
static inline D dot_offset(D sum, W w, X x) { return {add_words(sum.a, w.a, x), add_words(sum.b, w.b, x)}; }
static inline D dot_signed(D sum, W w, X x) { return dot_offset(sum, w, x); }
// Bytes up to 15 times signed ones, for eight steps: 8 * 2 * 15 * 128 fits into 16 bits.
struct Small {
  __m256i a, b;
};
static inline Small no_small() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
static inline Small dot_small(Small sum, W w, X x) {
  return {add_bytes(sum.a, w.a, x), add_bytes(sum.b, w.b, x)};
}
static inline D small_sums(Small sum) {
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_madd_epi16(sum.a, ones), _mm256_madd_epi16(sum.b, ones)};
}
static inline F to_float(D sum) { return {_mm256_cvtepi32_ps(sum.a), _mm256_cvtepi32_ps(sum.b)}; }
static inline F load_halves(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)(p + 8)))};
}
// Rounds what lies between 0 and 255.
static inline void store_weights(Weight* p, F v) {
  const __m256i words = _mm256_packus_epi32(_mm256_cvtps_epi32(v.a), _mm256_cvtps_epi32(v.b));
  _mm256_storeu_si256((__m256i*)p, even_first(_mm256_permute4x64_epi64(words, 0xd8)));
}
// Adds and compares by halves, in the order that every instruction set keeps.
static inline float sum(F v) {
  const __m256 eight = _mm256_add_ps(v.a, v.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
static inline float largest(F v) {
  const __m256 eight = _mm256_max_ps(v.a, v.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#define HK_PLAIN_HEAD 1
