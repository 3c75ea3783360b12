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

// For `DoubleAndAdd`: others are squared, or left alone.
template <typename T>
struct WholeWhere {
  using V = typename Simd<T>::V;
  typename Simd<T>::I doubled, active;
  inline V operator()(V whole, V product, V old) const { return doubled ? whole : (active ? product : old); }
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

  // The first `count` matrices, those of `chosen` lanes.
  template <class Chosen>
  static void store(const V* from, int n, int count, const Chosen& chosen, T* to) {
    const int entries = n * n;
    if (entries < lanes) {
      for (int e = 0; e < entries; ++e)
        for (int lane = 0; lane < count; ++lane)
          if (chosen(lane)) to[size_t(lane) * entries + e] = from[e][lane];
      return;
    }
    cover(entries, [&](int e) {
      V rows[lanes];
      for (int k = 0; k < lanes; ++k) rows[k] = from[e + k];
      Simd<T>::transpose(rows);
      for (int lane = 0; lane < count; ++lane)
        if (chosen(lane)) *reinterpret_cast<Unaligned*>(to + size_t(lane) * entries + e) = rows[lane];
    });
  }
};

// A block with few matrices would leave most lanes idle: up to this many are computed one at a time.
template <typename T>
static int few(int n) {
  const int most = Simd<T>::lanes * 3 / 4;
  return n * n / 18 < most ? n * n / 18 : most;
}

// Lanes computed `alone`, or in twice the precision, have no squarings here.
template <typename T>
struct LaneSchedule {
  typename Simd<T>::I squarings, degree, alone, twofold{};
  typename Simd<T>::V norm2;  // ||A^2||
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
      // Written so that a NaN propagates.
      norms.one = norms.one >= sums[j] ? norms.one : sums[j];
      norms.one = sums[j] == sums[j] ? norms.one : sums[j];
      norms.squares += squares[j];
    }
  };
  for_blocks(n, 4, [&](int j0, int size) { with_size<4, 1>(size, [&](auto C) { columns(j0, C); }); });
  return norms;
}

// Whether the matrices of the lanes have entries above, below and on the diagonal.
template <typename T>
struct LaneEntries {
  typename Simd<T>::I above{}, below{}, diagonal{};
  LaneEntries(int n, const typename Simd<T>::V* a) {
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) (i < j ? above : i > j ? below : diagonal) |= a[i * n + j] != 0;
  }
};

// Lanes whose matrix is strictly upper or strictly lower triangular.
template <typename T>
static inline typename Simd<T>::I strictly_triangular(int n, const typename Simd<T>::V* a) {
  using I = typename Simd<T>::I;
  const I candidates = a[0] == 0;
  if (!any<T>(candidates)) return candidates;  // the usual case ends here
  const LaneEntries<T> filled(n, a);
  return ~filled.diagonal & (~filled.above | ~filled.below);
}

// Lanes whose matrix is upper or lower triangular.
template <typename T>
static inline typename Simd<T>::I triangular_lanes(int n, const typename Simd<T>::V* a) {
  using I = typename Simd<T>::I;
  const I candidates = (a[n - 1] == 0) | (a[(n - 1) * n] == 0);
  if (!any<T>(candidates)) return candidates;
  const LaneEntries<T> filled(n, a);
  return ~filled.above | ~filled.below;
}

template <typename T, bool dual>
static inline LaneSchedule<T> lane_schedule(int n, int count, bool sparingly, const mlayer_table& table,
                                            const typename Simd<T>::V* a, const typename Simd<T>::V* a2) {
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
  using Integer = typename Simd<T>::Integer;
  // Matrices that balancing may improve are computed one at a time, as in rows.h.
  const I many = plan.squarings >= Integer(kWorthALook<T>);
  if (any<T>(many)) plan.alone |= many & imbalanced_lanes<T>(n, a);
  I others = plan.alone;
  if constexpr (has_twofold<T>) {
    const I some = plan.squarings >= Integer(kDoubledFrom<T>);
    if (any<T>(some)) {
      // Triangular ones get exact diagonals, in rows.h.
      plan.alone |= some & triangular_lanes<T>(n, a);
      others = plan.alone;
    }
    plan.norm2 = norm2;
    plan.twofold = (plan.squarings >= Integer(from_squarings<T>(n))) & ~plan.alone;
    if (any<T>(plan.twofold)) {
      int lanes = 0;
      for (int lane = 0; lane < count; ++lane) lanes += plan.twofold[lane] != 0;
      others |= plan.twofold;
      if (sparingly || lanes <= few<T>(n)) plan.alone = others, plan.twofold = I{};
    }
  }
  plan.squarings = others ? I{} : plan.squarings;
  plan.degree = others ? two : plan.degree;
  return plan;
}

// Matrices first .. first + count - 1, count <= lanes, into b.a and their squares into b.a2.
template <typename T, bool dual>
static void load_block(const Job<T>& job, int64_t first, int count, const LaneLayout<T>& layout, const Buffers<T>& b) {
  const size_t at = size_t(first) * layout.vectors();
  LaneBlock<T>::load(job.a + at, job.n, count, job.transposed, b.a.x);
  if constexpr (dual) LaneBlock<T>::load(job.direction + at, job.n, count, false, b.a.h);
  layout.template product<all_parts<dual>>(b.a, b.a, Store<T>{b.a2});
}

// The matrices of `chosen` lanes in twice the precision, as in rows.h. Returns the lanes that were not finite.
template <typename T, bool dual>
static typename Simd<T>::I twofold_block(const Job<T>& job, int64_t first, int count, typename Simd<T>::I chosen,
                                         typename Simd<T>::V norm2, const LaneLayout<T>& layout,
                                         const Buffers<T>& b) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  using Integer = typename Simd<T>::Integer;
  I squarings{};
  int most = 0;
  for (int lane = 0; lane < count; ++lane)
    if (chosen[lane]) {
      const int needed = twofold_count(norm2[lane], false);
      squarings[lane] = needed;
      most = needed > most ? needed : most;
    }
  const V sigma = Simd<T>::power_of_two(-squarings);
  layout.each([&](size_t at) {
    b.a.x[at] *= sigma;
    b.a2.x[at] *= sigma * sigma;
    if constexpr (dual) b.a.h[at] *= sigma, b.a2.h[at] *= sigma * sigma;
  });
  V* const result = dual ? b.left.h : b.left.x;
  const auto collect = [&](int k, const Pair<T>& x) {
    const I done = squarings == Integer(k + 1);
    const V* const now = dual ? x.h : x.x;
    if (any<T>(done)) layout.each([&](size_t at) { result[at] = done ? now[at] : result[at]; });
  };
  twofold_squarings<T, dual>(layout, most, b, false, [](const V*) { return 0; }, collect);
  const auto wanted = [&](int lane) { return chosen[lane] != 0; };
  LaneBlock<T>::store(result, job.n, count, wanted, job.out + size_t(first) * layout.vectors());
  return chosen & (not_finite<T>(job.n, job.n, job.n, result) != 0);
}

// The other lanes, each by its polynomial and squarings. Returns the lanes that were not finite.
template <typename T, bool dual>
static typename Simd<T>::I ordinary_block(const Job<T>& job, int64_t first, int count, const LaneSchedule<T>& plan,
                                          const LaneLayout<T>& layout, const Buffers<T>& b) {
  using V = typename Simd<T>::V;
  using I = typename Simd<T>::I;
  using Integer = typename Simd<T>::Integer;
  const int n = job.n;
  const size_t entries = layout.vectors();
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
  // `kept`: lanes with fewer squarings get the identity here, the others after their first.
  const I doubled = plan.squarings >= Integer(kDoubledFrom<T>);
  const bool kept = any<T>(doubled);
  const V zero{}, one = Simd<T>::broadcast(1);
  for (const int degree : {2, 4, 8, 16}) {  // 16 last: it overwrites A2
    const I here = plan.degree == Integer(degree);
    if (!any<T>(here)) continue;
    polynomial<T, dual>(layout, *job.table, degree, sigma, b, !any<T>(plan.squarings > Integer(0)), kept);
    if (kept && degree == 16)
      for (int i = 0; i < n; ++i) b.y.x[i * n + i] += doubled ? zero : one;
    if (!any<T>(~here)) break;
    for (size_t at = 0; at < entries; ++at) {
      b.keep.x[at] = here ? b.y.x[at] : b.keep.x[at];
      if constexpr (dual) b.keep.h[at] = here ? b.y.h[at] : b.keep.h[at];
    }
    x = b.keep;
  }
  Pair<T> other = b.left;
  if constexpr (has_doubled<T>)
    if (kept) {
      const WholeWhere<T> chosen{doubled, plan.squarings > Integer(0)};
      layout.template product<all_parts<dual>>(x, x, DoubleAndAdd<T, WholeWhere<T>>{other, x, b.a, chosen});
      for (size_t at = 0; at < entries; at += n + 1)
        other.x[at] = doubled ? plus_one(other.x[at], b.a.x[at], one) : other.x[at];
      std::swap(x, other);
    }
  for (int k = kept; any<T>(plan.squarings > Integer(k)); ++k) {
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
  LaneBlock<T>::store(result, n, count, [](int) { return true; }, job.out + first * entries);
  return not_finite<T>(n, n, n, result) != 0;
}

template <typename T, bool dual>
static void lane_block(const Job<T>& job, int64_t first, int count, typename Simd<T>::V* memory) {
  using I = typename Simd<T>::I;
  const LaneLayout<T> layout{job.n, computed_rows(job.n, job.real_form)};
  const Buffers<T> b(memory, layout.vectors(), dual);
  load_block<T, dual>(job, first, count, layout, b);
  const LaneSchedule<T> plan = lane_schedule<T, dual>(job.n, count, sparing(job.n, job.real_form),
                                                             *job.table, b.a.x, b.a2.x);
  I again = plan.alone;
  const bool ordinary = any<T>(~(plan.alone | plan.twofold));
  if (ordinary) again |= ordinary_block<T, dual>(job, first, count, plan, layout, b);
  if constexpr (has_twofold<T>)
    if (any<T>(plan.twofold)) {
      if (ordinary) load_block<T, dual>(job, first, count, layout, b);
      again |= twofold_block<T, dual>(job, first, count, plan.twofold, plan.norm2, layout, b);
    }
  if (any<T>(again))
    for (int lane = 0; lane < count; ++lane)
      if (again[lane]) one_matrix<T, dual>(job, first + lane, memory);
}

}  // namespace MLAYER_NAMESPACE
