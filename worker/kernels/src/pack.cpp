// Weights in the order of the products.

#include <cstddef>

#include "headrace_kernels.h"

namespace {
#include "numbers.h"

int round_up(int value, int step) { return (value + step - 1) / step * step; }

// Rows [n][k] of which whatever lies outside is a filling.
template <typename T>
struct Rows {
  const T* from;
  int n, k;
  T filling;
  T at(int row, int column) const { return row < n && column < k ? from[(size_t)row * k + column] : filling; }
};

template <typename Block>
void each_block(int n, int k, int inputs, Block block) {
  for (int row = 0; row < round_up(n, 64); row += 32)
    for (int at = 0; at < round_up(k, 64); at += inputs) block(row, at);
}

uint8_t* put_halves(const Rows<uint16_t>& rows, int row, int block, uint8_t* to) {
  for (int column = 0; column < 32; column++) {
    const uint16_t half = rows.at(row + column, block);
    *to++ = (uint8_t)half;
    *to++ = (uint8_t)(half >> 8);
  }
  return to;
}

// Inputs of the first half of a block in the lower halves of the bytes, of the second half in the upper ones.
uint8_t* put_nibbles(const Rows<uint8_t>& rows, int row, int at, int inputs, uint8_t* to) {
  const int half = inputs / 2;
  for (int step = 0; step < half / 4; step++)
    for (int column = 0; column < 32; column++)
      for (int i = 0; i < 4; i++) {
        const int input = at + step * 4 + i;
        *to++ = (uint8_t)(rows.at(row + column, input) | rows.at(row + column, input + half) << 4);
      }
  return to;
}

uint8_t* put_bytes(const Rows<int8_t>& rows, int row, int at, uint8_t* to) {
  for (int step = 0; step < 8; step++)
    for (int column = 0; column < 32; column++)
      for (int i = 0; i < 4; i++) *to++ = (uint8_t)(rows.at(row + column, at + step * 4 + i) + 128);
  return to;
}
}  // namespace

void hk_pack_int8(const int8_t* rows, int32_t n, int32_t k, uint8_t* packed) {
  const Rows<int8_t> from{rows, n, k, 0};
  each_block(n, k, 32, [&](int row, int at) { packed = put_bytes(from, row, at, packed); });
}

void hk_pack_blocks8(const int8_t* rows, const uint16_t* scales, int32_t n, int32_t k, uint8_t* packed) {
  const Rows<int8_t> from{rows, n, k, 0};
  const Rows<uint16_t> halves{scales, n, k / 32, 0};
  each_block(n, k, 32, [&](int row, int at) {
    packed = put_bytes(from, row, at, packed);
    packed = put_halves(halves, row, at / 32, packed);
  });
}

void hk_pack_blocks4(const uint8_t* rows, const uint16_t* scales, const uint16_t* least, int32_t n, int32_t k,
                     uint8_t* packed) {
  const Rows<uint8_t> from{rows, n, k, 0};
  const Rows<uint16_t> halves{scales, n, k / 32, 0}, smallest{least, n, k / 32, 0};
  each_block(n, k, 32, [&](int row, int at) {
    packed = put_nibbles(from, row, at, 32, packed);
    packed = put_halves(halves, row, at / 32, packed);
    packed = put_halves(smallest, row, at / 32, packed);
  });
}

void hk_pack_codes4(const uint8_t* rows, const uint16_t* scales, int32_t n, int32_t k, uint8_t* packed) {
  const Rows<uint8_t> from{rows, n, k, 0};
  const Rows<uint16_t> halves{scales, n, round_up(k, 64) / 64, 0};
  each_block(n, k, 64, [&](int row, int at) {
    packed = put_nibbles(from, row, at, 64, packed);
    packed = put_halves(halves, row, at / 64, packed);
  });
}

void hk_pack_bfloat16(const float* rows, int32_t n, int32_t k, uint16_t* packed) {
  const Rows<float> from{rows, n, k, 0.0f};
  const int padded_k = round_up(k, 64);
  for (int block = 0; block < round_up(n, 64) / 16; block++)
    for (int pair = 0; pair < padded_k / 2; pair++)
      for (int column = 0; column < 16; column++)
        for (int i = 0; i < 2; i++) {
          *packed++ = to_bfloat16(from.at(block * 16 + column, pair * 2 + i));
        }
}

