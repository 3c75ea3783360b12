// From a matrix and its square to the exponential: scale, polynomial, squarings. One matrix at a time, in rows.h as in
// planes.h.
#pragma once
#include "twofold.h"

namespace MLAYER_NAMESPACE {

// Degree and squarings for A, from A and A2.
struct RowPlan {
  int degree, squarings;
  double norm2;  // ||A^2||
};

// `depth` is that of a strictly triangular matrix, -1 of any other.
template <typename T, bool dual>
static RowPlan row_plan(const mlayer_table& table, T norm, T norm2, int depth) {
  const auto within = [&](int k) {
    return norm2 <= T(table.theta[k] * table.theta[k]) || norm <= T(table.norm_theta[k]);
  };
  int degree = within(0) ? 2 : within(1) ? 4 : within(2) ? 8 : 16, squarings = 0;
  if (depth >= 0) degree = degree < exact_degree(depth, dual) ? degree : exact_degree(depth, dual);
  if (degree == 16 && !within(3)) {
    const T excess = norm2 * T(1 / (table.theta[3] * table.theta[3]));
    int exponent;
    const T fraction = std::frexp(excess, &exponent);  // excess = fraction 2^exponent, 1/2 <= fraction < 1
    if (fraction == T(0.5)) --exponent;
    squarings = exponent > 0 ? (exponent + 1) / 2 : 0;
  }
  return {degree, squarings, double(norm2)};
}

// For `DoubleAndAdd`: a matrix alone is doubled if it comes there.
template <typename T>
struct Whole {
  using V = typename Simd<T>::V;
  inline V operator()(V whole, V, V) const { return whole; }
};

template <typename T>
struct Squared {
  Pair<T> x;
  int squarings, ordinary;  // of these, in the usual precision
};

// Whether I + Y is less than half of Y, as in matrices that decay as a whole: then I + Y would lose digits that Y^2 has
// not.
template <typename T, class Layout>
static bool cancels(const Layout& layout, typename Simd<T>::V* y) {
  T trace = 0, ones = 0, square = 0;
  layout.each_diagonal([&](const T& entry) { trace += entry, ones += 1; }, y);
  if (2 * trace + ones >= 0) return false;
  typename Simd<T>::V squares{};
  layout.each([&](size_t at) { squares += y[at] * y[at]; });
  for (int lane = 0; lane < Simd<T>::lanes; ++lane) square += squares[lane];
  return square + 2 * trace + ones < square / 4;
}

// exp(A), or its derivative, from A and A2 in b.a and b.a2; at most `most_without` squarings are made without the
// identity. norm_of(X) is a norm of X; before(t, X) is called with
// exp(t A) before an ordinary squaring.
template <typename T, bool dual, class Layout, class Norm, class Before>
static Squared<T> squared(const Layout& layout, const mlayer_table& table, const RowPlan& plan, bool twofold,
                          bool sparingly, int most_without, const Buffers<T>& b, const Norm& norm_of,
                          const Before& before) {
  using V = typename Simd<T>::V;
  // In twice the precision the scaled matrix is smaller, and more squarings cost no digits.
  const int squarings = twofold ? twofold_count(plan.norm2, sparingly) : plan.squarings;
  V sigma = Simd<T>::broadcast(T(std::ldexp(1.0, -squarings)));
  if (twofold || squarings > kFoldedSquarings) {  // as in lanes.h
    for (size_t at = 0; at < layout.vectors(); ++at) {
      b.a.x[at] *= sigma;
      b.a2.x[at] *= sigma * sigma;
      if constexpr (dual) b.a.h[at] *= sigma, b.a2.h[at] *= sigma * sigma;
    }
    sigma = Simd<T>::broadcast(1);
  }
  if constexpr (has_twofold<T>)
    if (twofold) {
      int ordinary = 0;
      const auto count = [&](const V* fourth) {
        return ordinary = sparingly ? ordinary_count(layout.n, squarings, norm_of(fourth)) : 0;
      };
      // Far from normal, with ||B|| > 2, products of ordinary precision would lose too much at the start.
      const bool plain_start = sparingly && squarings && norm_of(b.a.x) <= 2;
      const Pair<T> x = twofold_squarings<T, dual>(layout, squarings, b, plain_start, count, [](int, const Pair<T>&) {});
      return {x, squarings, ordinary};
    }
  const int without = most_without < squarings ? most_without : squarings;
  polynomial<T, dual>(layout, table, plan.degree, sigma, b, squarings == 0, without > 0);
  Pair<T> x = b.y, other = b.left;
  int done = 0;
  if constexpr (has_doubled<T>)
    if (without) {
      while (done < without && !(done && cancels<T>(layout, x.x))) {
        const DoubleAndAdd<T, Whole<T>> next{other, x, b.a, {}};
        ++done;
        if (dual && done == squarings)
          layout.template product<last_parts<dual>>(x, x, next);
        else
          layout.template product<all_parts<dual>>(x, x, next);
        std::swap(x, other);
      }
      layout.each_diagonal([](T& sum, T& error) { sum = plus_one(sum, error, T(1)); }, x.x, b.a.x);
    }
  for (int k = done; k < squarings; ++k) {
    before(std::ldexp(1.0, k - squarings), x);
    if (dual && k == squarings - 1)
      layout.template product<last_parts<dual>>(x, x, Store<T>{other});
    else
      layout.template product<all_parts<dual>>(x, x, Store<T>{other});
    std::swap(x, other);
  }
  return {x, squarings, squarings};
}

}  // namespace MLAYER_NAMESPACE
