// What one engine owns: its threads, scratch memory, and the kernels of its instruction set.
#pragma once

#include <vector>

#include "pool.h"

namespace hk {

enum Part { kEmbed, kNorm, kQkv, kRope, kAttention, kOut, kGateUp, kDown, kHead, kSample, kNumParts };
constexpr int kManyParts = kNumParts;  // a phase whose links count for themselves

}  // namespace hk

struct hk_engine {
  hk_engine(const hk::Kernels& kernels, int threads) : kernels(&kernels), pool(threads) {}

  void run() {
    if (!phases.empty()) pool.run(phases.data(), (int)phases.size(), part_ns);
  }

  const hk::Kernels* kernels;
  hk::Pool pool;
  std::vector<hk::Phase> phases;  // of the step that runs
  std::vector<hk::Link> links;    // of its chains
  std::vector<hk::Share> shares, last_shares;
  int64_t part_ns[hk::kNumParts + 1] = {};
  int64_t link_ns[hk::kNumParts] = {};  // of all threads together
  unsigned char* scratch = nullptr;
  size_t scratch_bytes = 0;
};
