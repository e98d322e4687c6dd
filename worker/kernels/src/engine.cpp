// The C interface, and the program of a step.

#include "engine.h"

#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

using namespace hk;

namespace {

constexpr size_t kAlign = 64;

int round_up(int value, int step) { return (value + step - 1) / step * step; }

bool supports(const char* isa) {
  if (!std::strcmp(isa, "portable")) return true;
#ifdef HK_X86
  __builtin_cpu_init();
  // What has AVX2 has F16C.
  if (!std::strcmp(isa, "avx2")) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool vnni = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                    __builtin_cpu_supports("avx512vnni");
  if (!std::strcmp(isa, "avx512vnni")) return vnni;
  if (!std::strcmp(isa, "avx512bf16")) return vnni && __builtin_cpu_supports("avx512bf16");
#endif
  return false;
}

const Kernels* find(const char* isa) {
  if (!supports(isa)) return nullptr;
#ifdef HK_X86
  if (!std::strcmp(isa, "avx512bf16")) return &kAvx512Bf16;
  if (!std::strcmp(isa, "avx512vnni")) return &kAvx512Vnni;
  // What has AVX2 has F16C.
  if (!std::strcmp(isa, "avx2")) return &kAvx2;
#endif
  return &kPortable;
}

// Hands out parts of one piece of memory; with a null base it only counts.
struct Carver {
  unsigned char* base;
  size_t used = 0;
  template <typename T>
  T* take(size_t count) {
    unsigned char* at = base ? base + used : nullptr;
    used += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
    return reinterpret_cast<T*>(at);
  }
  Quantized quantized(size_t rows, size_t k) {
    return {take<int8_t>(rows * k), take<float>(rows * (k / 64)), take<int32_t>(rows * (k / 32))};
  }
};

struct Scratch {
  float *x, *qkv, *attended, *angles, *last;
  uint16_t* pairs;
  Quantized input, middle, last_input;
};

struct Sizes {
  int hidden, qkv, attended, middle;  // padded widths
  explicit Sizes(const hk_model& m)
      : hidden(round_up(m.hidden, 64)),
        qkv(round_up((m.heads + 2 * m.kv_heads) * m.head_dim, 64)),
        attended(round_up(m.heads * m.head_dim, 64)),
        middle(round_up(m.intermediate, 64)) {}
};

Scratch carve(Carver& carver, const hk_model& m, const hk_step& s) {
  const Sizes sizes(m);
  const size_t tokens = s.num_tokens, logits = s.num_logits;
  Scratch out;
  out.x = carver.take<float>(tokens * sizes.hidden);
  out.qkv = carver.take<float>(tokens * sizes.qkv);
  out.attended = carver.take<float>(tokens * sizes.attended);
  out.angles = carver.take<float>(tokens * m.head_dim);
  out.last = carver.take<float>(logits * sizes.hidden);
  out.pairs = carver.take<uint16_t>(logits * sizes.hidden);
  const int widest = sizes.hidden > sizes.attended ? sizes.hidden : sizes.attended;
  out.input = carver.quantized(tokens, widest);
  out.last_input = carver.quantized(logits, sizes.hidden);
  out.middle = carver.quantized(tokens, sizes.middle);
  return out;
}

bool reserve(hk_engine* e, size_t bytes) {
  if (bytes <= e->scratch_bytes) return true;
  std::free(e->scratch);
  e->scratch_bytes = 0;
  e->scratch = static_cast<unsigned char*>(std::aligned_alloc(kAlign, bytes));
  if (!e->scratch) return false;
  e->scratch_bytes = bytes;
  return true;
}

// From so many rows for each thread on, threads take rows instead of outputs: with fewer, to read all weights for each of
// them would cost more than it spares.
constexpr int kLeastChainRows = 24;
// Most rows of a chain: their numbers stay in a core's cache beside the weights that pass through it, and where another
// process has a core for a while, the others find enough chains to take.
constexpr int kChainRows = 40;

// Takes some rows through the kernels of a chain. What one kernel leaves is in this core's caches for the next.
void run_chain(const Args& a, int item) {
  int64_t since = now_ns();
  for (int i = 0; i < a.num_links; i++) {
    const Link& link = a.links[i];
    const int parts = (link.args.rows + link.args.rows_per_item - 1) / link.args.rows_per_item;
    for (int tile = 0; tile < link.tiles; tile++) link.kernel(link.args, tile * parts + item);
    const int64_t time = now_ns();
    __atomic_fetch_add(&a.link_ns[link.part], time - since, __ATOMIC_RELAXED);
    since = time;
  }
}

// Writes down the phases of a step.
//
// Few rows: each kernel is a phase, whose outputs the threads share, so that weights are read once.
// Many rows: what lies between two attentions is one phase, a chain, whose rows the threads share, so that a row's
// numbers stay in the caches of one core.
class Program {
 public:
  Program(hk_engine* engine, const hk_model& model, const hk_step& step, const Scratch& scratch)
      : e_(engine), kernels_(*engine->kernels), m_(model), step_(step), s_(scratch), sizes_(model) {
    e_->phases.clear();
    e_->links.clear();
    e_->links.reserve(kMostLinks * (model.num_layers + 1));  // they are pointed at
  }

  void write() {
    share_attention(m_, step_, e_->shares);
    share_last_attention();
    begin(s_.x, step_.num_tokens);
    Args args = base();
    args.out = s_.x;
    args.angles = s_.angles;
    by_rows(kEmbed, kernels_.embed, args);
    for (int i = 0; i < m_.num_layers; i++) {
      const hk_layer& layer = m_.layers[i];
      const bool is_last = i == m_.num_layers - 1;
      store_keys(layer);
      end_chain();
      if (is_last && step_.num_logits == 0) return;
      attend(layer, is_last ? e_->last_shares : e_->shares);
      if (is_last)
        pick();
      else
        quantize_attended();
      finish(layer);
    }
    logits();
  }

  static void share_attention(const hk_model& m, const hk_step& step, std::vector<Share>& shares) {
    shares.clear();
    for (int row = 0; row < step.num_rows; row++) share(m, row, step.row_first[row], step.row_first[row + 1], shares);
  }

 private:
  static constexpr int kMostLinks = 9;  // between two attentions

  Args base() const {
    Args args{};
    args.model = &m_;
    args.step = &step_;
    args.rows = rows_;
    args.epsilon = m_.norm_epsilon;
    return args;
  }

  // What follows is about these rows.
  void begin(float* x, int rows) {
    x_ = x;
    rows_ = rows;
    // As many chains for each thread as for any other.
    const int threads = e_->pool.threads(), rounds = (rows + threads * kChainRows - 1) / (threads * kChainRows);
    rows_per_chain_ = (rows + rounds * threads - 1) / (rounds * threads);
    is_chained_ = rows >= kLeastChainRows * (threads > 1 ? threads : 2);
  }

  // In the last layer only tokens with logits look back, neighbours of a row together.
  void share_last_attention() {
    e_->last_shares.clear();
    for (int i = 0, end; i < step_.num_logits; i = end) {
      const int first = step_.logit_tokens[i], row = step_.rows[first];
      for (end = i + 1; end < step_.num_logits; end++)
        if (step_.logit_tokens[end] != first + end - i || step_.rows[first + end - i] != row) break;
      share(m_, row, first, first + end - i, e_->last_shares);
    }
  }

  // Tokens first <= t < last of a row, in pieces that an item of attention has room for.
  static void share(const hk_model& m, int row, int first, int last, std::vector<Share>& shares) {
    const int per_share = kMostLines / (m.heads / m.kv_heads);
    for (; first < last; first += per_share)
      for (int head = 0; head < m.kv_heads; head++)
        shares.push_back({row, head, first, first + per_share < last ? first + per_share : last});
  }

  // Up to the keys and values of these rows.
  void store_keys(const hk_layer& layer) {
    Args args = base();
    args.layer = &layer;
    norm(args, layer.attention_norm);
    product(kQkv, args, layer.qkv, s_.input, s_.qkv, false);
    args.out = s_.qkv;
    args.angles_in = s_.angles;
    by_rows(kRope, kernels_.rope_and_store, args);
  }

  void attend(const hk_layer& layer, const std::vector<Share>& shares) {
    Args args = base();
    args.layer = &layer;
    args.x = s_.qkv;
    args.out = s_.attended;
    args.shares = shares.data();
    e_->phases.push_back({kernels_.attention, args, (int)shares.size(), kAttention});
  }

  void quantize_attended() {
    Args args = base();
    args.x = s_.attended;
    args.k = sizes_.attended;
    args.result = s_.input;
    by_rows(kNorm, kernels_.quantize, args);
  }

  void pick() {
    begin(s_.last, step_.num_logits);
    Args args = base();
    args.x = s_.x;
    args.attended = s_.attended;
    args.k = sizes_.attended;
    args.out = s_.last;
    args.result = s_.input;
    by_rows(kNorm, kernels_.pick, args);
  }

  // A layer from its attention on.
  void finish(const hk_layer& layer) {
    Args args = base();
    product(kOut, args, layer.out, s_.input, x_, true);
    norm(args, layer.mlp_norm);
    args.linear = &layer.gate_up;
    args.in = s_.input;
    args.result = s_.middle;
    tiles(kGateUp, kernels_.gate_up, args, layer.gate_up.n / 128);
    product(kDown, args, layer.down, s_.middle, x_, true);
  }

  void logits() {
    Args args = base();
    args.out = x_;
    args.pairs = s_.pairs;
    args.result = s_.last_input;
    by_rows(kNorm, kernels_.final_norm, args);
    end_chain();
    args.x = x_;
    args.linear = &m_.head;
    args.in = s_.last_input;
    args.out = step_.logits;
    args.k = sizes_.hidden;
    args.width = m_.vocab;
    e_->phases.push_back({kernels_.head, args, (m_.vocab + 63) / 64, kHead});
  }

  void norm(Args args, const float* weight) {
    args.x = x_;
    args.weight = weight;
    args.width = m_.hidden;
    args.k = sizes_.hidden;
    args.result = s_.input;
    by_rows(kNorm, kernels_.norm_quantize, args);
  }

  void product(Part part, Args args, const hk_linear& linear, Quantized in, float* out, bool accumulate) {
    args.linear = &linear;
    args.in = in;
    args.out = out;
    args.accumulate = accumulate;
    tiles(part, kernels_.matmul, args, linear.n / 32);
  }

  void tiles(Part part, Kernel kernel, Args args, int count) {
    args.rows_per_item = is_chained_ ? rows_per_chain_ : rows_;
    add(part, kernel, args, count);
  }

  void by_rows(Part part, Kernel kernel, Args args) {
    args.rows_per_item = is_chained_ ? rows_per_chain_ : rows_ >= 8 ? 2 : 1;
    add(part, kernel, args, 1);
  }

  void add(Part part, Kernel kernel, const Args& args, int tiles) {
    if (is_chained_) {
      e_->links.push_back({kernel, args, tiles, part});
      num_links_++;
    } else {
      e_->phases.push_back({kernel, args, tiles * items(args), part});
    }
  }

  void end_chain() {
    if (num_links_ == 0) return;
    Args args = e_->links.back().args;
    args.links = e_->links.data() + e_->links.size() - num_links_;
    args.num_links = num_links_;
    args.link_ns = e_->link_ns;
    e_->phases.push_back({run_chain, args, items(args), kManyParts});
    num_links_ = 0;
  }

  static int items(const Args& args) { return (args.rows + args.rows_per_item - 1) / args.rows_per_item; }

  hk_engine* e_;
  const Kernels& kernels_;
  const hk_model& m_;
  const hk_step& step_;
  const Scratch& s_;
  const Sizes sizes_;
  float* x_ = nullptr;  // residuals of the rows
  int rows_ = 0, rows_per_chain_ = 0, num_links_ = 0;
  bool is_chained_ = false;
};

// Runs one kernel on all threads, for tests.
void run_alone(hk_engine* e, Kernel kernel, const Args& args, int items) {
  e->phases.assign(1, {kernel, args, items, 0});
  if (items > 0) e->run();
}

Args row_args(const float* x, int rows, int k) {
  Args args{};
  args.x = x;
  args.rows = rows;
  args.k = k;
  args.rows_per_item = 1;
  return args;
}

}  // namespace

int32_t hk_abi(void) { return HK_ABI; }

#ifndef HK_SOURCES
#define HK_SOURCES ""
#endif
const char* hk_sources(void) { return HK_SOURCES; }

const char* hk_isas(void) {
  static const char* const known[] = {"avx512bf16", "avx512vnni", "avx2", "portable"};
  static char names[64] = "";
  if (!names[0])
    for (const char* isa : known)
      if (supports(isa)) {
        if (names[0]) std::strcat(names, " ");
        std::strcat(names, isa);
      }
  return names;
}

hk_engine* hk_engine_new(const char* isa, int32_t threads) {
  const Kernels* kernels = find(isa);
  if (!kernels || threads < 1) return nullptr;
  try {
    return new hk_engine(*kernels, threads);
  } catch (const std::exception&) {
    return nullptr;
  }
}

void hk_engine_free(hk_engine* e) {
  if (e) std::free(e->scratch);
  delete e;
}

int32_t hk_engine_threads(const hk_engine* e) { return e->pool.threads(); }

int32_t hk_run(hk_engine* e, const hk_model* model, const hk_step* step) {
  if (step->num_tokens == 0) return 0;
  Carver counting{nullptr};
  carve(counting, *model, *step);
  if (!reserve(e, counting.used)) return 1;
  Carver carver{e->scratch};
  const Scratch scratch = carve(carver, *model, *step);
  try {
    Program(e, *model, *step, scratch).write();
  } catch (const std::bad_alloc&) {
    return 1;
  }
  e->run();
  return 0;
}

void hk_part_times(hk_engine* e, int64_t* out) {
  for (int i = 0; i < kNumParts; i++) {
    out[i] = e->part_ns[i] + e->link_ns[i] / e->pool.threads();
    e->part_ns[i] = e->link_ns[i] = 0;
  }
}

const char* hk_part_names(void) { return "embed norm qkv rope attention out gate_up down head sample"; }

void hk_quantize(hk_engine* e, const float* x, int32_t rows, int32_t k, int8_t* q, float* scales, int32_t* sums) {
  Args args = row_args(x, rows, k);
  args.result = {q, scales, sums};
  run_alone(e, e->kernels->quantize, args, rows);
}

void hk_norm_quantize(hk_engine* e, const float* x, const float* weight, int32_t rows, int32_t width, int32_t k,
                      float epsilon, int8_t* q, float* scales, int32_t* sums) {
  Args args = row_args(x, rows, k);
  args.weight = weight;
  args.width = width;
  args.epsilon = epsilon;
  args.result = {q, scales, sums};
  run_alone(e, e->kernels->norm_quantize, args, rows);
}

static Quantized readable(const int8_t* q, const float* scales, const int32_t* sums) {
  return {const_cast<int8_t*>(q), const_cast<float*>(scales), const_cast<int32_t*>(sums)};
}

void hk_matmul(hk_engine* e, const hk_linear* linear, const int8_t* q, const float* scales, const int32_t* sums,
               int32_t rows, float* out, int32_t accumulate) {
  Args args = row_args(nullptr, rows, linear->k);
  args.linear = linear;
  args.in = readable(q, scales, sums);
  args.out = out;
  args.accumulate = accumulate != 0;
  args.rows_per_item = rows;
  run_alone(e, e->kernels->matmul, args, linear->n / 32);
}

void hk_gate_up(hk_engine* e, const hk_linear* linear, const int8_t* q, const float* scales, const int32_t* sums,
                int32_t rows, int8_t* out_q, float* out_scales, int32_t* out_sums) {
  Args args = row_args(nullptr, rows, linear->k);
  args.linear = linear;
  args.in = readable(q, scales, sums);
  args.result = {out_q, out_scales, out_sums};
  args.rows_per_item = rows;
  run_alone(e, e->kernels->gate_up, args, linear->n / 128);
}

void hk_head(hk_engine* e, const hk_linear* head, float* x, int32_t rows, int32_t vocab, float* out) {
  const int k = head->k;
  std::vector<uint16_t> pairs((size_t)rows * k);
  std::vector<int8_t> q((size_t)rows * k);
  std::vector<float> scales(rows * (k / 64));
  std::vector<int32_t> sums(rows * (k / 32));
  Args args = row_args(x, rows, k);
  args.pairs = pairs.data();
  args.in = args.result = {q.data(), scales.data(), sums.data()};
  run_alone(e, e->kernels->round_pairs, args, rows);
  run_alone(e, e->kernels->quantize, args, rows);
  args.linear = head;
  args.width = vocab;
  args.out = out;
  run_alone(e, e->kernels->head, args, (vocab + 63) / 64);
}

void hk_attention(hk_engine* e, const hk_model* model, const hk_step* step, int32_t layer, float* qkv, float* out) {
  std::vector<float> x((size_t)step->num_tokens * Sizes(*model).hidden), angles(step->num_tokens * model->head_dim);
  Args args = row_args(nullptr, step->num_tokens, 0);
  args.model = model;
  args.step = step;
  args.layer = &model->layers[layer];
  args.out = x.data();
  args.angles = angles.data();
  run_alone(e, e->kernels->embed, args, args.rows);
  args.out = qkv;
  args.angles_in = angles.data();
  run_alone(e, e->kernels->rope_and_store, args, args.rows);
  Program::share_attention(*model, *step, e->shares);
  args.x = qkv;
  args.out = out;
  args.shares = e->shares.data();
  run_alone(e, e->kernels->attention, args, (int)e->shares.size());
}
