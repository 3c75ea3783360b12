// Larger matrices: one at a time, its whole chain in cache.
#pragma once
#include <cstring>

#include "balance.h"
#include "wide_exponents.h"
#include "chain.h"
#include "job.h"
#include "nilpotent.h"
#include "squarings.h"

namespace MLAYER_NAMESPACE {

template <typename T>
struct RowShape {
  static constexpr int lanes = Simd<T>::lanes;
  int n, row_vectors, padded_rows;
  explicit RowShape(int size) : n(size) {
    row_vectors = (n + lanes - 1) / lanes;
    padded_rows = row_vectors * lanes;
    // Long rows an even number of vectors apart would compete for few cache sets.
    if (row_vectors >= 8 && row_vectors % 2 == 0) ++row_vectors;
  }
  size_t vectors() const { return size_t(padded_rows) * row_vectors; }
};

// Copies between a matrix and its padded rows, in whole vectors: a row is read past its end into the
// next one and the surplus set to 0, or written past its end before the next one is. The last rows must
// be exact, because the memory behind the matrix may belong to other objects.
template <typename T>
static void load_rows(const T* from, const RowShape<T>& shape, typename Simd<T>::V* to) {
  constexpr int lanes = RowShape<T>::lanes;
  using V = typename Simd<T>::V;
  using Unaligned = typename Simd<T>::Unaligned;
  const int n = shape.n, used = shape.padded_rows / lanes;
  typename Simd<T>::I inside;
  for (int lane = 0; lane < lanes; ++lane) inside[lane] = (used - 1) * lanes + lane < n ? -1 : 0;
  for (int i = 0; i < n; ++i, to += shape.row_vectors, from += n) {
    if ((n - i) * n < shape.padded_rows) {
      to[used - 1] = V{};
      std::memcpy(to, from, n * sizeof(T));
    } else {
      for (int j = 0; j < used; ++j) to[j] = *reinterpret_cast<const Unaligned*>(from + j * lanes);
      to[used - 1] = inside ? to[used - 1] : V{};
    }
    for (int j = used; j < shape.row_vectors; ++j) to[j] = V{};
  }
}

template <typename T>
static void store_rows(const typename Simd<T>::V* from, const RowShape<T>& shape, T* to) {
  constexpr int lanes = RowShape<T>::lanes;
  using Unaligned = typename Simd<T>::Unaligned;
  const int n = shape.n, used = shape.padded_rows / lanes;
  for (int i = 0; i < n; ++i, from += shape.row_vectors, to += n) {
    if ((n - i) * n < shape.padded_rows)
      std::memcpy(to, from, n * sizeof(T));
    else
      for (int j = 0; j < used; ++j) *reinterpret_cast<Unaligned*>(to + j * lanes) = from[j];
  }
}

// Transposes in blocks of lanes x lanes; rows past n of `from` are read too, so they must be 0.
template <typename T>
static void transpose_rows(const RowShape<T>& shape, typename Simd<T>::V* from, typename Simd<T>::V* to) {
  constexpr int lanes = RowShape<T>::lanes;
  using V = typename Simd<T>::V;
  const int blocks = shape.padded_rows / lanes;
  for (size_t at = size_t(shape.n) * shape.row_vectors; at < shape.vectors(); ++at) from[at] = V{};
  for (int bi = 0; bi < blocks; ++bi)
    for (int bj = 0; bj < blocks; ++bj) {
      V rows[lanes];
      for (int k = 0; k < lanes; ++k) rows[k] = from[size_t(bi * lanes + k) * shape.row_vectors + bj];
      Simd<T>::transpose(rows);
      for (int k = 0; k < lanes; ++k) to[size_t(bj * lanes + k) * shape.row_vectors + bi] = rows[k];
    }
}

// Largest absolute column sum, and the sum of squares; column by column, as in lanes.h.
template <typename T>
struct RowNorms {
  T one = 0, squares = 0;
};
template <typename T>
static RowNorms<T> row_norms(const RowShape<T>& shape, const typename Simd<T>::V* a) {
  using V = typename Simd<T>::V;
  constexpr int lanes = RowShape<T>::lanes;
  RowNorms<T> norms;
  for (int j = 0; j < shape.padded_rows / lanes; ++j) {
    V sums{}, squares{};
    for (int i = 0; i < shape.n; ++i) {
      const V entry = a[size_t(i) * shape.row_vectors + j];
      sums += Simd<T>::absolute(entry);
      squares += entry * entry;
    }
    for (int lane = 0; lane < lanes && j * lanes + lane < shape.n; ++lane) {
      norms.one = norms.one >= sums[lane] ? norms.one : sums[lane];
      norms.one = sums[lane] == sums[lane] ? norms.one : sums[lane];
      norms.squares += squares[lane];
    }
  }
  return norms;
}

// The smaller of Frobenius norm and 1-norm.
template <typename T>
static T smaller_norm(const RowShape<T>& shape, const typename Simd<T>::V* a) {
  const RowNorms<T> norms = row_norms<T>(shape, a);
  const T frobenius = std::sqrt(norms.squares);
  return frobenius <= norms.one ? frobenius : norms.one;
}

// The plan for A and A2 in rows.
template <typename T, bool dual>
static RowPlan plan_of(const RowShape<T>& shape, const mlayer_table& table, const Buffers<T>& b, T norm) {
  const T* entry = reinterpret_cast<const T*>(b.a.x);
  const size_t row_length = size_t(shape.row_vectors) * Simd<T>::lanes;
  const int depth = nilpotent_depth(shape.n, [&](int i, int j) { return entry[i * row_length + j] != 0; });
  return row_plan<T, dual>(table, norm, smaller_norm<T>(shape, b.a2.x), depth);
}

template <typename T, bool dual>
static void one_matrix(const Job<T>& job, int64_t index, typename Simd<T>::V* memory, bool may_balance = true) {
  using V = typename Simd<T>::V;
  const mlayer_table& table = *job.table;
  const RowShape<T> shape(job.n);
  RowLayout<T> layout{job.n, shape.row_vectors, computed_rows(job.n, job.real_form), job.n};
  const Buffers<T> b(memory, shape.vectors(), dual);
  const size_t entries = size_t(job.n) * job.n, row_length = size_t(shape.row_vectors) * Simd<T>::lanes;
  if (job.transposed) {
    load_rows<T>(job.a + index * entries, shape, b.keep.x);
    transpose_rows<T>(shape, b.keep.x, b.a.x);
  } else {
    load_rows<T>(job.a + index * entries, shape, b.a.x);
  }
  if constexpr (dual) load_rows<T>(job.direction + index * entries, shape, b.a.h);
  const T norm = row_norms<T>(shape, b.a.x).one;
  if (!(norm <= T(table.largest_norm))) return careful<T>(job, index);

  if (norm > T(table.theta[3])) layout.terms = terms_at_once<T>(job.n);  // there may be squarings
  layout.template product<all_parts<dual>>(b.a, b.a, Store<T>{b.a2});
  RowPlan plan = plan_of<T, dual>(shape, table, b, norm);
  int exponents[kLargestBalanced], unbalanced = 0;
  bool balanced = false, upper = false, lower = false;
  T* const a = reinterpret_cast<T*>(b.a.x);
  const bool many = plan.squarings >= kWorthALook<T> && job.n <= kLargestBalanced;
  bool twofold = plan.squarings >= from_squarings<T>(job.n) && job.n <= kLargestBalanced;
  const auto places = [](int k) { return Places{k, k}; };
  if (many && imbalanced<T>(job.n, shape.padded_rows / Simd<T>::lanes, shape.row_vectors, b.a.x, places)) {
    // A and E move to `keep` and come back balanced; a second product decides whether that saves a squaring.
    const auto numbers = [](V* of) { return reinterpret_cast<T*>(of); };
    if (may_balance && balance<T>(job.n, a, row_length, exponents)) {
      std::memcpy(b.keep.x, b.a.x, layout.vectors() * sizeof(V));
      if constexpr (dual) std::memcpy(b.keep.h, b.a.h, layout.vectors() * sizeof(V));
      balanced = rescale<T>(job.n, numbers(b.keep.x), a, row_length, exponents);
      if constexpr (dual)
        balanced = balanced && rescale<T>(job.n, numbers(b.keep.h), numbers(b.a.h), row_length, exponents);
      if (balanced) {
        layout.rows = job.n;  // both halves of a real form may be scaled differently
        layout.template product<all_parts<dual>>(b.a, b.a, Store<T>{b.a2});
        unbalanced = plan.squarings;
        plan = plan_of<T, dual>(shape, table, b, row_norms<T>(shape, b.a.x).one);
      }
      if (!balanced || plan.squarings >= unbalanced) return one_matrix<T, dual>(job, index, memory, false);
    }
    upper = triangular<T>(job.n, a, row_length, true);
    lower = !upper && triangular<T>(job.n, a, row_length, false);
    // Exact diagonals serve triangular matrices better, unless their couplings are small.
    if (upper || lower) twofold = twofold && weakly_coupled<T>(job.n, a, row_length);
    if (!plan.squarings) upper = lower = false;
  } else if (plan.squarings >= kDoubledFrom<T> && !twofold && job.n <= kLargestBalanced) {
    // A corner distinguishes most matrices from triangular ones.
    upper = a[(job.n - 1) * row_length] == 0 && triangular<T>(job.n, a, row_length, true);
    lower = !upper && a[job.n - 1] == 0 && triangular<T>(job.n, a, row_length, false);
  }
  if (!plan.squarings) layout.terms = job.n;
  const Diagonals exact(upper || lower ? job.n : 0, a, row_length, upper);
  const Squared<T> found = squared<T, dual>(
      layout, table, plan, twofold, sparing(job.n, job.real_form),
      without_identity<T>(upper || lower ? 0 : job.n, plan.squarings), b,
      [&](const V* of) { return smaller_norm<T>(shape, of); },
      [&](double t, const Pair<T>& x) {
        if (upper || lower) exact.put(t, reinterpret_cast<T*>(x.x), row_length);
      });
  const Pair<T>& x = found.x;
  if (!dual && (upper || lower)) exact.put(1.0, reinterpret_cast<T*>(x.x), row_length);

  V* result = dual ? x.h : x.x;
  if (balanced && harmed<T>(job.n, reinterpret_cast<T*>(result), row_length, exponents,
                          twofold && !found.ordinary ? unbalanced - plan.squarings + kTwofoldBits
                                                     : unbalanced - found.ordinary))
    return one_matrix<T, dual>(job, index, memory, false);
  const V odd = not_finite<T>(job.n, shape.padded_rows / Simd<T>::lanes, shape.row_vectors, result);
  for (int lane = 0; lane < Simd<T>::lanes; ++lane)
    if (odd[lane] != 0) return careful<T>(job, index);
  store_rows<T>(result, shape, job.out + index * entries);
}

}  // namespace MLAYER_NAMESPACE
