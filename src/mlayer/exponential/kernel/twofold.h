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
constexpr bool has_twofold = sizeof(T) == 8;
template <typename T>
static int from_squarings(int n) {
  return !has_twofold<T> ? std::numeric_limits<int>::max() : n <= 128 ? 4 : 6;
}

// Where products dominate the time, twice the precision is used only where it is needed.
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

// The number of squarings that may be ordinary ones, given ||B^4|| of the scaled matrix: those from a norm of 8 on, of
// larger matrices 4 or 2. Pade's approximant, which SciPy takes, is squared from 4 on. Of matrices far from normal
// ||B^2|| overestimates, ||B^4|| less so.
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

// Products in twice the precision, of one matrix in rows or of several in lanes.
template <typename T, class Layout>
struct TwofoldProducts {
  using V = typename Simd<T>::V;
  const Layout& layout;

  // Bits of a head, so that sums of `terms` products of heads fit into the significand.
  static int head_bits(int terms) {
    int log = 0;
    while ((1 << log) < terms) ++log;
    return (std::numeric_limits<T>::digits - log) / 2;
  }

  // Adding and subtracting this rounds numbers up to `largest` to multiples of 2^(e - bits), 2^e > largest. Near the
  // end of the range it is infinite, and the result NaN: wide_exponents.h computes such matrices again.
  static V rounder(V largest, int bits) {
    using I = typename Simd<T>::I;
    constexpr int mantissa = IntegerOf<T>::mantissa_bits, bias = IntegerOf<T>::bias;
    const I power = ((I)largest >> mantissa) + (1 - bias + mantissa - bits), most = I{} + bias;
    const V found = T(1.5) * Simd<T>::power_of_two(power < most ? power : most);
    return power > most ? Simd<T>::broadcast(std::numeric_limits<T>::infinity()) : found;
  }

  // sum + error -> head and tail; `whole` may be `sum`.
  void split(const V* sum, const V* error, int terms, const Twofold<T>& out) const {
    V most{};
    layout.each([&](size_t at) { most = Simd<T>::maximum(most, Simd<T>::absolute(sum[at])); });
    const V round = rounder(Layout::over_matrix(most), head_bits(terms));
    layout.each([&](size_t at) {
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
    static constexpr bool in_pieces = false;
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
    layout.each([&](size_t at) {
      V error;
      exact[at] = two_sum(exact[at], rest[at], error);
      rest[at] = error;
    });
  }

  void add_identity(V* sum, V* error) const {
    layout.each_diagonal(
        [](auto& entry, auto& small) {
          std::decay_t<decltype(entry)> lost, one{};
          one = two_sum(entry, one + T(1), lost);
          entry = two_sum(one, lost + small, lost);
          small = lost;
        },
        sum, error);
  }
};

// B^4 product + the four terms that Horner's rule adds, from B to B^4.
template <typename T>
struct NextTerms {
  using V = typename Simd<T>::V;
  static constexpr bool in_pieces = false;
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
// square of B and that of exp(B) - I, both less than 1, are ordinary products. `after(k, X)` is called after squaring k in
// twice the precision; b.left and b.right are not used by then.
template <typename T, bool dual, class Layout, class Ordinary, class After>
static Pair<T> twofold_squarings(const Layout& layout, int squarings, const Buffers<T>& b, bool plain_start,
                                 const Ordinary& ordinary, const After& after) {
  using V = typename Simd<T>::V;
  const auto& undivided = layout.undivided();  // its products are exact, or small
  const TwofoldProducts<T, Layout> twice{undivided};
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
  layout.each([&](size_t at) {
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
      layout.each([&](size_t at) { zero[at] = V{}; });
      twice.split(of(b.a), zero, terms, {of(b.left), of(b.right), of(b.a)});
    });
    twice.product(small, small, b.a2.x, b.y.x);
    if constexpr (dual) twice.commute(small, small_h, b.a2.h, b.y.h);
  }
  parts([&](auto of) {
    layout.each([&](size_t at) {
      V error;
      const V most = two_sum(of(b.a)[at], T(0.5) * of(b.a2)[at], error);
      of(b.keep)[at] = error + (plain_start ? of(b.inner)[at] : of(b.inner)[at] + T(0.5) * of(b.y)[at]);
      of(b.inner)[at] = most;
    });
    twice.add_up(of(b.inner), of(b.keep));
  });
  int done = 0;
  if (plain_start) {  // exp(2 B) - I = 2 Y + Y^2
    done = 1;
    layout.template product<all>(b.inner, b.inner, Store<T>{b.y});
    parts([&](auto of) {
      layout.each([&](size_t at) {
        V error;
        of(b.inner)[at] = two_sum(of(b.inner)[at] + of(b.inner)[at], of(b.y)[at], error);
        of(b.keep)[at] = error + (of(b.keep)[at] + of(b.keep)[at]);
      });
    });
  }
  twice.add_identity(b.inner.x, b.keep.x);

  const Twofold<T> x{b.a.x, b.a2.x, b.y.x}, h{b.a.h, b.a2.h, b.y.h};
  for (int k = done; k < squarings - last; ++k) {
    twice.split(b.inner.x, b.keep.x, terms, x);
    if constexpr (dual) twice.split(b.inner.h, b.keep.h, terms, h);
    if (!dual || k + 1 < squarings) {
      twice.product(x, x, b.inner.x, b.keep.x);
      twice.add_up(b.inner.x, b.keep.x);
    }
    if constexpr (dual) {
      twice.commute(x, h, b.inner.h, b.keep.h);
      twice.add_up(b.inner.h, b.keep.h);
    }
    after(k, b.inner);
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
