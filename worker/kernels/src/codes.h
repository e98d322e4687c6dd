// Weights as names of 16 values: bitsandbytes' 4-bit formats. Included by products.h.

// The values in whole steps, 128 too large, and what a step is of the largest one; worker/kernels/codes.py says where they come from.
struct Nf4 {
  alignas(16) static constexpr uint8_t kBook[16] = {4,   42,  63,  79,  93,  105, 117, 128,
                                                    138, 148, 159, 170, 183, 198, 218, 252};
  static constexpr float kStep = 1.0f / 124.11f;
};
struct Fp4 {
  alignas(16) static constexpr uint8_t kBook[16] = {128, 129, 208, 248, 168, 188, 148, 158,
                                                    128, 127, 48,  8,   88,  68,  108, 98};
  static constexpr float kStep = 1.0f / 120.0f;
};

// Nibbles [8 steps][32 outputs][4], whose upper halves belong to the steps 8 to 15; then the largest magnitude for
// each output, in half precision.
template <class Values>
struct Codes4 {
  static constexpr size_t kGroupBytes = 1024 + 64;
  static constexpr bool kScalesRows = false, kWhole = true;
  static constexpr int kRows = kMatmulRows;

  template <int ROWS, int COLUMNS>
  static inline HK_INLINE void add_group(const Group& in, const uint8_t* w, int column, F acc[ROWS][2]) {
    const Codebook book = load_codebook(Values::kBook);
    D dots[ROWS][COLUMNS];
    repeat<ROWS>([&](auto r) HK_INLINE {
      const int32_t* sums = in.sums + r * in.scale_stride * 2;
      const D begin = begin_offset(sums[0] + sums[1]);
      repeat<COLUMNS>([&](auto c) HK_INLINE { dots[r][c] = begin; });
    });
    const uint8_t* at = w + column * 64;
#pragma GCC unroll 4
    for (int s = 0; s < 8; s++, at += 128) {
      W bytes[COLUMNS], half[COLUMNS];
      const auto part = [&](int c, int phase) HK_INLINE { return phase_of(half[c], phase); };
      load_columns<COLUMNS>(at, bytes);
      repeat<COLUMNS>([&](auto c) HK_INLINE { half[c] = look_up(book, low_nibbles(bytes[c])); });
      step_offset<ROWS, COLUMNS>(dots, part, in.x + s * 4, in.x_stride);
      repeat<COLUMNS>([&](auto c) HK_INLINE { half[c] = look_up(book, high_nibbles(bytes[c])); });
      step_offset<ROWS, COLUMNS>(dots, part, in.x + (s + 8) * 4, in.x_stride);
    }
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(w + 1024) + column * 16;
    F factor[COLUMNS];
    repeat<COLUMNS>([&](auto c) HK_INLINE { factor[c] = load_halves(halves + c * 16); });
    repeat<ROWS>([&](auto r) HK_INLINE {
      const F scale = set1(in.scales[r * in.scale_stride] * Values::kStep);
      repeat<COLUMNS>([&](auto c) HK_INLINE {
        F& sum = acc[r][column + c];
        sum = fma(mul(to_float(dots[r][c]), factor[c]), scale, sum);
      });
    });
  }
};
