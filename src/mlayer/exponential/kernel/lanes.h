// Small matrices: as many as a vector has lanes, side by side, each in its own lane throughout.
//
// Lanes never mix, each lane follows its own schedule, and the order of all additions is that of
// rows.h, so a matrix gets the same bits in any batch.
#pragma once
#include <cmath>
#include <cstring>

#include "chain.h"
#include "job.h"
#include "rows.h"

namespace MLAYER_NAMESPACE {

// Squaring that leaves finished lanes alone.
template <typename T>
struct StoreWhere {
  using V = typename Simd<T>::V;
  Pair<T> out, old;
  typename Simd<T>::I active;
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = active ? product : old.template part<t>()[at];
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(out.template part<t>());
  }
};

template <typename T>
struct LaneBlock {
  static constexpr int lanes = Simd<T>::lanes;
  using V = typename Simd<T>::V;
  using Unaligned = typename Simd<T>::Unaligned;

  // Calls block(first entry) so that blocks of `lanes` entries cover all; the last may overlap.
  template <class Block>
  static inline void cover(int entries, const Block& block) {
    for (int e = 0; e + lanes <= entries; e += lanes) block(e);
    if (entries % lanes) block(entries - lanes);
  }

  // Lane l of to[entry] is entry of matrix l; past `count` the last matrix is repeated.
  static void load(const T* from, int n, int count, bool transposed, V* to) {
    const int entries = n * n;
    const auto matrix = [&](int lane) { return from + size_t(lane < count ? lane : count - 1) * entries; };
    const auto place = [&](int e) { return transposed ? (e % n) * n + e / n : e; };
    if (entries < lanes) {
      for (int e = 0; e < entries; ++e)
        for (int lane = 0; lane < lanes; ++lane) to[place(e)][lane] = matrix(lane)[e];
      return;
    }
    cover(entries, [&](int e) {
      V rows[lanes];
      for (int lane = 0; lane < lanes; ++lane) rows[lane] = *reinterpret_cast<const Unaligned*>(matrix(lane) + e);
      Simd<T>::transpose(rows);
      for (int k = 0; k < lanes; ++k) to[place(e + k)] = rows[k];
    });
  }

  static void store(const V* from, int n, int count, T* to) {
    const int entries = n * n;
    if (entries < lanes) {
      for (int e = 0; e < entries; ++e)
        for (int lane = 0; lane < count; ++lane) to[size_t(lane) * entries + e] = from[e][lane];
      return;
    }
    cover(entries, [&](int e) {
      V rows[lanes];
      for (int k = 0; k < lanes; ++k) rows[k] = from[e + k];
      Simd<T>::transpose(rows);
      for (int lane = 0; lane < count; ++lane)
        *reinterpret_cast<Unaligned*>(to + size_t(lane) * entries + e) = rows[lane];
    });
  }
};

template <typename T>
struct LaneSchedule {
  typename Simd<T>::I squarings, degree, alone;
};

template <typename T>
static inline bool any(typename Simd<T>::I mask) {
  uint64_t words[MLAYER_VECTOR_BYTES / 8], all = 0;
  std::memcpy(words, &mask, sizeof(words));
  for (const uint64_t word : words) all |= word;
  return all != 0;
}

// Largest absolute column sum in each lane, and the sum of squares. A few columns at a time: one sum
// alone would wait for each of its additions. The order of additions is that of rows.h.
template <typename T>
struct LaneNorms {
  typename Simd<T>::V one{}, squares{};
};
template <typename T>
static inline LaneNorms<T> lane_norms(int n, const typename Simd<T>::V* a) {
  using V = typename Simd<T>::V;
  LaneNorms<T> norms;
  const auto columns = [&](int j0, auto size) {
    constexpr int C = decltype(size)::value;
    V sums[C] = {}, squares[C] = {};
    for (int i = 0; i < n; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < C; ++j) {
        const V entry = a[i * n + j0 + j];
        sums[j] += Simd<T>::absolute(entry);
        squares[j] += entry * entry;
      }
#pragma GCC unroll 4
    for (int j = 0; j < C; ++j) {
      // Written so that a NaN, once in, stays.
      norms.one = norms.one >= sums[j] ? norms.one : sums[j];
      norms.one = sums[j] == sums[j] ? norms.one : sums[j];
      norms.squares += squares[j];
    }
  };
  for_blocks(n, 4, [&](int j0, int size) { with_size<4, 1>(size, [&](auto C) { columns(j0, C); }); });
  return norms;
}

// Lanes whose matrix is strictly upper or strictly lower triangular.
template <typename T>
static inline typename Simd<T>::I strictly_triangular(int n, const typename Simd<T>::V* a) {
  using I = typename Simd<T>::I;
  I candidates = a[0] == 0;
  if (!any<T>(candidates)) return candidates;  // the usual case ends here
  I above{}, below{}, diagonal{};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      const I filled = a[i * n + j] != 0;
      (i < j ? above : i > j ? below : diagonal) |= filled;
    }
  return ~diagonal & (~above | ~below);
}

template <typename T, bool dual>
static inline LaneSchedule<T> lane_schedule(int n, const mlayer_table& table, const typename Simd<T>::V* a,
                                            const typename Simd<T>::V* a2) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  LaneSchedule<T> plan;
  const I triangular = strictly_triangular<T>(n, a);
  const V norm = lane_norms<T>(n, a).one;
  const LaneNorms<T> norms2 = lane_norms<T>(n, a2);
  V norm2 = norms2.squares;  // of A^2: the smaller of Frobenius norm and 1-norm
  for (int lane = 0; lane < Simd<T>::lanes; ++lane) norm2[lane] = std::sqrt(norm2[lane]);
  norm2 = norm2 <= norms2.one ? norm2 : norms2.one;
  plan.alone = ~(norm <= Simd<T>::broadcast(T(table.largest_norm)));
  const auto within = [&](int k) {
    return (norm2 <= Simd<T>::broadcast(T(table.theta[k] * table.theta[k]))) |
           (norm <= Simd<T>::broadcast(T(table.norm_theta[k])));
  };
  const I two = I{} + 2, four = I{} + 4, eight = I{} + 8, sixteen = I{} + 16;
  plan.degree = within(0) ? two : (within(1) ? four : (within(2) ? eight : sixteen));
  const V excess = norm2 * Simd<T>::broadcast(T(1 / (table.theta[3] * table.theta[3])));
  const I exponent = Simd<T>::ceil_log2(Simd<T>::maximum(excess, Simd<T>::broadcast(1)));
  plan.squarings = within(3) ? I{} : (exponent + 1) >> 1;
  if (any<T>(triangular))
    for (int lane = 0; lane < Simd<T>::lanes; ++lane) {
      if (!triangular[lane]) continue;
      const int exact = exact_degree(nilpotent_depth(n, [&](int i, int j) { return a[i * n + j][lane] != 0; }), dual);
      if (exact < plan.degree[lane]) plan.degree[lane] = exact;
      if (exact < 16) plan.squarings[lane] = 0;
    }
  // What balancing or twice the precision may save goes one at a time, as rows.h does it.
  using Integer = typename Simd<T>::Integer;
  const I many = plan.squarings >= Integer(kWorthALook<T>);
  if (any<T>(many)) plan.alone |= from_squarings<T>(n) <= kWorthALook<T> ? many : many & imbalanced_lanes<T>(n, a);
  plan.squarings = plan.alone ? I{} : plan.squarings;
  plan.degree = plan.alone ? two : plan.degree;
  return plan;
}

// Matrices first .. first + count - 1, count <= lanes.
template <typename T, bool dual>
static void lane_block(const Job<T>& job, int64_t first, int count, typename Simd<T>::V* memory) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  const int n = job.n;
  const size_t entries = size_t(n) * n;
  const LaneLayout<T> layout{n, computed_rows(n, job.real_form)};
  const Buffers<T> b(memory, entries, dual);
  LaneBlock<T>::load(job.a + first * entries, n, count, job.transposed, b.a.x);
  if constexpr (dual) LaneBlock<T>::load(job.direction + first * entries, n, count, false, b.a.h);
  layout.template product<all_parts<dual>>(b.a, b.a, Store<T>{b.a2});

  const LaneSchedule<T> plan = lane_schedule<T, dual>(n, *job.table, b.a.x, b.a2.x);
  using Integer = typename Simd<T>::Integer;
  V sigma = Simd<T>::power_of_two(-plan.squarings);
  const I many = plan.squarings > Integer(kFoldedSquarings);
  if (any<T>(many)) {
    // sigma^4 in a coefficient could underflow: these lanes scale A and A2 themselves instead.
    const V scale = many ? sigma : Simd<T>::broadcast(1);
    for (size_t at = 0; at < entries; ++at) {
      b.a.x[at] *= scale;
      b.a2.x[at] *= scale * scale;
      if constexpr (dual) b.a.h[at] *= scale, b.a2.h[at] *= scale * scale;
    }
    sigma = many ? Simd<T>::broadcast(1) : sigma;
  }

  Pair<T> x = b.y;
  for (const int degree : {2, 4, 8, 16}) {  // 16 last: it overwrites A and A2
    const I here = plan.degree == Integer(degree);
    if (!any<T>(here)) continue;
    polynomial<T, dual>(layout, *job.table, degree, sigma, b, !any<T>(plan.squarings > Integer(0)));
    if (!any<T>(~here)) break;
    for (size_t at = 0; at < entries; ++at) {
      b.keep.x[at] = here ? b.y.x[at] : b.keep.x[at];
      if constexpr (dual) b.keep.h[at] = here ? b.y.h[at] : b.keep.h[at];
    }
    x = b.keep;
  }
  Pair<T> other = b.left;
  for (int k = 0; any<T>(plan.squarings > Integer(k)); ++k) {
    const StoreWhere<T> store{other, x, plan.squarings > Integer(k)};
    if (dual && !any<T>(plan.squarings > Integer(k + 1)))
      layout.template product<last_parts<dual>>(x, x, store);
    else
      layout.template product<all_parts<dual>>(x, x, store);
    const Pair<T> squared = other;
    other = x;
    x = squared;
  }

  const V* result = dual ? x.h : x.x;
  LaneBlock<T>::store(result, n, count, job.out + first * entries);
  const I again = plan.alone | (not_finite<T>(n, n, n, result) != 0);
  if (any<T>(again))
    for (int lane = 0; lane < count; ++lane)
      if (again[lane]) one_matrix<T, dual>(job, first + lane, memory);
}

}  // namespace MLAYER_NAMESPACE
