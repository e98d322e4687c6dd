// The C interface of drawing tokens.

#include "engine.h"

int64_t hk_sample_scratch(int32_t vocab) {
  const int64_t blocks = ((int64_t)vocab + 63) / 64;
  const int64_t floats = 2 * 2048 + blocks * 64 * 3 + blocks * 3;
  return (floats + 15) / 16 * 16;
}

void hk_sample(hk_engine* e, const float* logits, int32_t rows, int32_t vocab, hk_draw* draws, float* scratch) {
  if (rows <= 0) return;
  hk::Sampling work{logits, draws, scratch, (size_t)hk_sample_scratch(vocab), rows, vocab, 0};
  hk::Args args{};
  args.sampling = &work;
  const int items = rows < e->pool.threads() ? rows : e->pool.threads();
  e->phases.assign(1, {e->kernels->sample, args, items, hk::kSample});
  e->run();
}

int32_t hk_find_broken(hk_engine* e, const float* logits, int32_t rows, int32_t vocab, int32_t* broken) {
  if (rows <= 0) return 0;
  hk::Args args{};
  args.x = logits;
  args.width = vocab;
  args.broken = broken;
  e->phases.assign(1, {e->kernels->find_broken, args, rows, hk::kSample});
  e->run();
  int32_t count = 0;
  for (int row = 0; row < rows; row++) count += broken[row];
  return count;
}
