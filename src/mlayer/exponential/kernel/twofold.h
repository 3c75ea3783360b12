// Squarings in twice the precision, for matrices that lose digits to many of them; double precision only.
//
// A matrix is a head and a tail. Entries of the head are multiples of one power of two and so short that products of
// heads, summed in any order, are exact (K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numer. Algorithms 59, 2012): the
// ordinary product of tiles.h serves, three times. docs/theory/expm.md has the bounds.
#pragma once
#include <cmath>
#include <limits>
#include <utility>

#include "chain.h"

namespace MLAYER_NAMESPACE {

// Errors are smaller than those of ordinary squarings by at least this many bits, if all are in twice the precision.
constexpr int kTwofoldBits = 10;

// From this many ordinary squarings on a matrix gets twice the precision; single precision never does.
template <typename T>
static int from_squarings(int n) {
  return sizeof(T) == 4 ? std::numeric_limits<int>::max() : n <= 128 ? 4 : 6;
}

// Where products are all that counts twice the precision is used sparingly.
static inline bool sparing(int n, bool real_form) { return n > (real_form ? 16 : 40); }

// Squarings for a matrix with this ||A^2||: they bring ||B^2||^(1/2) of the scaled one to 1/2. Errors of the start,
// which has ordinary products too, are doubled by each. So if all squarings are in twice the precision, large
// matrices get up to four squarings more, and each makes those errors smaller by 4.
static inline int twofold_count(double norm2, bool sparingly) {
  int exponent;
  std::frexp(norm2, &exponent);  // norm2 < 2^exponent
  const int half = (exponent + 1) / 2;  // ||A^2||^(1/2) <= 2^half
  const int small = sparingly || half <= 6 ? 1 : half >= 16 ? 5 : 2 + (half - 7) / 3;
  return half + small > 0 ? half + small : 0;
}

// How many of the squarings may be ordinary ones, given ||B^4|| of the scaled matrix: those from a norm of 8 on, of
// larger matrices 4 or 2. Pade's approximant, which SciPy takes, is squared from 4 on. Of matrices far from normal
// ||B^2|| says too much, ||B^4|| less.
static inline int ordinary_count(int n, int squarings, double norm4) {
  if (norm4 == 0 || squarings == 0) return 0;
  int exponent;
  std::frexp(norm4, &exponent);  // norm4 < 2^exponent
  const int above = exponent > 0 ? (exponent + 3) / 4 : -(-exponent / 4);  // ||B^4||^(1/4) <= 2^above
  const int count = squarings + above - (n <= 64 ? 3 : n <= 96 ? 2 : 1);
  return count < 0 ? 0 : count < squarings ? count : squarings - 1;
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

  // exact + rest as a sum and its error in the same places.
  void add_up(V* exact, V* rest) const {
    each([&](size_t at) {
      V error;
      exact[at] = two_sum(exact[at], rest[at], error);
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

// B^4 product + the four terms that Horner's rule adds, from B to B^4.
template <typename T>
struct NextTerms {
  using V = typename Simd<T>::V;
  Pair<T> first, second, third, fourth, out;
  T on_first, on_second, on_third, on_fourth;
  template <bool t>
  inline V terms(size_t at) const {
    return on_first * first.template part<t>()[at] + on_second * second.template part<t>()[at] +
           on_third * third.template part<t>()[at] + on_fourth * fourth.template part<t>()[at];
  }
  template <bool t>
  inline void apply(size_t at, V product) const {
    out.template part<t>()[at] = product + terms<t>(at);
  }
  template <bool t, class Mirror>
  inline void outputs(const Mirror& mirror) const {
    mirror(out.template part<t>());
  }
};

// exp(2^s B) from B and B2 = B B in b.a and b.a2, and where it is. Of a derivative only the tangent is finished.
// `ordinary(B4)` says how many squarings, the last ones, may be made in the usual precision. With `plain_start` the
// square of B and that of exp(B) - I, both less than 1, are ordinary products.
template <typename T, bool dual, class Ordinary>
static Pair<T> twofold_squarings(const RowLayout<T>& layout, int used, int squarings, const Buffers<T>& b,
                                 bool plain_start, const Ordinary& ordinary) {
  using V = typename Simd<T>::V;
  const TwofoldRows<T> rows{layout, used};
  constexpr Parts all = all_parts<dual>;
  const int terms = dual ? 2 * layout.n : layout.n;
  const auto parts = [&](const auto& body) {
    body([](const Pair<T>& p) { return p.x; });
    if constexpr (dual) body([](const Pair<T>& p) { return p.h; });
  };

  // B^3 / 3! + ... + B^16 / 16!, small enough for ordinary products, in b.inner.
  const Pair<T>&cube = b.y, &fourth = b.left, &sum = b.right;
  layout.template product<all>(b.a2, b.a, Store<T>{cube});
  layout.template product<all>(b.a2, b.a2, Store<T>{fourth});
  const int last = ordinary(fourth.x);
  const auto next = [&](const Pair<T>& out, T c1, T c2, T c3, T c4) {
    return NextTerms<T>{b.a, b.a2, cube, fourth, out, c1, c2, c3, c4};
  };
  const auto begin = next(sum, 1.0 / 6227020800, 1.0 / 87178291200, 1.0 / 1307674368000, 1.0 / 20922789888000);
  rows.each([&](size_t at) {
    sum.x[at] = begin.template terms<false>(at);
    if constexpr (dual) sum.h[at] = begin.template terms<true>(at);
  });
  layout.template product<all>(fourth, sum, next(b.inner, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600));
  layout.template product<all>(fourth, b.inner, next(sum, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320));
  layout.template product<all>(fourth, sum, next(b.inner, 0, 0, 1.0 / 6, 1.0 / 24));

  // exp(B) - I: a sum in b.inner, its error in b.keep.
  if (!plain_start) {
    // B^2 in full: its products of heads in b.a2, the rest in b.y.
    const Twofold<T> small{b.left.x, b.right.x, b.a.x}, small_h{b.left.h, b.right.h, b.a.h};
    parts([&](auto of) {
      V* const zero = of(b.keep);
      rows.each([&](size_t at) { zero[at] = V{}; });
      rows.split(of(b.a), zero, terms, {of(b.left), of(b.right), of(b.a)});
    });
    rows.product(small, small, b.a2.x, b.y.x);
    if constexpr (dual) rows.commute(small, small_h, b.a2.h, b.y.h);
  }
  parts([&](auto of) {
    rows.each([&](size_t at) {
      V error;
      const V most = two_sum(of(b.a)[at], T(0.5) * of(b.a2)[at], error);
      of(b.keep)[at] = error + (plain_start ? of(b.inner)[at] : of(b.inner)[at] + T(0.5) * of(b.y)[at]);
      of(b.inner)[at] = most;
    });
    rows.add_up(of(b.inner), of(b.keep));
  });
  int done = 0;
  if (plain_start) {  // exp(2 B) - I = 2 Y + Y^2
    done = 1;
    layout.template product<all>(b.inner, b.inner, Store<T>{b.y});
    parts([&](auto of) {
      rows.each([&](size_t at) {
        V error;
        of(b.inner)[at] = two_sum(of(b.inner)[at] + of(b.inner)[at], of(b.y)[at], error);
        of(b.keep)[at] = error + (of(b.keep)[at] + of(b.keep)[at]);
      });
    });
  }
  rows.add_identity(b.inner.x, b.keep.x);

  const Twofold<T> x{b.a.x, b.a2.x, b.y.x}, h{b.a.h, b.a2.h, b.y.h};
  for (int k = done; k < squarings - last; ++k) {
    rows.split(b.inner.x, b.keep.x, terms, x);
    if constexpr (dual) rows.split(b.inner.h, b.keep.h, terms, h);
    if (!dual || k + 1 < squarings) {
      rows.product(x, x, b.inner.x, b.keep.x);
      rows.add_up(b.inner.x, b.keep.x);
    }
    if constexpr (dual) {
      rows.commute(x, h, b.inner.h, b.keep.h);
      rows.add_up(b.inner.h, b.keep.h);
    }
  }
  Pair<T> now = b.inner, other = b.left;
  for (int k = squarings - last; k < squarings; ++k) {
    if (dual && k + 1 == squarings)
      layout.template product<last_parts<dual>>(now, now, Store<T>{other});
    else
      layout.template product<all>(now, now, Store<T>{other});
    std::swap(now, other);
  }
  return now;
}

}  // namespace MLAYER_NAMESPACE
