// The functions of an instruction set that the entry points use.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "job.h"

template <typename T>
struct Engine {
  int64_t (*unit)(int n);                       // number of matrices processed together
  size_t (*scratch_bytes)(int n, bool dual);    // working memory of one thread
  void (*range)(const Job<T>& job, int64_t first, int64_t last, void* scratch);
  bool (*complex_matrix)(const Job<T>& job, int64_t index, void* scratch);  // false: the real form is needed
};

struct Isa {
  const char* name;
  Engine<float> single;
  Engine<double> twice;
};

// Squarings of the careful path so far, for tests: a measure of work that does not depend on the machine.
extern std::atomic<int64_t> mlayer_careful_squarings;

extern const Isa mlayer_isa_portable;
#if defined(__x86_64__)
extern const Isa mlayer_isa_avx2;
extern const Isa mlayer_isa_avx512;
#endif
