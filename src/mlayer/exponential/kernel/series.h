// Strictly triangular matrices: A^n = 0, so the Taylor series is finite and nothing is squared.
#pragma once
#include <cmath>

#include "chain.h"

namespace MLAYER_NAMESPACE {

// The largest k with A^k possibly non-zero, read off the pattern of a strictly triangular matrix
// (its longest path); -1 when the matrix is not strictly triangular. filled(i, j): is A_ij not 0?
template <class Filled>
static int nilpotent_depth(int n, const Filled& filled) {
  constexpr int most = 1024;
  const auto empty = [&](bool below) {
    for (int i = 0; i < n; ++i)
      for (int j = below ? 0 : i; j < (below ? i + 1 : n); ++j)
        if (filled(i, j)) return false;
    return true;
  };
  const bool upper = empty(true);
  if (n > most || (!upper && !empty(false))) return -1;
  // Longest path ending in each index; indices in the order in which the pattern allows steps.
  int ends[most], longest = 0;
  for (int step = 0; step < n; ++step) {
    const int j = upper ? step : n - 1 - step;
    ends[j] = 0;
    for (int i = upper ? 0 : j + 1; i < (upper ? j : n); ++i)
      if (filled(i, j) && ends[i] + 1 > ends[j]) ends[j] = ends[i] + 1;
    if (ends[j] > longest) longest = ends[j];
  }
  return longest;
}

// The polynomial that is exact for A^(depth + 1) = 0, if depth <= 15.
static inline int exact_degree(int depth) { return depth <= 2 ? 2 : depth <= 4 ? 4 : depth <= 8 ? 8 : 16; }

template <typename T>
struct StoreScaledSum {
  using V = typename Simd<T>::V;
  Pair<T> out, addend;
  T scale;
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = scale * product + addend.template part<t>()[at];
  }
};

// sum over k <= depth of A^k / k!, in blocks of q powers (Paterson and Stockmeyer). Factorials enter
// only as ratios within a block, so that none over- or underflows.
template <typename T, bool dual, class Layout>
static Pair<T> nilpotent_series(const Layout& layout, size_t vectors, int depth, const Buffers<T>& b) {
  constexpr int most = 5;
  Pair<T> power[most + 1] = {Pair<T>{}, b.a, b.a2, b.y, b.left, b.right};
  int q = int(std::ceil(std::sqrt(depth + 1.0)));
  if (q > most) q = most;
  for (int k = 3; k <= q; ++k) layout.product(power[k - 1], b.a, Store<T>{power[k]});

  Pair<T> result = b.keep, other = b.spare;
  const int blocks = depth / q;
  for (int block = blocks; block >= 0; --block) {
    double ratio = 1;
    for (size_t at = 0; at < vectors; ++at) {
      b.inner.x[at] = typename Simd<T>::V{};
      if constexpr (dual) b.inner.h[at] = typename Simd<T>::V{};
    }
    for (int j = 1; j < q && block * q + j <= depth; ++j) {
      ratio /= block * q + j;
      for (size_t at = 0; at < vectors; ++at) {
        b.inner.x[at] += T(ratio) * power[j].x[at];
        if constexpr (dual) b.inner.h[at] += T(ratio) * power[j].h[at];
      }
    }
    layout.add_identity(b.inner.x);
    if (block == blocks) {
      for (size_t at = 0; at < vectors; ++at) {
        result.x[at] = b.inner.x[at];
        if constexpr (dual) result.h[at] = b.inner.h[at];
      }
      continue;
    }
    ratio /= (block + 1) * q;  // now (block q)! / ((block + 1) q)!
    layout.product(power[q], result, StoreScaledSum<T>{other, b.inner, T(ratio)});
    const Pair<T> next = other;
    other = result;
    result = next;
  }
  return result;
}

}  // namespace MLAYER_NAMESPACE
