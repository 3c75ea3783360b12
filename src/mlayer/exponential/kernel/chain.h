// The chain of products: exp(sigma A) by one of the nested Taylor polynomials.
//
// docs/theory/expm.md derives the scheme. With A2 = A A,
//   degree 2:   A2 / 2 + A
//   degree 4:   Y + A2 / 2 + A                                   Y = A2 (four0 A2 + four1 A)
//   degree 8:   (Y + e2 A2 + e3 A) (Y + e4 A2) + e5 Y + A2 / 2 + A      Y = A2 (e0 A2 + e1 A)
//   degree 16:  W = (Y + c2 A2 + c3 A) (Y + c4 A2) + c5 Y + c6 A2       Y = A2 (c0 A2 + c1 A)
//               (W + c7 A2 + c8 A) (W + c9 Y + c10 A) + c11 W + c12 Y + c13 A2 + c14 A
// plus the identity, in 1, 2, 3 and 4 products. The scale sigma = 2^-s is folded into the
// coefficients, so A and A2 are not rewritten for it.
#pragma once
#include <limits>

#include "table.h"
#include "tiles.h"

namespace MLAYER_NAMESPACE {

// Up to this many squarings sigma^4 stays in the range of float and is folded into the coefficients.
constexpr int kFoldedSquarings = 8;

// Double precision, whose errors squarings multiply, where single precision has hardly any.
template <typename T>
constexpr bool has_doubled = sizeof(T) == 8;

template <typename T>
struct Buffers {
  Pair<T> a, a2, y, left, right, inner, keep;
  static constexpr int count = 7;

  // Carves the buffers, `vectors` vectors each, out of one allocation of count (or 2 count) times that.
  Buffers(typename Simd<T>::V* memory, size_t vectors, bool dual) {
    for (Pair<T>* buffer : {&a, &a2, &y, &left, &right, &inner, &keep}) {
      buffer->x = memory;
      memory += vectors;
      buffer->h = dual ? memory : nullptr;
      if (dual) memory += vectors;
    }
  }
};

// Epilogues: the use of each vector of a finished product, and the buffers written. Where a result replaces an operand
// of the linear combination it is stored in the same place: few cache lines are touched, on which the speed of small
// matrices in lanes depends. `in_pieces`: whether sums may be divided (`terms` of a layout), which squares need.

template <typename T>
struct Store {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = has_doubled<T>;
  Pair<T> out;
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = product;
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(out.template part<t>());
  }
};

// y <- product + y
template <typename T>
struct AddY {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
  Pair<T> y;
  template <bool t>
  inline void apply(size_t at, V product) const {
    y.template part<t>()[at] += product;
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(y.template part<t>());
  }
};

// y <- product + on_y y + on_a2 A2 + on_a A
template <typename T>
struct Finish {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
  Pair<T> a, a2, y;
  V on_y, on_a2, on_a;
  template <bool t>
  inline void apply(size_t at, V product) const {
    V& out = y.template part<t>()[at];
    out = product + on_y * out + on_a2 * a2.template part<t>()[at] + on_a * a.template part<t>()[at];
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(y.template part<t>());
  }
};

// Y is finished: store it and both factors of the next product.
template <typename T>
struct AfterY {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
  Pair<T> a, a2, y, left, right;
  V left_a2, left_a, right_a2;
  template <bool t>
  inline void apply(size_t at, V product) const {
    const V square = a2.template part<t>()[at];
    y.template part<t>()[at] = product;
    left.template part<t>()[at] = product + left_a2 * square + left_a * a.template part<t>()[at];
    right.template part<t>()[at] = product + right_a2 * square;
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(y.template part<t>()); mirror(left.template part<t>()); mirror(right.template part<t>());
  }
};

// W is finished (degree 16): the left factor of the last product takes the place of A2, what is added to it, but
// for A itself, that of Y.
template <typename T>
struct AfterW {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
  Pair<T> a, a2, y, right;
  V on_y, on_a2, left_a2, left_a, right_y, right_a, rest_w, rest_y, rest_a2;
  template <bool t>
  inline void apply(size_t at, V product) const {
    V &second = a2.template part<t>()[at], &fourth = y.template part<t>()[at];
    const V first = a.template part<t>()[at], w = product + on_y * fourth + on_a2 * second;
    const V rest = rest_w * w + rest_y * fourth + rest_a2 * second;
    right.template part<t>()[at] = w + right_y * fourth + right_a * first;
    second = w + left_a2 * second + left_a * first;
    fourth = rest;
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(a2.template part<t>()); mirror(y.template part<t>()); mirror(right.template part<t>());
  }
};

// y <- (product + y) + on_a A, the largest term last. A becomes the rounding error of that sum, if it is kept.
template <typename T, bool kept>
struct AddLinear {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
  Pair<T> a, y;
  V on_a;
  template <bool t>
  inline void apply(size_t at, V product) const {
    V &out = y.template part<t>()[at], &first = a.template part<t>()[at];
    const V rest = product + out;
    if constexpr (kept) {
      const V linear = on_a * first;
      out = two_sum(linear, rest, first);
    } else {
      out = rest + on_a * first;
    }
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(y.template part<t>());
    if constexpr (kept) mirror(a.template part<t>());
  }
};

// The first squarings are made without the identity: exp(2 B) - I = 2 Y + Y^2 with Y = exp(B) - I, which is small, and
// with the rounding error of Y, which every squaring would double. Double precision only; of small matrices the first
// one, from this many squarings on.
template <typename T>
constexpr int kDoubledFrom = has_doubled<T> ? 2 : std::numeric_limits<int>::max();
// Of matrices of this size up to three: their products have many terms, of which one would be of the identity's size.
constexpr int kLargeSums = 24;
template <typename T>
static inline int without_identity(int n, int squarings) {
  if (!has_doubled<T>) return 0;
  if (n < kLargeSums) return squarings >= kDoubledFrom<T>;
  return squarings < 3 ? squarings : 3;
}
// Terms that a product of such matrices sums one after the other: where they are alike, all roundings of a longer sum
// go in the same direction.
template <typename T>
static inline int terms_at_once(int n) {
  return has_doubled<T> && n >= kLargeSums ? 16 : n;
}

// out + error <- 2 (old + error) + product, in the lanes that are to be doubled, or what `otherwise` says. That is no
// lambda: its type, and with it each tile, would be another one in the derivative.
template <typename T, class Otherwise>
struct DoubleAndAdd {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = has_doubled<T>;
  Pair<T> out, old, error;
  Otherwise otherwise;  // (new value, product, old value)
  template <bool t>
  inline void apply(size_t at, V product) const {
    V lost;
    V &small = error.template part<t>()[at];
    const V before = old.template part<t>()[at], sum = two_sum(before + before, product, lost);
    lost += small + small;
    const V whole = sum + lost;
    small = (sum - whole) + lost;
    out.template part<t>()[at] = otherwise(whole, product, before);
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(out.template part<t>()); mirror(error.template part<t>());
  }
};

// x + error + 1, of a number or of the numbers in lanes.
template <class V>
static inline V plus_one(V x, V error, V one) {
  V lost;
  const V sum = two_sum(one, x, lost);
  return sum + (lost + error);
}

// out = on_a2 A2 + on_a A, one pass.
template <typename T, bool dual>
static inline void combine(size_t vectors, const Buffers<T>& b, typename Simd<T>::V on_a2, typename Simd<T>::V on_a,
                           const Pair<T>& out) {
  for (size_t at = 0; at < vectors; ++at) {
    out.x[at] = on_a2 * b.a2.x[at] + on_a * b.a.x[at];
    if constexpr (dual) out.h[at] = on_a2 * b.a2.h[at] + on_a * b.a.h[at];
  }
}

// Not 0 in each lane with an infinity or a NaN. Four sums, because one alone would wait for each addition.
template <typename T>
static inline typename Simd<T>::V not_finite(int rows, int columns, size_t stride, const typename Simd<T>::V* x) {
  typename Simd<T>::V sums[4] = {};
  int i = 0;
  for (; i + 4 <= rows; i += 4)
    for (int j = 0; j < columns; ++j)
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) sums[k] += x[(i + k) * stride + j] * T(0);
  for (; i < rows; ++i)
    for (int j = 0; j < columns; ++j) sums[0] += x[i * stride + j] * T(0);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// The degree-`degree` polynomial of sigma A, given A and A2, into b.y. Degree 16 overwrites A2.
// Of a derivative with no squaring to follow, `last`, only the tangent is computed. With `kept` degree 16 leaves out the
// identity and puts the rounding error of its last sum into A.
template <typename T, bool dual, class Layout>
static void polynomial(const Layout& layout, const mlayer_table& table, int degree, typename Simd<T>::V sigma,
                       const Buffers<T>& b, bool last, bool kept) {
  const auto sigma2 = sigma * sigma, one = Simd<T>::broadcast(1);
  const size_t vectors = layout.vectors();
  constexpr Parts all = all_parts<dual>;
  const auto inner = [&](const double* c) {
    combine<T, dual>(vectors, b, T(c[0]) * sigma2 * sigma2, T(c[1]) * sigma2 * sigma, b.inner);
  };
  if (degree == 2) {
    combine<T, dual>(vectors, b, T(0.5) * sigma2, sigma, b.y);
  } else if (degree == 4) {
    inner(table.four);
    combine<T, dual>(vectors, b, T(0.5) * sigma2, sigma, b.y);
    layout.template product<all>(b.a2, b.inner, AddY<T>{b.y});
  } else {
    const double* c = degree == 8 ? table.eight : table.sixteen;
    inner(c);
    layout.template product<all>(b.a2, b.inner, AfterY<T>{b.a, b.a2, b.y, b.left, b.right, T(c[2]) * sigma2, T(c[3]) * sigma,
                                            T(c[4]) * sigma2});
    if (degree == 8) {
      layout.template product<all>(b.left, b.right, Finish<T>{b.a, b.a2, b.y, T(c[5]) * one, T(0.5) * sigma2, sigma});
    } else {
      layout.template product<all>(b.left, b.right,
                     AfterW<T>{b.a, b.a2, b.y, b.inner, T(c[5]) * one, T(c[6]) * sigma2, T(c[7]) * sigma2,
                               T(c[8]) * sigma, T(c[9]) * one, T(c[10]) * sigma, T(c[11]) * one, T(c[12]) * one,
                               T(c[13]) * sigma2});
      const auto on_a = T(c[14]) * sigma;
      if (dual && last)
        return layout.template product<last_parts<dual>>(b.a2, b.inner, AddLinear<T, false>{b.a, b.y, on_a});
      if constexpr (has_doubled<T>)
        if (kept) return layout.template product<all>(b.a2, b.inner, AddLinear<T, true>{b.a, b.y, on_a});
      layout.template product<all>(b.a2, b.inner, AddLinear<T, false>{b.a, b.y, on_a});
    }
  }
  layout.add_identity(b.y.x);
}

}  // namespace MLAYER_NAMESPACE
