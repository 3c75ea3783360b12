// Small matrices: as many as a vector has lanes, side by side, each in its own lane throughout.
//
// Lanes never mix and each lane follows its own schedule, so a matrix gets the same bits whatever
// stands beside it.
#pragma once
#include <cmath>

#include "careful.h"
#include "chain.h"
#include "job.h"

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
  typename Simd<T>::I squarings, degree, careful;
};

// Largest absolute column sum in each lane; says which lanes are strictly triangular.
template <typename T>
static inline typename Simd<T>::V one_norm(int n, const typename Simd<T>::V* a, typename Simd<T>::I* triangular) {
  using V = typename Simd<T>::V;
  V largest{}, above{}, below{}, diagonal{};
  for (int j = 0; j < n; ++j) {
    V up{}, down{};
    const V middle = Simd<T>::absolute(a[j * n + j]);
    for (int i = 0; i < j; ++i) up += Simd<T>::absolute(a[i * n + j]);
    for (int i = j + 1; i < n; ++i) down += Simd<T>::absolute(a[i * n + j]);
    const V sum = up + middle + down;
    // Written so that a NaN, once in, stays.
    largest = largest >= sum ? largest : sum;
    largest = sum == sum ? largest : sum;
    above += up;
    below += down;
    diagonal += middle;
  }
  if (triangular) *triangular = (diagonal == 0) & ((above == 0) | (below == 0));
  return largest;
}

template <typename T>
static inline LaneSchedule<T> lane_schedule(int n, const mlayer_table& table, const typename Simd<T>::V* a,
                                            const typename Simd<T>::V* a2) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  LaneSchedule<T> plan;
  I triangular;
  const V norm = one_norm<T>(n, a, &triangular), norm2 = one_norm<T>(n, a2, nullptr);
  plan.careful = ~((norm <= T(table.largest_norm)) & (norm2 <= Simd<T>::broadcast(T(table.largest_norm * table.largest_norm))));
  const auto within = [&](int k) { return norm2 <= Simd<T>::broadcast(T(table.theta[k] * table.theta[k])); };
  const I two = I{} + 2, four = I{} + 4, eight = I{} + 8, sixteen = I{} + 16;
  // A strictly triangular matrix has A^n = 0: degree n - 1 is exact and needs no squaring.
  const I exact = I{} + (n <= 3 ? 2 : n <= 5 ? 4 : n <= 9 ? 8 : 16);
  plan.degree = within(0) ? two : (within(1) ? four : (within(2) ? eight : sixteen));
  plan.degree = (triangular & (exact < plan.degree)) ? exact : plan.degree;
  const V excess = norm2 * Simd<T>::broadcast(T(1 / (table.theta[3] * table.theta[3])));
  const I exponent = Simd<T>::ceil_log2(Simd<T>::maximum(excess, Simd<T>::broadcast(1)));
  plan.squarings = (exponent + 1) >> 1;
  if (n > 16) plan.careful |= triangular & (plan.squarings > 0);
  plan.squarings = (triangular | plan.careful) ? I{} : plan.squarings;
  plan.degree = plan.careful ? two : plan.degree;
  return plan;
}

template <typename T>
static inline bool any(typename Simd<T>::I mask) {
  typename Simd<T>::Integer all = 0;
  for (int lane = 0; lane < Simd<T>::lanes; ++lane) all |= mask[lane];
  return all != 0;
}

// Matrices first .. first + count - 1, count <= lanes.
template <typename T, bool dual>
static void lane_block(const Job<T>& job, int64_t first, int count, typename Simd<T>::V* memory) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  const int n = job.n;
  const size_t entries = size_t(n) * n;
  const LaneLayout<T, dual> layout{n};
  const Buffers<T> b(memory, entries, dual);
  LaneBlock<T>::load(job.a + first * entries, n, count, job.transposed, b.a.x);
  if constexpr (dual) LaneBlock<T>::load(job.direction + first * entries, n, count, false, b.a.h);
  layout.product(b.a, b.a, Store<T>{b.a2});

  const LaneSchedule<T> plan = lane_schedule<T>(n, *job.table, b.a.x, b.a2.x);
  int most = 0;
  for (int lane = 0; lane < count; ++lane) most = most > plan.squarings[lane] ? most : int(plan.squarings[lane]);
  V sigma = Simd<T>::power_of_two(-plan.squarings);
  if (most > 8) {
    // sigma^4 in a coefficient could underflow: scale A and A2 themselves instead.
    for (size_t at = 0; at < entries; ++at) {
      b.a.x[at] *= sigma;
      b.a2.x[at] *= sigma * sigma;
      if constexpr (dual) b.a.h[at] *= sigma, b.a2.h[at] *= sigma * sigma;
    }
    sigma = Simd<T>::broadcast(1);
  }

  Pair<T> x{};
  for (const int degree : {2, 4, 8, 16}) {
    const I here = plan.degree == typename Simd<T>::Integer(degree);
    if (!any<T>(here)) continue;
    const Pair<T> result = polynomial<T, dual>(layout, *job.table, degree, sigma, b);
    if (!any<T>(~here)) {
      x = result;
      break;
    }
    for (size_t at = 0; at < entries; ++at) {
      b.keep.x[at] = here ? result.x[at] : b.keep.x[at];
      if constexpr (dual) b.keep.h[at] = here ? result.h[at] : b.keep.h[at];
    }
    x = b.keep;
  }
  Pair<T> other = b.right;
  for (int k = 0; k < most; ++k) {
    layout.product(x, x, StoreWhere<T>{other, x, plan.squarings > typename Simd<T>::Integer(k)});
    const Pair<T> squared = other;
    other = x;
    x = squared;
  }

  const V* result = dual ? x.h : x.x;
  LaneBlock<T>::store(result, n, count, job.out + first * entries);
  V check{};
  for (size_t at = 0; at < entries; ++at) check += result[at] * T(0);
  const I again = plan.careful | (check != 0) | (check != check);
  if (any<T>(again))
    for (int lane = 0; lane < count; ++lane)
      if (again[lane]) careful<T>(job, first + lane);
}

}  // namespace MLAYER_NAMESPACE
