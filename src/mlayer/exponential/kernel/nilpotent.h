// Strictly triangular matrices: A^n = 0, so the Taylor series is finite.
#pragma once

namespace MLAYER_NAMESPACE {

// The largest k with A^k possibly non-zero, read off the pattern of a strictly triangular matrix
// (its longest path); -1 when the matrix is not strictly triangular. filled(i, j): whether A_ij is not 0.
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

// The polynomial that is exact at every norm for A^(depth + 1) = 0, or 16 when none is. In the
// derivative the terms A^i E A^j vanish only from i + j = 2 depth + 1 on.
static inline int exact_degree(int depth, bool dual) {
  const int last = dual ? 2 * depth + 1 : depth;
  return last <= 2 ? 2 : last <= 4 ? 4 : last <= 8 ? 8 : 16;
}

}  // namespace MLAYER_NAMESPACE
