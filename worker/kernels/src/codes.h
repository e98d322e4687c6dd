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
  static constexpr bool kScalesRows = false;

  template <int ROWS>
  static inline void add_group(const Group& in, const uint8_t* w, F acc[ROWS][2]) {
    const Codebook book = load_codebook(Values::kBook);
    D dots[ROWS][2];
    for (int r = 0; r < ROWS; r++) {
      const int32_t* sums = in.sums + r * in.scale_stride * 2;
      dots[r][0] = dots[r][1] = begin_offset(sums[0] + sums[1]);
    }
#pragma GCC unroll 4
    for (int s = 0; s < 8; s++, w += 128) {
      const W w0 = load_bytes(w), w1 = load_bytes(w + 64);
      const W low0 = look_up(book, low_nibbles(w0)), low1 = look_up(book, low_nibbles(w1));
      HK_STEP(dot_offset, low0, low1, s * 4)
      const W high0 = look_up(book, high_nibbles(w0)), high1 = look_up(book, high_nibbles(w1));
      HK_STEP(dot_offset, high0, high1, s * 4 + 32)
    }
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(w);
    const F factor[2] = {load_halves(halves), load_halves(halves + 16)};
    for (int r = 0; r < ROWS; r++) {
      const F scale = set1(in.scales[r * in.scale_stride] * Values::kStep);
      for (int c = 0; c < 2; c++) acc[r][c] = fma(mul(to_float(dots[r][c]), factor[c]), scale, acc[r][c]);
    }
  }
};
