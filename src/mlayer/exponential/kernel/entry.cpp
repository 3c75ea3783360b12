// C entry points: pick the instruction set, share the batch among threads.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <dlfcn.h>
#endif

#include "embedding.h"
#include "run.h"

#ifndef MLAYER_SOURCE_DIGEST  // set by build.py
#define MLAYER_SOURCE_DIGEST ""
#endif

std::atomic<int64_t> mlayer_careful_squarings{0};

namespace {

const Isa* const kIsas[] = {
#if defined(__x86_64__)
    &mlayer_isa_avx512,
    &mlayer_isa_avx2,
#endif
    &mlayer_isa_portable,
};

bool supported(const Isa* isa) {
#if defined(__x86_64__)
  if (isa == &mlayer_isa_avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (isa == &mlayer_isa_avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == &mlayer_isa_portable;
}

const Isa* best_isa() {
  for (const Isa* isa : kIsas)
    if (supported(isa)) return isa;
  return &mlayer_isa_portable;
}

std::atomic<const Isa*> g_isa{best_isa()};

// Torch's own OpenMP pool, when it is in the process: two pools side by side would take each
// other's cores (see docs/decisions/0002-threads.md).
using ForkJoin = void (*)(void (*)(void*), void*, unsigned, unsigned);
ForkJoin torch_pool() {
#if defined(__unix__) || defined(__APPLE__)
  static const ForkJoin found = reinterpret_cast<ForkJoin>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
  return found;
#else
  return nullptr;
#endif
}

// Working memory of one thread; kept, because the pools keep their threads.
class Scratch {
 public:
  void* at_least(size_t bytes) {
    if (bytes > size_) {
      std::free(memory_);
      size_ = 0;
      const size_t rounded = (bytes + 63) / 64 * 64;
      memory_ = std::aligned_alloc(64, rounded);
      if (memory_) size_ = rounded;
    }
    return memory_;
  }
  ~Scratch() { std::free(memory_); }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

template <typename T>
struct Shared {
  const Engine<T>* engine;
  const Job<T>* job;
  bool embedded;  // complex matrices, of which the job holds the real form
  int64_t chunk;
  std::atomic<int64_t> next{0};
  std::atomic<int> failure{0};
};

template <typename T>
void work(void* argument) {
  static thread_local Scratch scratch, real_forms;
  auto& shared = *static_cast<Shared<T>*>(argument);
  const Job<T>& job = *shared.job;
  try {
    void* memory = scratch.at_least(shared.engine->scratch_bytes(job.n, job.direction != nullptr));
    if (!memory) throw std::bad_alloc();
    T* forms = nullptr;
    const int64_t unit = shared.engine->unit(job.n);
    if (shared.embedded) {
      forms = static_cast<T*>(real_forms.at_least(embedding_bytes<T>(job.n, unit)));
      if (!forms) throw std::bad_alloc();
    }
    for (;;) {
      const int64_t first = shared.next.fetch_add(shared.chunk);
      if (first >= job.batch) break;
      const int64_t last = first + shared.chunk < job.batch ? first + shared.chunk : job.batch;
      if (shared.embedded)
        embedded_range(*shared.engine, job, first, last, unit, memory, forms);
      else
        shared.engine->range(job, first, last, memory);
    }
  } catch (const std::bad_alloc&) {
    shared.failure = 1;
  }
}

template <typename T>
int run(const Job<T>& job, int threads, const Engine<T>& engine, bool embedded = false) {
  if (job.batch == 0) return 0;
  const int64_t unit = engine.unit(job.n), units = (job.batch + unit - 1) / unit;
  // Below some 10 microseconds of work waking a thread costs more than it brings.
  const double products = (job.direction ? 15.0 : 5.0) * double(unit) * double(units) * job.n * job.n * job.n;
  if (products < 5e5) threads = 1;
  if (threads > units) threads = int(units);
  Shared<T> shared;
  shared.engine = &engine;
  shared.job = &job;
  shared.embedded = embedded;
  // Chunks small enough to balance the threads, large enough to avoid contention for the counter.
  int64_t chunk_units = units / (int64_t(threads) * 8);
  shared.chunk = unit * (threads == 1 ? units : chunk_units < 1 ? 1 : chunk_units);
  if (threads <= 1) {
    work<T>(&shared);
  } else if (ForkJoin pool = torch_pool()) {
    pool(work<T>, &shared, unsigned(threads), 0);
  } else {
    std::vector<std::thread> helpers;
    try {
      for (int t = 1; t < threads; ++t) helpers.emplace_back(work<T>, &shared);
    } catch (const std::system_error&) {
      // No more threads are available: the existing ones share the work.
    }
    work<T>(&shared);
    for (std::thread& helper : helpers) helper.join();
  }
  return shared.failure;
}

}  // namespace

extern "C" {

int mlayer_kernel_version() { return MLAYER_KERNEL_VERSION; }

// Of the sources and flags that this was built from (build.py), so that an outdated library is recognized.
const char* mlayer_kernel_source_digest() { return MLAYER_SOURCE_DIGEST; }

const char* mlayer_kernel_isa() { return g_isa.load()->name; }

// For tests: use the instruction set of this name from now on. Returns 0, or 1 if it is not available.
int mlayer_kernel_use_isa(const char* name) {
  for (const Isa* isa : kIsas)
    if (std::strcmp(isa->name, name) == 0 && supported(isa)) {
      g_isa = isa;
      return 0;
    }
  return 1;
}

int64_t mlayer_kernel_careful_squarings() { return mlayer_careful_squarings.load(); }

int mlayer_kernel_shares_torch_pool() { return torch_pool() != nullptr; }

// out[i] = exp(a[i]), or with a direction the Frechet derivative L(a[i], direction[i]).
// Returns 0, or 1 when memory ran out.
int mlayer_expm_f32(const float* a, const float* direction, float* out, int64_t batch, int32_t n, int32_t transposed,
                    const mlayer_table* table, int32_t threads) {
  return run<float>({a, direction, out, batch, n, transposed != 0, table}, threads, g_isa.load()->single);
}

int mlayer_expm_f64(const double* a, const double* direction, double* out, int64_t batch, int32_t n,
                    int32_t transposed, const mlayer_table* table, int32_t threads) {
  return run<double>({a, direction, out, batch, n, transposed != 0, table}, threads, g_isa.load()->twice);
}

// The same for complex matrices, real and imaginary parts in turn; `adjoint` is the conjugate transpose.
int mlayer_expm_c64(const float* a, const float* direction, float* out, int64_t batch, int32_t n, int32_t adjoint,
                    const mlayer_table* table, int32_t threads) {
  return run<float>({a, direction, out, batch, 2 * n, adjoint != 0, table}, threads, g_isa.load()->single, true);
}

int mlayer_expm_c128(const double* a, const double* direction, double* out, int64_t batch, int32_t n, int32_t adjoint,
                     const mlayer_table* table, int32_t threads) {
  return run<double>({a, direction, out, batch, 2 * n, adjoint != 0, table}, threads, g_isa.load()->twice, true);
}

}  // extern "C"
