// The chain of products: exp(sigma A) by one of the nested Taylor polynomials, then squarings.
//
// docs/theory/expm.md derives the scheme. With A2 = A A,
//   degree 2:   Z                                             Z = A + A2 / 2
//   degree 4:   Y + Z                                         Y = A2 (four0 A2 + four1 A)
//   degree 8:   (Y + e2 A2 + e3 A) (Y + e4 A2) + e5 Y + Z     Y = A2 (e0 A2 + e1 A)
//   degree 16:  as degree 8 up to its own coefficients, giving W, then
//               (W + c7 A2 + c8 A) (W + c9 Y + c10 A) + c11 W + c12 Y + c13 A2 + c14 A
// plus the identity, in 1, 2, 3 and 4 products. The scale sigma = 2^-s is folded into the
// coefficients, so A and A2 are never rewritten.
#pragma once
#include "table.h"
#include "tiles.h"

namespace MLAYER_NAMESPACE {

template <typename T>
struct Buffers {
  Pair<T> a, a2, y, left, right, rest, left2, right2, keep;
  static constexpr int count = 9;

  // Carves the buffers, `vectors` vectors each, out of one allocation of count (or 2 count) times that.
  Buffers(typename Simd<T>::V* memory, size_t vectors, bool dual) {
    for (Pair<T>* buffer : {&a, &a2, &y, &left, &right, &rest, &left2, &right2, &keep}) {
      buffer->x = memory;
      memory += vectors;
      buffer->h = dual ? memory : nullptr;
      if (dual) memory += vectors;
    }
  }
};

template <typename T>
struct Store {
  using V = typename Simd<T>::V;
  Pair<T> out;
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = product;
  }
};

template <typename T>
struct StoreSum {
  using V = typename Simd<T>::V;
  Pair<T> out, addend;
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = product + addend.template part<t>()[at];
  }
};

// Y is finished: store it, both factors of the next product and what is added to that.
template <typename T>
struct AfterY {
  using V = typename Simd<T>::V;
  Buffers<T> b;
  V left_a2, left_a, right_a2, rest_y, rest_a2, rest_a;
  template <bool t>
  inline void apply(size_t at, V y) const {
    const V a = b.a.template part<t>()[at], a2 = b.a2.template part<t>()[at];
    b.y.template part<t>()[at] = y;
    b.left.template part<t>()[at] = y + left_a2 * a2 + left_a * a;
    b.right.template part<t>()[at] = y + right_a2 * a2;
    b.rest.template part<t>()[at] = rest_y * y + rest_a2 * a2 + rest_a * a;
  }
};

// W is finished (degree 16): the same for the last product.
template <typename T>
struct AfterW {
  using V = typename Simd<T>::V;
  Buffers<T> b;
  V left_a2, left_a, right_y, right_a, rest_w, rest_y, rest_a2, rest_a;
  template <bool t>
  inline void apply(size_t at, V product) const {
    const V w = product + b.rest.template part<t>()[at];
    const V a = b.a.template part<t>()[at], a2 = b.a2.template part<t>()[at], y = b.y.template part<t>()[at];
    b.left2.template part<t>()[at] = w + left_a2 * a2 + left_a * a;
    b.right2.template part<t>()[at] = w + right_y * y + right_a * a;
    b.rest.template part<t>()[at] = rest_w * w + rest_y * y + rest_a2 * a2 + rest_a * a;
  }
};

// out = on_a2 A2 + on_a A, one pass.
template <typename T, bool dual>
static inline void combine(size_t vectors, const Buffers<T>& b, typename Simd<T>::V on_a2, typename Simd<T>::V on_a,
                           const Pair<T>& out) {
  for (size_t at = 0; at < vectors; ++at) {
    out.x[at] = on_a2 * b.a2.x[at] + on_a * b.a.x[at];
    if constexpr (dual) out.h[at] = on_a2 * b.a2.h[at] + on_a * b.a.h[at];
  }
}

// The degree-`degree` polynomial of sigma A; A and A2 are given and stay. Returns the buffer with the
// result; b.right is free afterwards.
template <typename T, bool dual, class Layout>
static Pair<T> polynomial(const Layout& layout, const mlayer_table& table, int degree, typename Simd<T>::V sigma,
                       const Buffers<T>& b) {
  const auto sigma2 = sigma * sigma;
  const auto one = Simd<T>::broadcast(1);
  const size_t vectors = layout.vectors();
  Pair<T> result = b.left;
  const Pair<T>& inner = b.left2;  // four0 A2 + four1 A and its kin; free again before left2 is filled
  if (degree == 2) {
    combine<T, dual>(vectors, b, T(0.5) * sigma2, sigma, result);
  } else if (degree == 4) {
    combine<T, dual>(vectors, b, T(table.four[0]) * sigma2 * sigma2, T(table.four[1]) * sigma2 * sigma, inner);
    combine<T, dual>(vectors, b, T(0.5) * sigma2, sigma, b.rest);
    layout.product(b.a2, inner, StoreSum<T>{result, b.rest});
  } else if (degree == 8) {
    const double* e = table.eight;
    combine<T, dual>(vectors, b, T(e[0]) * sigma2 * sigma2, T(e[1]) * sigma2 * sigma, inner);
    layout.product(b.a2, inner, AfterY<T>{b, T(e[2]) * sigma2, T(e[3]) * sigma, T(e[4]) * sigma2, T(e[5]) * one,
                                          T(0.5) * sigma2, sigma});
    result = b.right2;  // left is an operand here
    layout.product(b.left, b.right, StoreSum<T>{result, b.rest});
  } else {
    const double* c = table.sixteen;
    combine<T, dual>(vectors, b, T(c[0]) * sigma2 * sigma2, T(c[1]) * sigma2 * sigma, inner);
    layout.product(b.a2, inner, AfterY<T>{b, T(c[2]) * sigma2, T(c[3]) * sigma, T(c[4]) * sigma2, T(c[5]) * one,
                                          T(c[6]) * sigma2, T(0) * one});
    layout.product(b.left, b.right,
                   AfterW<T>{b, T(c[7]) * sigma2, T(c[8]) * sigma, T(c[9]) * one, T(c[10]) * sigma,
                             T(c[11]) * one, T(c[12]) * one, T(c[13]) * sigma2, T(c[14]) * sigma});
    layout.product(b.left2, b.right2, StoreSum<T>{result, b.rest});
  }
  layout.add_identity(result.x);
  return result;
}

}  // namespace MLAYER_NAMESPACE
