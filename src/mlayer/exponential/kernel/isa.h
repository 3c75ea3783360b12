// Everything of one instruction set behind one function pointer; included by isa_*.cpp.
#pragma once
#include <utility>

#include "lanes.h"
#include "rows.h"
#include "run.h"

namespace MLAYER_NAMESPACE {

// Up to this size matrices go side by side in the lanes of a vector; see benchmarks/crossover.py.
template <typename T>
constexpr int kLargestInLanes = sizeof(T) == 4 ? MLAYER_LANES_UP_TO_F32 : MLAYER_LANES_UP_TO_F64;

template <typename T>
static int64_t unit(int n) {
  return n <= kLargestInLanes<T> ? Simd<T>::lanes : 1;
}

template <typename T>
static size_t scratch_bytes(int n, bool dual) {
  const size_t vectors = n <= kLargestInLanes<T> ? size_t(n) * n : RowShape<T>(n).vectors();
  return vectors * Buffers<T>::count * (dual ? 2 : 1) * sizeof(typename Simd<T>::V);
}

template <typename T, bool dual>
static void range(const Job<T>& job, int64_t first, int64_t last, void* scratch) {
  auto* memory = static_cast<typename Simd<T>::V*>(scratch);
  if (job.n <= kLargestInLanes<T>) {
    for (int64_t at = first; at < last; at += Simd<T>::lanes)
      lane_block<T, dual>(job, at, int(last - at < Simd<T>::lanes ? last - at : Simd<T>::lanes), memory);
  } else {
    for (int64_t at = first; at < last; ++at) one_matrix<T, dual>(job, at, memory);
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
static constexpr Engine<T> engine = {unit<T>, scratch_bytes<T>, any_range<T>};

}  // namespace MLAYER_NAMESPACE
