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
// The parts computed by every product but the last of a derivative, and by the last.
template <bool dual>
constexpr Parts all_parts = dual ? Parts::both : Parts::value;
template <bool dual>
constexpr Parts last_parts = dual ? Parts::tangent : Parts::value;

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

// Registers: 32 with AVX-512 and NEON, 16 with AVX2 and SSE. The accumulators of a tile, a row of the
// right factor and one entry of the left must fit: R C + C + 1.
#if MLAYER_VECTOR_REGISTERS >= 32
constexpr int kLaneRows = 6, kLaneColumns = 4;
constexpr int kRowBlock[] = {8, 12, 8};  // for 1, 2 and 3 vectors per row
#else
constexpr int kLaneRows = 4, kLaneColumns = 3;
constexpr int kRowBlock[] = {8, 6, 4};
#endif

// Up to this size matrices go side by side in the lanes of a vector; measured against rows.h.
template <typename T>
constexpr int kLargestInLanes = sizeof(T) == 4 ? MLAYER_LANES_UP_TO_F32 : MLAYER_LANES_UP_TO_F64;

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

// Turns a run-time block size least..most into a compile-time one.
template <int most, int least, class Body>
static inline void with_size(int size, const Body& body) {
  if constexpr (most == least) {
    body(std::integral_constant<int, most>());
  } else {
    if (size == most)
      body(std::integral_constant<int, most>());
    else
      with_size<most - 1, least>(size, body);
  }
}

// The smallest block that `for_blocks` makes of n >= `smallest`: fewer tiles to compile.
constexpr int least_block(int most, int smallest) {
  return smallest < (most + 1) / 2 ? smallest : (most + 1) / 2;
}

// sum += left right for R rows and C vectors of columns. Both layouts store the right factor's rows
// `right_step` vectors apart; the entries of the left factor are vectors in lanes and numbers in rows,
// its rows `left_step` of them apart. Pointers step along: an index would be multiplied out for each load.
template <typename T, int R, int C, typename Entry>
static inline __attribute__((always_inline)) void accumulate(typename Simd<T>::V (&sum)[R][C], const Entry* left,
                                                             size_t left_step, const typename Simd<T>::V* right,
                                                             size_t right_step, int n) {
  using V = typename Simd<T>::V;
  for (const Entry* const end = left + n; left != end; ++left, right += right_step) {
    V r[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) Simd<T>::keep(r[j] = right[j]);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      V l;
      if constexpr (sizeof(Entry) == sizeof(V))
        Simd<T>::keep(l = left[i * left_step]);
      else
        l = Simd<T>::broadcast(left[i * left_step]);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) sum[i][j] += l * r[j];
    }
  }
}

// The number of rows of a product that are computed: half of them if the matrices are real forms.
static inline int computed_rows(int n, bool real_form) { return real_form && n >= 4 ? n / 2 : n; }

// ---- Lanes: `lanes` matrices of n >= 2 side by side, entry (i, j) of all of them in vector i n + j. -------
template <typename T>
struct LaneLayout {
  using V = typename Simd<T>::V;
  int n;
  int rows;  // computed by products: all, or the upper half of real forms

  inline size_t vectors() const { return size_t(n) * n; }
  const LaneLayout& undivided() const { return *this; }

  // Calls body(place) for every vector with entries.
  template <class Body>
  inline void each(const Body& body) const {
    for (size_t at = 0; at < vectors(); ++at) body(at);
  }
  // Calls body with the diagonal entries of some matrices: vectors here, numbers in rows.
  template <class Body, class... Matrices>
  inline void each_diagonal(const Body& body, Matrices*... x) const {
    for (size_t at = 0; at < vectors(); at += n + 1) body(x[at]...);
  }
  // Of a maximum over vectors: the maximum over each matrix, in every place.
  static inline V over_matrix(V most) { return most; }

  // Lower half of [[B, -C], [C, B]] from the upper.
  void mirror(V* x) const {
    const int half = n / 2;
    for (int i = 0; i < half; ++i)
      for (int j = 0; j < half; ++j) {
        x[(half + i) * n + j] = -x[i * n + half + j];
        x[(half + i) * n + half + j] = x[i * n + j];
      }
  }

  template <int R, int C, bool tangent, class Epilogue>
  inline void tile(const Pair<T>& left, const Pair<T>& right, int i0, int j0, const Epilogue& epilogue) const {
    const size_t row = size_t(i0) * n;
    V sum[R][C] = {};
    accumulate<T>(sum, left.x + row, n, right.template part<tangent>() + j0, n, n);
    if constexpr (tangent) accumulate<T>(sum, left.h + row, n, right.x + j0, n, n);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) epilogue.template apply<tangent>(row + size_t(i) * n + j0 + j, sum[i][j]);
  }

  template <bool tangent, class Epilogue>
  __attribute__((noinline)) void part(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    for_blocks(rows, kLaneRows, [&](int i0, int some) {
      with_size<kLaneRows, least_block(kLaneRows, 2)>(some, [&](auto R) {
        for_blocks(n, kLaneColumns, [&](int j0, int columns) {
          with_size<kLaneColumns, least_block(kLaneColumns, 2)>(
              columns, [&](auto C) { tile<R(), C(), tangent>(left, right, i0, j0, epilogue); });
        });
      });
    });
    if (rows < n) epilogue.template outputs<tangent>([&](V* x) { mirror(x); });
  }

  template <Parts parts, class Epilogue>
  inline void product(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    if constexpr (parts != Parts::tangent) part<false>(left, right, epilogue);
    if constexpr (parts != Parts::value) part<true>(left, right, epilogue);
  }

  inline void add_identity(V* x) const {
    for (int i = 0; i < n; ++i) x[i * n + i] += T(1);
  }
};

// ---- Rows: one matrix, its rows padded with zeros to whole vectors. ----------------------------
template <typename T>
struct RowLayout {
  using V = typename Simd<T>::V;
  int n;
  int row_vectors;  // vectors per row, an odd number for large n so that rows do not share cache sets
  int rows;         // as in lanes
  int terms;        // of an entry of a product that are summed one after the other; then these sums are added

  // The same, with sums in one piece.
  RowLayout undivided() const { return {n, row_vectors, rows, n}; }

  void mirror(V* x) const {
    const int half = n / 2;
    const size_t row_length = size_t(row_vectors) * Simd<T>::lanes;
    for (int i = 0; i < half; ++i) {
      const T* upper = reinterpret_cast<T*>(x) + i * row_length;
      T* lower = reinterpret_cast<T*>(x) + (half + i) * row_length;
      for (int j = 0; j < half; ++j) lower[j] = -upper[half + j];
      for (int j = 0; j < half; ++j) lower[half + j] = upper[j];
      for (size_t j = n; j < row_length; ++j) lower[j] = 0;  // as a product leaves it
    }
  }

  inline size_t vectors() const { return size_t(n) * row_vectors; }

  template <class Body>
  inline void each(const Body& body) const {
    const int used = (n + Simd<T>::lanes - 1) / Simd<T>::lanes;
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < used; ++j) body(size_t(i) * row_vectors + j);
  }
  template <class Body, class... Matrices>
  inline void each_diagonal(const Body& body, Matrices*... x) const {
    const size_t row_length = size_t(row_vectors) * Simd<T>::lanes;
    for (size_t at = 0; at < n * row_length; at += row_length + 1) body(reinterpret_cast<T*>(x)[at]...);
  }
  static inline V over_matrix(V most) {
    T largest = 0;
    for (int lane = 0; lane < Simd<T>::lanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    return Simd<T>::broadcast(largest);
  }

  // to = from, or to += from.
  template <int R, int C>
  static inline void move(V (&from)[R][C], V (&to)[R][C], bool first) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) {
        to[i][j] = first ? from[i][j] : to[i][j] + from[i][j];
        from[i][j] = V{};
      }
  }
  template <int R, int C>
  static inline void add(const V (&from)[R][C], V (&to)[R][C]) {
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) to[i][j] += from[i][j];
  }

  template <int R, int C, bool tangent, class Epilogue>
  inline void tile(const Pair<T>& left, const Pair<T>& right, int i0, int j0, const Epilogue& epilogue) const {
    const size_t row = size_t(i0) * row_vectors, row_length = size_t(row_vectors) * Simd<T>::lanes;
    V sum[R][C] = {};
    if constexpr (Epilogue::in_pieces) {
      V earlier[R][C];
      for (int factor = 0; factor <= tangent; ++factor) {
        const T* const l = reinterpret_cast<const T*>((factor ? left.h : left.x) + row);
        const V* const r = (factor ? right.x : right.template part<tangent>()) + j0;
        for (int k = 0; k < n; k += terms) {
          const int rest = n - k;
          accumulate<T>(sum, l + k, row_length, r + size_t(k) * row_vectors, row_vectors, rest < terms ? rest : terms);
          if (rest > terms) move<R, C>(sum, earlier, !factor && !k);
        }
      }
      if (n > terms) add<R, C>(earlier, sum);
    } else {
      const auto entries = [&](const V* of) { return reinterpret_cast<const T*>(of + row); };
      accumulate<T>(sum, entries(left.x), row_length, right.template part<tangent>() + j0, row_vectors, n);
      if constexpr (tangent) accumulate<T>(sum, entries(left.h), row_length, right.x + j0, row_vectors, n);
    }
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j)
        epilogue.template apply<tangent>(row + size_t(i) * row_vectors + j0 + j, sum[i][j]);
  }

  template <int columns, bool tangent, class Epilogue>
  inline void panel(const Pair<T>& left, const Pair<T>& right, int j0, const Epilogue& epilogue) const {
    constexpr int most_rows = kRowBlock[columns - 1], smallest = (columns - 1) * Simd<T>::lanes + 1;
    for_blocks(rows, most_rows, [&](int i0, int some) {
      with_size<most_rows, least_block(most_rows, (smallest + 1) / 2)>(
          some, [&](auto R) { tile<R(), columns, tangent>(left, right, i0, j0, epilogue); });
    });
  }

  template <bool tangent, class Epilogue>
  __attribute__((noinline)) void part(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    // Panels of two vectors, and one of three (or one) where their number is odd.
    const int used = (n + Simd<T>::lanes - 1) / Simd<T>::lanes;
    if (used == 1) {
      panel<1, tangent>(left, right, 0, epilogue);
    } else {
      if (used % 2) panel<3, tangent>(left, right, 0, epilogue);
      for (int j0 = used % 2 ? 3 : 0; j0 < used; j0 += 2) panel<2, tangent>(left, right, j0, epilogue);
    }
    if (rows < n) epilogue.template outputs<tangent>([&](V* x) { mirror(x); });
  }

  template <Parts parts, class Epilogue>
  inline void product(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    if constexpr (parts != Parts::tangent) part<false>(left, right, epilogue);
    if constexpr (parts != Parts::value) part<true>(left, right, epilogue);
  }

  inline void add_identity(V* x) const {
    T* entries = reinterpret_cast<T*>(x);
    const size_t row_length = size_t(row_vectors) * Simd<T>::lanes;
    for (int i = 0; i < n; ++i) entries[i * row_length + i] += T(1);
  }
};

}  // namespace MLAYER_NAMESPACE
