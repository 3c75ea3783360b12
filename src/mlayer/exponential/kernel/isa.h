// Everything of one instruction set behind one function pointer; included by isa_*.cpp.
#pragma once
#include <utility>

#include "lanes.h"
#include "planes.h"
#include "rows.h"
#include "run.h"

namespace MLAYER_NAMESPACE {

template <typename T>
static int64_t unit(int n) {
  return n >= 2 && n <= kLargestInLanes<T> ? Simd<T>::lanes : 1;
}

template <typename T>
static size_t scratch_bytes(int n, bool dual) {
  size_t vectors = RowShape<T>(n).vectors();
  if (n <= kLargestInLanes<T> && size_t(n) * n > vectors) vectors = size_t(n) * n;
  return vectors * Buffers<T>::count * (dual ? 2 : 1) * sizeof(typename Simd<T>::V);
}

template <typename T, bool dual>
static void range(const Job<T>& job, int64_t first, int64_t last, void* scratch) {
  auto* memory = static_cast<typename Simd<T>::V*>(scratch);
  const int64_t block = unit<T>(job.n);
  for (int64_t at = first; at < last; at += block) {
    const int count = int(last - at < block ? last - at : block);
    if (block > 1 && count > few<T>(job.n))
      lane_block<T, dual>(job, at, count, memory);
    else
      for (int k = 0; k < count; ++k) one_matrix<T, dual>(job, at + k, memory);
  }
}

template <typename T>
static void any_range(const Job<T>& job, int64_t first, int64_t last, void* scratch) {
  if (job.direction)
    range<T, true>(job, first, last, scratch);
  else
    range<T, false>(job, first, last, scratch);
}

template <typename T>
static bool any_complex(const Job<T>& job, int64_t index, void* scratch) {
  auto* memory = static_cast<typename Simd<T>::V*>(scratch);
  return job.direction ? complex_matrix<T, true>(job, index, memory) : complex_matrix<T, false>(job, index, memory);
}

template <typename T>
static constexpr Engine<T> engine = {unit<T>, scratch_bytes<T>, any_range<T>, any_complex<T>};

}  // namespace MLAYER_NAMESPACE
