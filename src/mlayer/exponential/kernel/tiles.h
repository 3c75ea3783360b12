// Products of square matrices in registers, for the two layouts the kernel uses.
//
// A `Pair` is a matrix X and, in the derivative, its tangent H. The product of two pairs is
// (X1 X2, X1 H2 + H1 X2); the last product of a derivative needs only the second part. What happens
// to each finished vector is the caller's epilogue, so that linear combinations cost no extra pass
// over memory.
#pragma once
#include "simd.h"

namespace MLAYER_NAMESPACE {

enum class Parts { value, both, tangent };

template <typename T>
struct Pair {
  using V = typename Simd<T>::V;
  V* x;
  V* h;  // unused without a tangent
  template <bool tangent>
  inline V* part() const {
    return tangent ? h : x;
  }
};

// Registers: 32 with AVX-512 and NEON, 16 with AVX2 and SSE. Accumulators plus operands must fit.
#if MLAYER_VECTOR_REGISTERS >= 32
constexpr int kLaneRows = 4, kLaneColumns = 4, kLaneRowsDual = 4, kLaneColumnsDual = 3;
constexpr int kRowBlock[] = {16, 8, 8}, kRowBlockDual[] = {12, 6, 4};  // for 1, 2 and 3 vectors a row
#else
constexpr int kLaneRows = 3, kLaneColumns = 3, kLaneRowsDual = 2, kLaneColumnsDual = 3;
constexpr int kRowBlock[] = {8, 6, 4}, kRowBlockDual[] = {6, 3, 2};
#endif

// Calls body(start, size) for a split of n into the fewest nearly equal blocks of at most `most`.
template <class Body>
static inline void for_blocks(int n, int most, const Body& body) {
  const int count = (n + most - 1) / most;
  int start = 0;
  for (int b = 0; b < count; ++b) {
    const int size = n / count + (b < n % count);
    body(start, size);
    start += size;
  }
}

// Turns a run-time block size 1..most into a compile-time one.
template <int most, class Body>
static inline void with_size(int size, const Body& body) {
  if constexpr (most == 1) {
    body(std::integral_constant<int, 1>());
  } else {
    if (size == most)
      body(std::integral_constant<int, most>());
    else
      with_size<most - 1>(size, body);
  }
}

// ---- Lanes: `lanes` matrices side by side, entry (i, j) of all of them in vector i n + j. -------
template <typename T, bool dual>
struct LaneLayout {
  using V = typename Simd<T>::V;
  int n;

  inline size_t vectors() const { return size_t(n) * n; }

  template <int R, int C, Parts parts, class Epilogue>
  inline void tile(const Pair<T>& left, const Pair<T>& right, int i0, int j0, const Epilogue& epilogue) const {
    constexpr bool value_wanted = parts != Parts::tangent, tangent_wanted = parts != Parts::value;
    V value[value_wanted ? R : 1][C] = {}, tangent[tangent_wanted ? R : 1][C] = {};
    for (int k = 0; k < n; ++k) {
      V r[C], rh[C];
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        Simd<T>::keep(r[j] = right.x[k * n + j0 + j]);
        if constexpr (tangent_wanted) Simd<T>::keep(rh[j] = right.h[k * n + j0 + j]);
      }
#pragma GCC unroll 8
      for (int i = 0; i < R; ++i) {
        V l = left.x[(i0 + i) * n + k];
        Simd<T>::keep(l);
        if constexpr (value_wanted)
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) value[i][j] += l * r[j];
        if constexpr (tangent_wanted) {
          V lh = left.h[(i0 + i) * n + k];
          Simd<T>::keep(lh);
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) tangent[i][j] += l * rh[j];
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) tangent[i][j] += lh * r[j];
        }
      }
    }
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        const size_t at = size_t(i0 + i) * n + j0 + j;
        if constexpr (value_wanted) epilogue.template apply<false>(at, value[i][j]);
        if constexpr (tangent_wanted) epilogue.template apply<true>(at, tangent[i][j]);
      }
  }

  template <Parts parts = dual ? Parts::both : Parts::value, class Epilogue>
  __attribute__((noinline)) void product(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    constexpr int most_rows = dual ? kLaneRowsDual : kLaneRows;
    constexpr int most_columns = dual ? kLaneColumnsDual : kLaneColumns;
    for_blocks(n, most_rows, [&](int i0, int rows) {
      with_size<most_rows>(rows, [&](auto R) {
        for_blocks(n, most_columns, [&](int j0, int columns) {
          with_size<most_columns>(columns, [&](auto C) { tile<R(), C(), parts>(left, right, i0, j0, epilogue); });
        });
      });
    });
  }

  inline void add_identity(V* x) const {
    for (int i = 0; i < n; ++i) x[i * n + i] += T(1);
  }
};

// ---- Rows: one matrix, its rows padded with zeros to whole vectors. ----------------------------
template <typename T, bool dual>
struct RowLayout {
  using V = typename Simd<T>::V;
  int n;
  int row_vectors;  // vectors a row, an odd number for large n so that rows do not share cache sets

  inline size_t vectors() const { return size_t(n) * row_vectors; }

  template <int R, int C, Parts parts, class Epilogue>
  inline void tile(const Pair<T>& left, const Pair<T>& right, int i0, int j0, const Epilogue& epilogue) const {
    constexpr bool value_wanted = parts != Parts::tangent, tangent_wanted = parts != Parts::value;
    V value[value_wanted ? R : 1][C] = {}, tangent[tangent_wanted ? R : 1][C] = {};
    const size_t row_length = size_t(row_vectors) * Simd<T>::lanes;
    const T* lx = reinterpret_cast<const T*>(left.x) + i0 * row_length;
    const T* lh = tangent_wanted ? reinterpret_cast<const T*>(left.h) + i0 * row_length : nullptr;
    const V* rx = right.x + j0;
    const V* rh = tangent_wanted ? right.h + j0 : nullptr;
    for (int k = 0; k < n; ++k) {
      V r[C], s[C];
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        Simd<T>::keep(r[j] = rx[size_t(k) * row_vectors + j]);
        if constexpr (tangent_wanted) Simd<T>::keep(s[j] = rh[size_t(k) * row_vectors + j]);
      }
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const V l = Simd<T>::broadcast(lx[i * row_length + k]);
        if constexpr (value_wanted)
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) value[i][j] += l * r[j];
        if constexpr (tangent_wanted) {
          const V m = Simd<T>::broadcast(lh[i * row_length + k]);
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) tangent[i][j] += l * s[j];
#pragma GCC unroll 8
          for (int j = 0; j < C; ++j) tangent[i][j] += m * r[j];
        }
      }
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        const size_t at = size_t(i0 + i) * row_vectors + j0 + j;
        if constexpr (value_wanted) epilogue.template apply<false>(at, value[i][j]);
        if constexpr (tangent_wanted) epilogue.template apply<true>(at, tangent[i][j]);
      }
  }

  template <int columns, Parts parts, class Epilogue>
  inline void panel(const Pair<T>& left, const Pair<T>& right, int j0, const Epilogue& epilogue) const {
    constexpr int most_rows = (dual ? kRowBlockDual : kRowBlock)[columns - 1];
    for_blocks(n, most_rows, [&](int i0, int rows) {
      with_size<most_rows>(rows, [&](auto R) { tile<R(), columns, parts>(left, right, i0, j0, epilogue); });
    });
  }

  template <Parts parts = dual ? Parts::both : Parts::value, class Epilogue>
  __attribute__((noinline)) void product(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    // Panels of two vectors, and one of three (or one) where their number is odd.
    const int used = (n + Simd<T>::lanes - 1) / Simd<T>::lanes;
    if (used == 1) return panel<1, parts>(left, right, 0, epilogue);
    if (used % 2) panel<3, parts>(left, right, 0, epilogue);
    for (int j0 = used % 2 ? 3 : 0; j0 < used; j0 += 2) panel<2, parts>(left, right, j0, epilogue);
  }

  inline void add_identity(V* x) const {
    T* entries = reinterpret_cast<T*>(x);
    const size_t row_length = size_t(row_vectors) * Simd<T>::lanes;
    for (int i = 0; i < n; ++i) entries[i * row_length + i] += T(1);
  }
};

}  // namespace MLAYER_NAMESPACE
