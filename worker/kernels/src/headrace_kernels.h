// The C interface of the CPU kernels. Python mirrors it in worker/kernels/structs.py; raise HK_ABI with any change.
//
// Layouts (T tokens of a step, K inputs padded to groups of 64, N outputs padded to blocks of 64):
//
//   activations   int8 [T][K], for each token and group a float scale, and for each 32 inputs -128 times their sum
//   HK_INT8_ROWS  uint8 [N/32][K/4][32][4], value + 128; a float scale for each output
//   HK_BLOCKS8    [N/32][K/32] of { uint8 [8][32][4], value + 128; half scales [32] }
//   HK_BLOCKS4    [N/32][K/32] of { nibbles [4][32][4], lower halves inputs 0 to 15; half scales [32], smallest [32] }
//   HK_NF4 or FP4 [N/32][K/64] of { nibbles [8][32][4], lower halves inputs 0 to 31; half largest [32] }
//   HK_BFLOAT16   [V/16][K/2][16][2]; for embeddings and head only, which may be HK_BLOCKS8 else
//   bfloat16 KV   keys [block of 16 tokens][kv head][dim/2][16][2], values [...][kv head][16][dim]
//   int8 KV       keys uint8 [...][kv head][dim/4][16][4], value + 128, values int8 [...][kv head][4][dim][4], and float
//                 scales [...][kv head][2][16], of keys and of values
//
// A unit is 16 tokens of a KV block; unit = block * (block_size / 16) + offset / 16.
#pragma once

#include <stdint.h>

#define HK_ABI 6

// Forms of weights.
#define HK_INT8_ROWS 0
#define HK_BLOCKS4 1
#define HK_BLOCKS8 2
#define HK_BFLOAT16 3
#define HK_NF4 4
#define HK_FP4 5

// Forms of keys and values.
#define HK_KV_BFLOAT16 0
#define HK_KV_INT8 1

#pragma GCC visibility push(default)  // all else stays inside the library
#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const uint8_t* weights;
  const float* scales;  // [N]: what one step of a row's weights is worth; null where blocks have their own
  const float* bias;    // [N] or null
  int32_t n, k;         // padded
  int32_t format;
  int32_t reserved;
} hk_linear;

typedef struct {
  const float* attention_norm;  // [hidden padded]
  const float* mlp_norm;
  const float* query_norm;  // [head_dim] or null
  const float* key_norm;
  hk_linear qkv, out, gate_up, down;  // gate_up: 64 rows of gate, 64 of up, and so on
  void* keys;
  void* values;
  float* kv_scales;  // null where keys and values need none
  int32_t window;  // tokens seen, itself included; 0 for all
  int32_t reserved;
} hk_layer;

typedef struct {
  const hk_layer* layers;
  hk_linear embedding, head;
  const float* final_norm;
  const float* inverse_frequencies;  // [head_dim / 2]
  float rope_factor;                 // multiplies cosine and sine
  float norm_epsilon;
  float attention_scale;
  int32_t num_layers, hidden, vocab, heads, kv_heads, head_dim, intermediate, block_size, kv_format;
} hk_model;

typedef struct {
  const int32_t* token_ids;     // [tokens]
  const int32_t* positions;     // [tokens]
  const int32_t* rows;          // [tokens]: which row a token belongs to
  const int32_t* row_first;     // [rows + 1]: a row's first token
  const int32_t* table_first;   // [rows]: where a row's block ids begin in tables
  const int32_t* tables;        // block ids of all rows, one row after another
  const int32_t* logit_tokens;  // [logits]: tokens after which logits are wanted
  float* logits;                // [logits][vocab]
  int32_t num_tokens, num_rows, num_logits;
} hk_step;

// How to draw a token from a row of logits, and the token.
typedef struct {
  double random;  // in [0, 1)
  double top_p, typical_p;  // 1 for all
  float temperature;  // 0 takes the first of the largest; else a normal number
  float min_p;        // 0 for all
  int32_t top_k;      // 0 for all
  int32_t token;      // drawn; -1 where all logits are -infinity
} hk_draw;

// What the log probabilities of a row of logits are worked out from: logit - largest - log(mass).
typedef struct {
  double mass;      // sum of e to the power of (logit - largest)
  float peak;       // largest
  int32_t num_top;  // how many of the likeliest tokens are wanted, at most the vocabulary
} hk_score;

typedef struct hk_engine hk_engine;

int32_t hk_abi(void);
// A digest of the sources this was built from.
const char* hk_sources(void);
// Names of the instruction sets this processor has kernels for, best first, separated by spaces.
const char* hk_isas(void);

// Null when the instruction set is unknown or memory is short.
hk_engine* hk_engine_new(const char* isa, int32_t threads);
void hk_engine_free(hk_engine*);
int32_t hk_engine_threads(const hk_engine*);

// 0, or 1 when memory is short.
int32_t hk_run(hk_engine*, const hk_model*, const hk_step*);
// Nanoseconds by part since the last call, as the first thread saw them, of chains the mean of all; names: hk_part_names.
void hk_part_times(hk_engine*, int64_t* out);
const char* hk_part_names(void);

// Draws a token for each row of logits [rows][vocab], none of which is NaN or +infinity; scratch holds hk_sample_scratch
// floats for each thread.
void hk_sample(hk_engine*, const float* logits, int32_t rows, int32_t vocab, hk_draw* draws, float* scratch);
int64_t hk_sample_scratch(int32_t vocab);
// Fills scores [rows], and top [rows][most_top] with the likeliest tokens, best first, lower ids first among equals.
void hk_score_rows(hk_engine*, const float* logits, int32_t rows, int32_t vocab, hk_score* scores, int32_t* top,
                   int32_t most_top, float* scratch);
// How many rows of logits [rows][vocab] hold NaN or an infinity; broken [rows] says which.
int32_t hk_find_broken(hk_engine*, const float* logits, int32_t rows, int32_t vocab, int32_t* broken);

// Rows [n][k] to packed weights; outputs and inputs beyond n and k become zeros.
void hk_pack_int8(const int8_t* rows, int32_t n, int32_t k, uint8_t* packed);
void hk_pack_bfloat16(const float* rows, int32_t n, int32_t k, uint16_t* packed);
// Blocks of 32 inputs, as values [n][k] with half precision scales [n][k / 32], and smallest values likewise.
void hk_pack_blocks8(const int8_t* rows, const uint16_t* scales, int32_t n, int32_t k, uint8_t* packed);
void hk_pack_blocks4(const uint8_t* rows, const uint16_t* scales, const uint16_t* least, int32_t n, int32_t k,
                     uint8_t* packed);
// Names of values [n][k], each in a byte, with largest magnitudes in half precision [n][k / 64 rounded up].
void hk_pack_codes4(const uint8_t* rows, const uint16_t* scales, int32_t n, int32_t k, uint8_t* packed);

// Single kernels, for tests. Strides equal widths.
void hk_quantize(hk_engine*, const float* x, int32_t rows, int32_t k, int8_t* q, float* scales, int32_t* sums);
void hk_norm_quantize(hk_engine*, const float* x, const float* weight, int32_t rows, int32_t width, int32_t k,
                      float epsilon, int8_t* q, float* scales, int32_t* sums);
void hk_matmul(hk_engine*, const hk_linear*, const int8_t* q, const float* scales, const int32_t* sums, int32_t rows,
               float* out, int32_t accumulate);
void hk_gate_up(hk_engine*, const hk_linear*, const int8_t* q, const float* scales, const int32_t* sums, int32_t rows,
                int8_t* out_q, float* out_scales, int32_t* out_sums);
// x is changed.
void hk_head(hk_engine*, const hk_linear* head, float* x, int32_t rows, int32_t vocab, float* out);
void hk_attention(hk_engine*, const hk_model*, const hk_step*, int32_t layer, float* qkv, float* out);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
