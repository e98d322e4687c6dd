// The kernels, written once over vectors of sixteen floats. Included inside the namespace of an instruction set, after
// its vectors. A row's numbers never depend on what else is in the step: each is computed by the same operations in the
// same order, whichever tile, thread or chunk it falls into.

// Does something for 0 to COUNT - 1, each of them a constant: what a compiler would do with a loop too, but often too late
// for small arrays to become registers.
template <int I>
struct Index {
  constexpr operator int() const { return I; }
};
#ifdef __SANITIZE_ADDRESS__
#define HK_INLINE  // speed is not what is looked at, and with a check at each access inlining takes minutes to compile
#else
#define HK_INLINE __attribute__((always_inline))
#endif
template <int COUNT, class Body>
static inline HK_INLINE void repeat(Body body) {
  if constexpr (COUNT > 0) {
    repeat<COUNT - 1>(body);
    body(Index<COUNT - 1>());
  }
}

static constexpr float kLog2E = 1.44269504f;

static inline F exponential(F x) {
  x = min(set1(88.7f), max(set1(-87.3f), x));
  const F n = round(mul(x, set1(kLog2E)));
  F r = fma(n, set1(-0.693359375f), x);
  r = fma(n, set1(2.12194440e-4f), r);
  F p = set1(1.9875691500e-4f);
  p = fma(p, r, set1(1.3981999507e-3f));
  p = fma(p, r, set1(8.3334519073e-3f));
  p = fma(p, r, set1(4.1665795894e-2f));
  p = fma(p, r, set1(1.6666665459e-1f));
  p = fma(p, r, set1(5.0000001201e-1f));
  p = add(fma(mul(p, r), r, r), set1(1.0f));
  return mul(p, power_of_two(n));
}

// 2 to the power of x, to 3e-6 of it: enough for what becomes 8 bits. Never so small that it is slow.
static inline F exponential_of_two(F x) {
  x = min(set1(127.0f), max(set1(-125.0f), x));
  const F n = round(x), f = sub(x, n);
  F p = fma(set1(0.009570101276040077f), f, set1(0.05591785907745361f));
  p = fma(p, f, set1(0.240247443318367f));
  p = fma(p, f, set1(0.6931217908859253f));
  p = fma(p, f, set1(0.9999992847442627f));
  return mul(p, power_of_two(n));
}

// ---- Quantization: a group of 64 has one scale. A group with infinity or NaN gets a scale that is no number either.

static inline void quantize_group(const F v[4], int8_t* q, float* scale, int32_t* sums) {
  const float top = top_magnitude(max_magnitude(max_magnitude(v[0], v[1]), max_magnitude(v[2], v[3])));
  const float inverse = top > 1e-30f || !(top >= 0.0f) ? 127.0f / top : 0.0f;
  for (int half = 0; half < 2; half++) {
    I stored = no_sums();
    for (int i = half * 2; i < half * 2 + 2; i++) stored = store_int8(q + i * 16, mul(v[i], set1(inverse)), stored);
    sums[half] = (int32_t)(0u - 128u * (uint32_t)total(stored));  // of what is no number, any sum will do
  }
  *scale = top * (1.0f / 127.0f);
}

static inline void quantize_row(const float* x, int k, Quantized out, size_t row) {
  for (int g = 0; g < k / 64; g++) {
    F v[4];
    for (int i = 0; i < 4; i++) v[i] = load(x + g * 64 + i * 16);
    const size_t at = row * (k / 64) + g;
    quantize_group(v, out.q + row * k + g * 64, out.scales + at, out.sums + at * 2);
  }
}

// The rows of an item.
struct Rows {
  int first, last;
  Rows(const Args& a, int item)
      : first(item * a.rows_per_item),
        last(first + a.rows_per_item < a.rows ? first + a.rows_per_item : a.rows) {}
};

static void quantize(const Args& a, int item) {
  const Rows rows(a, item);
  for (int row = rows.first; row < rows.last; row++) quantize_row(a.x + (size_t)row * a.k, a.k, a.result, row);
}

static inline float inverse_rms(const float* x, int width, int padded, float epsilon) {
  F squares[4] = {zero(), zero(), zero(), zero()};
  for (int i = 0; i < padded; i += 64)
    for (int j = 0; j < 4; j++) {
      const F v = load(x + i + j * 16);
      squares[j] = fma(v, v, squares[j]);
    }
  const float mean = sum(add(add(squares[0], squares[1]), add(squares[2], squares[3]))) / (float)width;
  return 1.0f / __builtin_sqrtf(mean + epsilon);
}

static void norm_quantize(const Args& a, int item) {
  const Rows rows(a, item);
  const int k = a.k;
  for (int row = rows.first; row < rows.last; row++) {
    const float* from = a.x + (size_t)row * k;
    const F factor = set1(inverse_rms(from, a.width, k, a.epsilon));
    for (int g = 0; g < k / 64; g++) {
      F v[4];
      for (int i = 0; i < 4; i++) {
        const int at = g * 64 + i * 16;
        v[i] = mul(mul(load(from + at), factor), load(a.weight + at));
      }
      const size_t at = (size_t)row * (k / 64) + g;
      quantize_group(v, a.result.q + (size_t)row * k + g * 64, a.result.scales + at, a.result.sums + at * 2);
    }
  }
}

#include "products.h"
#include "head.h"
#include "embedding.h"
#include "cache.h"
#include "attention.h"
