// A team of threads that works through the phases of a step.
//
// A phase is a number of items. Whoever is there takes the next item; who finishes a phase's last item opens the next
// phase. Nobody waits for a thread that holds no item: when another process has a core, the remaining threads do the
// step without it. Idle threads stay awake for a moment only, then sleep.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "kernel_table.h"

namespace hk {

int64_t now_ns();

struct Phase {
  Kernel kernel;
  Args args;
  int items;  // at least 1
  int part;   // what its time is counted as
};

class Pool {
 public:
  // The caller of run is one of the threads; the others are started here.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return 1 + (int)members_.size(); }
  // Works through phases and returns when the last is done. Adds each phase's time to part_ns.
  void run(const Phase* phases, int count, int64_t* part_ns);

 private:
  // Number of the open phase in the upper half, items of it that nobody has taken in the lower. Numbers never return,
  // so a thread that slept through phases cannot take an item of another one than it believes.
  using State = uint64_t;
  static uint32_t number(State state) { return (uint32_t)(state >> 32); }
  static uint32_t left(State state) { return (uint32_t)state; }

  void serve();
  void work(State claimed);
  bool try_claim(State* state);
  void open(uint32_t number, uint32_t items);
  State wait_for_change(State seen);

  std::vector<std::thread> members_;
  const Phase* phases_ = nullptr;  // of the running step; read only while holding an item of it
  uint32_t first_ = 0;             // number of its first phase
  uint32_t end_ = 0;               // number behind its last phase
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<State> state_{0};
  alignas(64) std::atomic<int> unfinished_{0};  // items of the open phase
  alignas(64) std::atomic<int> sleeping_{0};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace hk
