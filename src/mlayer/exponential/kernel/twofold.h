// Squarings in twice the precision, for matrices that lose digits to many of them; double precision only.
//
// A matrix is a head and a tail. Entries of the head are multiples of one power of two and so short that products of
// heads, summed in any order, are exact (K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numer. Algorithms 59, 2012): the
// ordinary product of tiles.h serves, three times. docs/theory/expm.md has the bounds.
#pragma once
#include <cmath>
#include <limits>

#include "chain.h"

namespace MLAYER_NAMESPACE {

// The scaled matrix has ||B^2||^(1/2) <= 2^-kSmall; as many squarings work on exp(B) - I, which keeps its digits.
constexpr int kSmall = 5;
// Errors are smaller than those of ordinary squarings by at least this many bits.
constexpr int kTwofoldBits = 10;

// From this many ordinary squarings on a matrix gets twice the precision; single precision never does.
template <typename T>
static int from_squarings(int n) {
  return sizeof(T) == 4 ? std::numeric_limits<int>::max() : n <= 32 ? 4 : 6;
}

// Squarings for a matrix with this ||A^2||.
static inline int twofold_count(double norm2) {
  int exponent;
  std::frexp(norm2, &exponent);  // norm2 < 2^exponent
  const int count = (exponent + 1) / 2 + kSmall;
  return count > 0 ? count : 0;
}

// head + tail, and the same rounded once.
template <typename T>
struct Twofold {
  using V = typename Simd<T>::V;
  V *head, *tail, *whole;
};

// The sum of two vectors and its rounding error, without a product that could be fused into it.
template <class V>
static inline V two_sum(V a, V b, V& error) {
  const V sum = a + b, seen = sum - a;
  error = (a - (sum - seen)) + (b - seen);
  return sum;
}

template <typename T>
struct TwofoldRows {
  using V = typename Simd<T>::V;
  RowLayout<T> layout;
  int used;  // vectors of a row that hold entries

  // Calls body(place) for every vector.
  template <class Body>
  inline void each(const Body& body) const {
    for (int i = 0; i < layout.n; ++i)
      for (int j = 0; j < used; ++j) body(size_t(i) * layout.row_vectors + j);
  }

  // Bits of a head, so that sums of `terms` products of heads fit into the significand.
  static int head_bits(int terms) {
    int log = 0;
    while ((1 << log) < terms) ++log;
    return (std::numeric_limits<T>::digits - log) / 2;
  }

  // sum + error -> head and tail; `whole` may be `sum`.
  void split(const V* sum, const V* error, int terms, const Twofold<T>& out) const {
    V most{};
    each([&](size_t at) { most = Simd<T>::maximum(most, Simd<T>::absolute(sum[at])); });
    T largest = 0;
    for (int lane = 0; lane < Simd<T>::lanes; ++lane) largest = most[lane] > largest ? most[lane] : largest;
    // An infinite entry, after an overflow, has no exponent; wide_exponents.h computes such matrices again.
    const int exponent = largest > 0 && std::isfinite(largest) ? std::ilogb(largest) + 1 : 0;
    // Adding this rounds to multiples of 2^(exponent - bits).
    const V round = Simd<T>::broadcast(
        std::ldexp(T(1.5), std::numeric_limits<T>::digits - 1 + exponent - head_bits(terms)));
    each([&](size_t at) {
      const V head = (sum[at] + round) - round, tail = (sum[at] - head) + error[at];
      out.head[at] = head;
      out.tail[at] = tail;
      out.whole[at] = head + tail;
    });
  }

  // exact = left.head right.head (plus, for tangents, the same of `left2` and `right2`), rest = all other products.
  void product(const Twofold<T>& left, const Twofold<T>& right, V* exact, V* rest) const {
    layout.template part<false>({left.head, nullptr}, {right.head, nullptr}, Store<T>{{exact, nullptr}});
    layout.template part<true>({left.head, left.tail}, {right.whole, right.tail}, Store<T>{{nullptr, rest}});
  }
  struct Add {
    V* to;
    template <bool>
    inline void apply(size_t at, V product) const {
      to[at] += product;
    }
    template <bool, class Mirror>
    inline void outputs(const Mirror& mirror) const {
      mirror(to);
    }
  };
  // x h + h x
  void commute(const Twofold<T>& x, const Twofold<T>& h, V* exact, V* rest) const {
    layout.template part<true>({x.head, h.head}, {x.head, h.head}, Store<T>{{nullptr, exact}});
    layout.template part<true>({x.head, x.tail}, {h.whole, h.tail}, Store<T>{{nullptr, rest}});
    layout.template part<true>({h.head, h.tail}, {x.whole, x.tail}, Add{rest});
  }

  // exact + rest, plus twice `old` if there is one, as a sum and its error in the same places.
  void add_up(V* exact, V* rest, const Twofold<T>* old) const {
    each([&](size_t at) {
      V small = rest[at], error, sum = exact[at];
      if (old) {
        sum = two_sum(sum, old->head[at] + old->head[at], error);
        small += error + (old->tail[at] + old->tail[at]);
      }
      exact[at] = two_sum(sum, small, error);
      rest[at] = error;
    });
  }

  void add_identity(V* sum, V* error) const {
    const size_t step = size_t(layout.row_vectors) * Simd<T>::lanes + 1;
    T *entry = reinterpret_cast<T*>(sum), *small = reinterpret_cast<T*>(error);
    for (int i = 0; i < layout.n; ++i, entry += step, small += step) {
      T lost;
      const T one = two_sum(*entry, T(1), lost);
      *entry = two_sum(one, T(lost + *small), lost);
      *small = lost;
    }
  }
};

// exp(2^s B) from B and B2 = B B in b.a and b.a2, and where it is. Of a derivative only the tangent is finished.
template <typename T, bool dual>
static Pair<T> twofold_squarings(const RowLayout<T>& layout, int used, int squarings, const Buffers<T>& b) {
  using V = typename Simd<T>::V;
  const TwofoldRows<T> rows{layout, used};
  constexpr Parts all = all_parts<dual>;
  const int terms = dual ? 2 * layout.n : layout.n;
  const auto parts = [&](const auto& body) {
    body([](const Pair<T>& p) { return p.x; });
    if constexpr (dual) body([](const Pair<T>& p) { return p.h; });
  };

  // B^2 / 2 in full: its products of heads in b.inner, the rest in b.keep.
  const Twofold<T> small{b.left.x, b.right.x, b.y.x}, small_h{b.left.h, b.right.h, b.y.h};
  parts([&](auto of) {
    V* const zero = of(b.keep);
    rows.each([&](size_t at) { zero[at] = V{}; });
    rows.split(of(b.a), zero, terms, {of(b.left), of(b.right), of(b.y)});
  });
  rows.product(small, small, b.inner.x, b.keep.x);
  if constexpr (dual) rows.commute(small, small_h, b.inner.h, b.keep.h);

  // B^3 / 6 + ... + B^9 / 9!, small enough for ordinary products.
  const Pair<T>&cube = b.y, &first = b.left, &second = b.right;
  layout.template product<all>(b.a2, b.a, Store<T>{cube});
  parts([&](auto of) {
    rows.each([&](size_t at) {
      of(first)[at] = of(b.a)[at] * T(1.0 / 5040) + of(b.a2)[at] * T(1.0 / 40320) + of(cube)[at] * T(1.0 / 362880);
    });
  });
  layout.template product<all>(cube, first, Store<T>{second});
  parts([&](auto of) {
    rows.each([&](size_t at) {
      of(second)[at] += of(b.a)[at] * T(1.0 / 24) + of(b.a2)[at] * T(1.0 / 120) + of(cube)[at] * T(1.0 / 720);
    });
  });
  layout.template product<all>(cube, second, Store<T>{first});
  parts([&](auto of) {
    rows.each([&](size_t at) {
      V error;
      const V sum = two_sum(of(b.a)[at], T(0.5) * of(b.inner)[at], error);
      const V rest = T(0.5) * of(b.keep)[at] + (of(first)[at] + of(cube)[at] * T(1.0 / 6));
      of(b.inner)[at] = sum;
      of(b.keep)[at] = error + rest;
    });
    rows.add_up(of(b.inner), of(b.keep), nullptr);
  });

  const Twofold<T> x{b.a.x, b.a2.x, b.y.x}, h{b.a.h, b.a2.h, b.y.h};
  for (int k = 0; k < squarings; ++k) {
    if (k == kSmall) rows.add_identity(b.inner.x, b.keep.x);
    const Twofold<T>*old = k < kSmall ? &x : nullptr, *old_h = k < kSmall ? &h : nullptr;
    rows.split(b.inner.x, b.keep.x, terms, x);
    if constexpr (dual) rows.split(b.inner.h, b.keep.h, terms, h);
    if (!dual || k + 1 < squarings) {
      rows.product(x, x, b.inner.x, b.keep.x);
      rows.add_up(b.inner.x, b.keep.x, old);
    }
    if constexpr (dual) {
      rows.commute(x, h, b.inner.h, b.keep.h);
      rows.add_up(b.inner.h, b.keep.h, old_h);
    }
  }
  if (squarings <= kSmall) rows.add_identity(b.inner.x, b.keep.x);
  return b.inner;
}

}  // namespace MLAYER_NAMESPACE
