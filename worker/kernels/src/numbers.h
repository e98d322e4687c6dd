// Numbers of 16 bit. Included inside a namespace, before the vectors.

static inline uint16_t to_bfloat16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

static inline float from_bfloat16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}

static inline float from_half(uint16_t x) {
  const uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = (x >> 10) & 31, fraction = x & 1023;
  if (exponent == 0) {
    const float size = (float)fraction * 5.9604644775390625e-8f;  // 2 to the power of -24
    return sign ? -size : size;
  }
  const uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112u) << 23 | fraction << 13;
  float out;
  __builtin_memcpy(&out, &bits, 4);
  return out;
}
