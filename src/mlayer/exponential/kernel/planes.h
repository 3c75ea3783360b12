// Complex matrices that are too large for lanes, one at a time: real and imaginary parts side by side in each row.
//
// Half the memory and half the linear combinations of the real form [[B, -C], [C, B]], and no rows to copy. All that
// is special, such as balancing, triangular matrices and overflow, is left to the real form.
#pragma once
#include "rows.h"

namespace MLAYER_NAMESPACE {

// A row is `full` vectors of real parts, as many of imaginary parts, and where at most half a vector of entries would
// remain, one vector that holds the last real parts in its lower and the last imaginary parts in its upper half.
template <typename T>
struct PlaneShape {
  static constexpr int lanes = Simd<T>::lanes, half = lanes / 2;
  int n, full, used, row_vectors;  // n: rows and columns of the complex matrix
  bool shared;
  explicit PlaneShape(int size) : n(size) {
    const int rest = n % lanes;
    shared = rest > 0 && rest <= half;
    full = n / lanes + (rest > half);
    used = 2 * full + shared;
    row_vectors = used >= 8 && used % 2 == 0 ? used + 1 : used;  // as in RowShape
  }
  int whole() const { return full * lanes < n ? full * lanes : n; }  // entries of a row in full vectors
  size_t row_length() const { return size_t(row_vectors) * lanes; }
  // Places of the parts of entry k in its row.
  int real(int k) const { return k < full * lanes ? k : k + full * lanes; }
  int imaginary(int k) const { return k < full * lanes ? k + full * lanes : k + full * lanes + half; }
  size_t vectors() const { return size_t(n) * row_vectors; }
};

template <typename T, size_t... k>
static inline typename Simd<T>::V swapped_halves(typename Simd<T>::V v, std::index_sequence<k...>) {
  return __builtin_shufflevector(v, v, ((int(k) + Simd<T>::lanes / 2) % Simd<T>::lanes)...);
}
template <typename T>
static inline typename Simd<T>::V swapped_halves(typename Simd<T>::V v) {
  return swapped_halves<T>(v, std::make_index_sequence<Simd<T>::lanes>());
}

template <typename T>
struct PlaneLayout {
  using V = typename Simd<T>::V;
  PlaneShape<T> shape;
  int n;      // of the real form: the number of terms of an entry of a product
  int terms;  // as in rows; an even number
  V turn{};   // -1 in the lower and 1 in the upper half: i (x + i y) = -y + i x, in a shared vector

  explicit PlaneLayout(const PlaneShape<T>& of) : shape(of), n(2 * of.n), terms(n) {
    for (int lane = 0; lane < Simd<T>::lanes; ++lane) turn[lane] = lane < shape.half ? T(-1) : T(1);
  }

  PlaneLayout undivided() const { return PlaneLayout(shape); }
  inline size_t vectors() const { return shape.vectors(); }
  template <class Body>
  inline void each(const Body& body) const {
    for (int i = 0; i < shape.n; ++i)
      for (int j = 0; j < shape.used; ++j) body(size_t(i) * shape.row_vectors + j);
  }
  template <class Body, class... Matrices>
  inline void each_diagonal(const Body& body, Matrices*... x) const {
    for (int i = 0; i < shape.n; ++i) body(reinterpret_cast<T*>(x)[i * shape.row_length() + shape.real(i)]...);
  }
  static inline V over_matrix(V most) { return RowLayout<T>::over_matrix(most); }
  inline void add_identity(V* x) const {
    each_diagonal([](T& entry) { entry += T(1); }, x);
  }

  // Products with `count` entries of R rows of the left factor, whose imaginary parts are `apart` numbers further.
  // Two vectors of the right factor are `columns` vectors apart, real and imaginary parts, or there is one, `mixed`.
  template <int R, bool mixed>
  inline __attribute__((always_inline)) void accumulate(V (&sum)[R][2 - mixed], const T* left, int apart, int count,
                                                        const V* right, int columns) const {
    const size_t step = shape.row_length();
    for (const T* const end = left + count; left != end; ++left, right += shape.row_vectors) {
      V first, second;
      Simd<T>::keep(first = right[0]);
      if constexpr (mixed)
        Simd<T>::keep(second = turn * swapped_halves<T>(first));
      else
        Simd<T>::keep(second = right[columns]);
#pragma GCC unroll 16
      for (int i = 0; i < R; ++i) {
        const V x = Simd<T>::broadcast(left[i * step]), y = Simd<T>::broadcast(left[i * step + apart]);
        sum[i][0] += x * first;
        if constexpr (mixed) {
          sum[i][0] += y * second;
        } else {
          sum[i][1] += x * second;
          sum[i][0] -= y * second;
          sum[i][1] += y * first;
        }
      }
    }
  }

  template <int R, bool mixed>
  inline __attribute__((always_inline)) void both(V (&sum)[R][2 - mixed], V (&earlier)[R][2 - mixed], bool first,
                                                  const V* left, const V* right, int i0, int j0) const {
    const T* const row = reinterpret_cast<const T*>(left) + i0 * shape.row_length();
    const int whole = shape.whole();
    for (int k = 0; k < whole; k += terms / 2) {
      const int rest = whole - k, count = rest < terms / 2 ? rest : terms / 2;
      accumulate<R, mixed>(sum, row + k, shape.full * shape.lanes, count, right + size_t(k) * shape.row_vectors + j0,
                           shape.full);
      if (terms < n) RowLayout<T>::move(sum, earlier, first && !k);
    }
    if (shape.shared)
      accumulate<R, mixed>(sum, row + shape.real(whole), shape.half, shape.n - whole,
                           right + size_t(whole) * shape.row_vectors + j0, shape.full);
  }

  // Apart from the epilogues, of which there are many: each tile is compiled once, not once for each of them.
  template <int R, bool mixed, bool tangent>
  __attribute__((noinline)) void tile(const Pair<T>& left, const Pair<T>& right, int i0, int j0,
                                      V (*to)[2 - mixed]) const {
    V sum[R][2 - mixed] = {}, earlier[R][2 - mixed];
    both<R, mixed>(sum, earlier, true, left.x, right.template part<tangent>(), i0, j0);
    if constexpr (tangent) both<R, mixed>(sum, earlier, false, left.h, right.x, i0, j0);
    if (terms < n) RowLayout<T>::add(earlier, sum);
#pragma GCC unroll 16
    for (int i = 0; i < R; ++i) {
      to[i][0] = sum[i][0];
      if constexpr (!mixed) to[i][1] = sum[i][1];
    }
  }

  template <bool mixed, bool tangent, class Epilogue>
  inline void panel(const Pair<T>& left, const Pair<T>& right, int j0, const Epilogue& epilogue) const {
    constexpr int most = kRowBlock[mixed ? 0 : 1], smallest = kLargestInLanes<T> / 2 + 1;
    for_blocks(shape.n, most, [&](int i0, int some) {
      V sum[most][2 - mixed];
      with_size<most, least_block(most, smallest)>(
          some, [&](auto R) { tile<R(), mixed, tangent>(left, right, i0, j0, sum); });
      for (int i = 0; i < some; ++i) {
        const size_t at = size_t(i0 + i) * shape.row_vectors + j0;
        epilogue.template apply<tangent>(at, sum[i][0]);
        if constexpr (!mixed) epilogue.template apply<tangent>(at + shape.full, sum[i][1]);
      }
    });
  }

  template <bool tangent, class Epilogue>
  __attribute__((noinline)) void part(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    for (int j0 = 0; j0 < shape.full; ++j0) panel<false, tangent>(left, right, j0, epilogue);
    if (shape.shared) panel<true, tangent>(left, right, 2 * shape.full, epilogue);
  }

  template <Parts parts, class Epilogue>
  inline void product(const Pair<T>& left, const Pair<T>& right, const Epilogue& epilogue) const {
    if constexpr (parts != Parts::tangent) part<false>(left, right, epilogue);
    if constexpr (parts != Parts::value) part<true>(left, right, epilogue);
  }
};

// From and to real and imaginary parts in turn; `adjoint` is the conjugate transpose.
template <typename T>
static void load_planes(const T* from, const PlaneShape<T>& shape, bool adjoint, typename Simd<T>::V* to) {
  T* const entries = reinterpret_cast<T*>(to);
  const int n = shape.n, whole = shape.whole();
  const size_t row_length = shape.row_length();
  if (whole < n || shape.full * shape.lanes != n)
    for (size_t at = 0; at < shape.vectors(); ++at) to[at] = typename Simd<T>::V{};
  for (int i = 0; i < n; ++i, from += 2 * n) {
    if (adjoint) {
      for (int k = 0; k < n; ++k) {
        T* const row = entries + k * row_length;
        row[shape.real(i)] = from[2 * k];
        row[shape.imaginary(i)] = -from[2 * k + 1];
      }
    } else {
      T *real = entries + i * row_length, *imaginary = real + shape.full * shape.lanes;
      for (int k = 0; k < whole; ++k) real[k] = from[2 * k], imaginary[k] = from[2 * k + 1];
      for (int k = whole; k < n; ++k) real[shape.real(k)] = from[2 * k], real[shape.imaginary(k)] = from[2 * k + 1];
    }
  }
}

template <typename T>
static void store_planes(const typename Simd<T>::V* from, const PlaneShape<T>& shape, T* to) {
  const int n = shape.n, whole = shape.whole();
  for (int i = 0; i < n; ++i, to += 2 * n) {
    const T *real = reinterpret_cast<const T*>(from) + i * shape.row_length();
    const T* const imaginary = real + shape.full * shape.lanes;
    for (int k = 0; k < whole; ++k) to[2 * k] = real[k], to[2 * k + 1] = imaginary[k];
    for (int k = whole; k < n; ++k) to[2 * k] = real[shape.real(k)], to[2 * k + 1] = real[shape.imaginary(k)];
  }
}

// The norms of the real form: both its columns of an entry have the same sum, and each square occurs twice.
template <typename T>
static RowNorms<T> plane_norms(const PlaneShape<T>& shape, const typename Simd<T>::V* a) {
  using V = typename Simd<T>::V;
  constexpr int most = kLargestBalanced / 2 / PlaneShape<T>::lanes + 1;
  V sums[most] = {}, squares{}, shared{};
  for (int i = 0; i < shape.n; ++i) {
    const V* const row = a + size_t(i) * shape.row_vectors;
    for (int j = 0; j < shape.full; ++j) {
      const V x = row[j], y = row[shape.full + j];
      sums[j] += Simd<T>::absolute(x) + Simd<T>::absolute(y);
      squares += x * x + y * y;
    }
    if (shape.shared) {
      const V z = row[2 * shape.full], size = Simd<T>::absolute(z);
      sums[shape.full] += size + swapped_halves<T>(size);
      shared += z * z;
    }
  }
  RowNorms<T> norms;
  V one{};
  for (int j = 0; j < shape.full + shape.shared; ++j) one = Simd<T>::maximum(sums[j], one);
  for (int lane = 0; lane < Simd<T>::lanes; ++lane) {
    norms.one = one[lane] > norms.one ? one[lane] : norms.one;
    norms.squares += 2 * (squares[lane] + shared[lane]);
  }
  if (norms.squares != norms.squares) norms.one = norms.squares;  // a NaN, which comparisons passed over
  return norms;
}

template <typename T>
static bool is_real(const PlaneShape<T>& shape, const T* a) {
  for (int i = 0; i < shape.n; ++i)
    for (int k = 0; k < shape.n; ++k)
      if (a[i * shape.row_length() + shape.imaginary(k)] != 0) return false;
  return true;
}

// Exponential or derivative of one complex matrix; the job is that of the real forms, but holds complex numbers. False
// if the real form is needed: where balancing, exact diagonals or care for the exponents come in.
template <typename T, bool dual>
static bool complex_matrix(const Job<T>& job, int64_t index, typename Simd<T>::V* memory) {
  using V = typename Simd<T>::V;
  const mlayer_table& table = *job.table;
  const PlaneShape<T> shape(job.n / 2);
  PlaneLayout<T> layout(shape);
  const Buffers<T> b(memory, shape.vectors(), dual);
  const size_t entries = size_t(job.n) * shape.n;
  load_planes<T>(job.a + index * entries, shape, job.transposed, b.a.x);
  if constexpr (dual) load_planes<T>(job.direction + index * entries, shape, false, b.a.h);
  const auto norm_of = [&](const V* x) {
    const RowNorms<T> norms = plane_norms<T>(shape, x);
    const T frobenius = std::sqrt(norms.squares);
    return frobenius <= norms.one ? frobenius : norms.one;
  };
  const T norm = plane_norms<T>(shape, b.a.x).one;
  if (!(norm <= T(table.largest_norm)) || job.n > kLargestBalanced) return false;
  const T* const a = reinterpret_cast<const T*>(b.a.x);
  const bool corner = a[shape.real(shape.n - 1)] == 0 || a[(shape.n - 1) * shape.row_length()] == 0;
  if (corner && is_real<T>(shape, a)) return false;  // its real form may be triangular

  if (norm > T(table.theta[3])) layout.terms = terms_at_once<T>(job.n);
  layout.template product<all_parts<dual>>(b.a, b.a, Store<T>{b.a2});
  const RowPlan plan = row_plan<T, dual>(table, norm, norm_of(b.a2.x), -1);
  if (!plan.squarings) layout.terms = job.n;
  const auto places = [&](int k) { return Places{shape.real(k), shape.imaginary(k)}; };
  if (plan.squarings >= kWorthALook<T> && imbalanced<T>(shape.n, shape.used, shape.row_vectors, b.a.x, places))
    return false;
  const bool twofold = plan.squarings >= from_squarings<T>(job.n);
  const int without = without_identity<T>(job.n, plan.squarings);
  const Pair<T> x = squared<T, dual>(layout, table, plan, twofold, sparing(job.n, true), without, b, norm_of,
                                     [](double, const Pair<T>&) {}).x;
  const V* const result = dual ? x.h : x.x;
  const V odd = not_finite<T>(shape.n, shape.used, shape.row_vectors, result);
  for (int lane = 0; lane < Simd<T>::lanes; ++lane)
    if (odd[lane] != 0) return false;
  store_planes<T>(result, shape, job.out + index * entries);
  return true;
}

}  // namespace MLAYER_NAMESPACE
