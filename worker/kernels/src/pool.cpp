#include "pool.h"

#include <chrono>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#define HK_PAUSE() _mm_pause()
#elif defined(__aarch64__)
#define HK_PAUSE() __asm__ __volatile__("yield")
#else
#define HK_PAUSE() ((void)0)
#endif

namespace hk {

namespace {

// About as long as it takes to fall asleep and be woken. Longer waits mean that another process has the core.
constexpr auto kAwake = std::chrono::microseconds(50);
constexpr int kPausesPerLook = 16;

}  // namespace

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Pool::Pool(int threads) {
  for (int i = 1; i < threads; i++) members_.emplace_back([this] { serve(); });
}

Pool::~Pool() {
  stopping_ = true;
  open(end_ + 1, 0);
  for (std::thread& member : members_) member.join();
}

void Pool::run(const Phase* phases, int count, int64_t* part_ns) {
  // All items of the last step are done, so nobody reads what is written here.
  const uint32_t first = number(state_.load(std::memory_order_relaxed)) + 1;
  phases_ = phases;
  first_ = first;
  end_ = first + (uint32_t)count;
  unfinished_.store(phases[0].items, std::memory_order_relaxed);
  open(first, (uint32_t)phases[0].items);
  int64_t since = now_ns();
  uint32_t timed = first;
  State state = state_.load(std::memory_order_acquire);
  for (;;) {
    if (number(state) != timed) {
      const int64_t time = now_ns();
      part_ns[phases[timed - first].part] += time - since;  // what others did meanwhile counts as this phase
      since = time;
      timed = number(state);
    }
    if (number(state) == end_) return;
    if (left(state) == 0) {
      state = wait_for_change(state);
    } else if (try_claim(&state)) {
      work(state);
      state = state_.load(std::memory_order_acquire);
    }  // else another thread was first, and state is what it left: look at it anew
  }
}

void Pool::serve() {
  State state = state_.load(std::memory_order_acquire);
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (left(state) == 0) {
      state = wait_for_change(state);
    } else if (try_claim(&state)) {
      work(state);
      state = state_.load(std::memory_order_acquire);
    }  // else another thread was first, and state is what it left: look at it anew
  }
}

// On success *state is what was there before: it tells the item. Else it is what is there now.
bool Pool::try_claim(State* state) {
  return state_.compare_exchange_strong(*state, *state - 1, std::memory_order_acq_rel, std::memory_order_acquire);
}

void Pool::work(State claimed) {
  const uint32_t index = number(claimed) - first_;
  const Phase& phase = phases_[index];
  phase.kernel(phase.args, phase.items - (int)left(claimed));
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const bool last = number(claimed) + 1 == end_;
  const int items = last ? 0 : phases_[index + 1].items;
  unfinished_.store(items, std::memory_order_relaxed);
  open(number(claimed) + 1, (uint32_t)items);
}

void Pool::open(uint32_t number, uint32_t items) {
  state_.store((State)number << 32 | items);  // in one order with sleeping_: see wait_for_change
  if (sleeping_.load() == 0) return;
  { std::lock_guard<std::mutex> lock(mutex_); }
  wake_.notify_all();
}

Pool::State Pool::wait_for_change(State seen) {
  const int64_t until = now_ns() + std::chrono::nanoseconds(kAwake).count();
  do {
    for (int i = 0; i < kPausesPerLook; i++) {
      const State state = state_.load(std::memory_order_acquire);
      if (state != seen) return state;
      HK_PAUSE();
    }
  } while (now_ns() < until);
  std::unique_lock<std::mutex> lock(mutex_);
  sleeping_.fetch_add(1);  // either open sees a sleeper, or the sleeper what was opened
  State state;
  while ((state = state_.load()) == seen) wake_.wait(lock);
  sleeping_.fetch_sub(1);
  return state;
}

}  // namespace hk
