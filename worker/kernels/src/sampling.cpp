// The C interface of drawing tokens and of what is said of them.

#include "engine.h"

int64_t hk_sample_scratch(int32_t vocab) {
  const int64_t blocks = ((int64_t)vocab + 63) / 64;
  const int64_t floats = 2 * 2048 + blocks * 64 * 3 + blocks * 3;
  return (floats + 15) / 16 * 16;
}

static void by_threads(hk_engine* e, hk::Kernel kernel, hk::Sampling& work) {
  if (work.rows <= 0) return;
  work.scratch_floats = (size_t)hk_sample_scratch(work.vocab);
  hk::Args args{};
  args.sampling = &work;
  const int items = work.rows < e->pool.threads() ? work.rows : e->pool.threads();
  e->phases.assign(1, {kernel, args, items, hk::kSample});
  e->run();
}

void hk_sample(hk_engine* e, const float* logits, int32_t rows, int32_t vocab, hk_draw* draws, float* scratch) {
  hk::Sampling work{};
  work.logits = logits;
  work.draws = draws;
  work.scratch = scratch;
  work.rows = rows;
  work.vocab = vocab;
  by_threads(e, e->kernels->sample, work);
}

void hk_score_rows(hk_engine* e, const float* logits, int32_t rows, int32_t vocab, hk_score* scores, int32_t* top,
                   int32_t most_top, float* scratch) {
  hk::Sampling work{};
  work.logits = logits;
  work.scores = scores;
  work.top = top;
  work.most_top = most_top;
  work.scratch = scratch;
  work.rows = rows;
  work.vocab = vocab;
  by_threads(e, e->kernels->score, work);
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
