// The rare cases, one matrix at a time: not-a-number, infinities, norms whose square overflows, and
// results that overflow. An entry of the result is infinite only where its true value is too large,
// and the others are right.
//
// Two tries. First in double precision with one running exponent for the whole matrix, which is good
// if the entries are not too far apart; a training run that diverges ends here, in acceptable time. Then
// with an exponent for every entry, some thirty times slower, where nothing can over- or underflow.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "run.h"

namespace MLAYER_NAMESPACE {

// Exponents stay far from overflow themselves; a value beyond is infinite or 0 in every dtype.
constexpr int64_t kFar = int64_t(1) << 50, kZero = -(int64_t(1) << 60);

// Entries fraction 2^exponent, with 1/2 <= |fraction| < 1, or 0 and kZero.
struct Wide {
  int n;
  std::vector<double> fraction;
  std::vector<int64_t> exponent;

  explicit Wide(int size) : n(size), fraction(size_t(size) * size, 0.0), exponent(size_t(size) * size, kZero) {}

  void set(size_t at, double value, int64_t power) {
    int shift = 0;
    fraction[at] = std::frexp(value, &shift);
    power += shift;
    exponent[at] = value == 0 ? kZero : power > kFar ? kFar : power < -kFar ? -kFar : power;
  }
  double get(size_t at, int64_t shift = 0) const {
    const int64_t power = exponent[at] + shift, most = 5000;  // beyond the range of double either way
    return std::ldexp(fraction[at], int(power > most ? most : power < -most ? -most : power));
  }
};

// out = sum over pairs of left right, times `scale`, plus the identity if wanted.
struct Factors {
  const Wide *left, *right;
};
static inline void wide_sum(std::initializer_list<Factors> pairs, double scale, bool identity, Wide& out) {
  const int n = out.n;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      int64_t top = identity && i == j ? 0 : kZero;
      for (const Factors& f : pairs)
        for (int k = 0; k < n; ++k) {
          const int64_t power = f.left->exponent[size_t(i) * n + k] + f.right->exponent[size_t(k) * n + j];
          top = power > top ? power : top;
        }
      double sum = 0;
      for (const Factors& f : pairs)
        for (int k = 0; k < n; ++k) {
          const size_t l = size_t(i) * n + k, r = size_t(k) * n + j;
          const int64_t below = f.left->exponent[l] + f.right->exponent[r] - top;
          if (below > -1000) sum += std::ldexp(f.left->fraction[l] * f.right->fraction[r], int(below));
        }
      sum *= scale;
      if (identity && i == j && top < 1000) sum += std::ldexp(1.0, int(-top));
      out.set(size_t(i) * n + j, sum, top);
    }
}

// Whether every entry is infinite or zero, as before the last squaring, so that it stays so.
static inline bool settled(const Wide& before, const Wide& after) {
  for (size_t k = 0; k < after.exponent.size(); ++k)
    if (after.exponent[k] != before.exponent[k] || (after.exponent[k] < kFar && after.exponent[k] > -kFar)) return false;
  return true;
}

// log2 of the largest absolute column sum, rounded up to within 1; very negative for the zero matrix.
static inline int64_t ceil_log2_norm(const Wide& m) {
  int64_t most = kZero;
  for (int j = 0; j < m.n; ++j) {
    int64_t top = kZero;
    for (int i = 0; i < m.n; ++i) {
      const int64_t power = m.exponent[size_t(i) * m.n + j];
      top = power > top ? power : top;
    }
    double sum = 0;
    for (int i = 0; i < m.n; ++i) sum += std::fabs(m.get(size_t(i) * m.n + j, -top));
    if (top > kZero) {
      const int64_t power = top + std::ilogb(sum) + 1;
      most = power > most ? power : most;
    }
  }
  return most;
}

// ---- One exponent for all entries. --------------------------------------------------------------

struct Scaled {
  std::vector<double> entries;
  int64_t exponent = 0;
};

static inline void multiply_add(int n, const std::vector<double>& left, const std::vector<double>& right,
                                std::vector<double>& out) {
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < n; ++k) {
      const double l = left[size_t(i) * n + k];
      for (int j = 0; j < n; ++j) out[size_t(i) * n + j] += l * right[size_t(k) * n + j];
    }
}

// Brings the largest entry to about 1. False if another is smaller by more than `apart`, so that its
// digits may be lost, or is 0, which may be a lost one.
static inline bool normalize(Scaled& m, double apart) {
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const double v : m.entries) {
    most = std::fabs(v) > most ? std::fabs(v) : most;
    least = std::fabs(v) < least ? std::fabs(v) : least;
  }
  if (!(most < std::numeric_limits<double>::infinity()) || !(least > most * apart)) return false;
  const int shift = std::ilogb(most);
  for (double& v : m.entries) v = std::ldexp(v, -shift);
  m.exponent += shift;
  if (m.exponent > kFar) m.exponent = kFar;
  return true;
}

// exp of a in out, or false. No derivative: its entries would need the same care.
template <typename T>
static bool with_one_exponent(int n, const T* a, bool transposed, T* out) {
  const size_t entries = size_t(n) * n;
  Scaled b{std::vector<double>(a, a + entries)};
  if (transposed)
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) std::swap(b.entries[size_t(i) * n + j], b.entries[size_t(j) * n + i]);
  double norm = 0;
  for (int j = 0; j < n; ++j) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += std::fabs(b.entries[size_t(i) * n + j]);
    norm = sum > norm ? sum : norm;
  }
  if (!(norm < 0x1p900)) return false;
  const int s = norm > 1 ? std::ilogb(norm) + 1 : 0;
  for (double& v : b.entries) v = std::ldexp(v, -s);
  Scaled x{std::vector<double>(entries, 0.0)};
  for (int i = 0; i < n; ++i) x.entries[size_t(i) * n + i] = 1;
  std::vector<double> next(entries);
  for (int k = 20; k >= 1; --k) {  // Horner: X <- I + B X / k
    std::fill(next.begin(), next.end(), 0.0);
    multiply_add(n, b.entries, x.entries, next);
    for (size_t m = 0; m < entries; ++m) x.entries[m] = next[m] / k;
    for (int i = 0; i < n; ++i) x.entries[size_t(i) * n + i] += 1;
  }
  for (int k = 0; k < s; ++k) {
    if (!normalize(x, 0x1p-400)) return false;
    std::fill(next.begin(), next.end(), 0.0);
    multiply_add(n, x.entries, x.entries, next);
    x.entries.swap(next);
    x.exponent = 2 * x.exponent;
    mlayer_careful_squarings.fetch_add(1, std::memory_order_relaxed);
    if (x.exponent >= kFar || x.exponent <= -kFar) break;  // all infinite or all zero for good
  }
  if (!normalize(x, 0x1p-20)) return false;
  const int64_t most = 5000, power = x.exponent > most ? most : x.exponent < -most ? -most : x.exponent;
  for (size_t m = 0; m < entries; ++m) out[m] = T(std::ldexp(x.entries[m], int(power)));
  return true;
}

template <typename T>
static void careful(const Job<T>& job, int64_t index) {
  constexpr int degree = 20;  // Taylor's polynomial: below rounding for ||A^2||^(1/2) <= 1
  const int n = job.n;
  const size_t entries = size_t(n) * n;
  const T* a = job.a + index * entries;
  const T* e = job.direction ? job.direction + index * entries : nullptr;
  T* out = job.out + index * entries;
  bool finite = true;
  for (size_t k = 0; k < entries; ++k) finite = finite && std::isfinite(a[k]) && (!e || std::isfinite(e[k]));
  if (!finite) {
    for (size_t k = 0; k < entries; ++k) out[k] = std::numeric_limits<T>::quiet_NaN();
    return;
  }

  if (!e && with_one_exponent(n, a, job.transposed, out)) return;

  Wide b(n), square(n), d(n);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      b.set(size_t(i) * n + j, a[job.transposed ? size_t(j) * n + i : size_t(i) * n + j], 0);
  wide_sum({{&b, &b}}, 1, false, square);
  // ||A^2|| <= 2^(2 s) decides as in the fast paths; in the derivative ||A|| does.
  const int64_t size = e ? 2 * ceil_log2_norm(b) : ceil_log2_norm(square), s = size > 0 ? (size + 1) / 2 : 0;
  for (size_t k = 0; k < entries; ++k) {
    b.set(k, b.fraction[k], b.exponent[k] - s);
    if (e) d.set(k, e[k], -s);
  }
  Wide x(n), h(n), next(n);
  for (int i = 0; i < n; ++i) x.set(size_t(i) * n + i, 1, 0);
  for (int k = degree; k >= 1; --k) {  // Horner: X <- I + B X / k
    if (e) {
      wide_sum({{&b, &h}, {&d, &x}}, 1.0 / k, false, next);
      std::swap(h, next);
    }
    wide_sum({{&b, &x}}, 1.0 / k, true, next);
    std::swap(x, next);
  }
  // A norm of 1e300 asks for a thousand squarings; about fifty settle every entry.
  for (int64_t k = 0; k < s; ++k) {
    bool same = true;
    if (e) {
      wide_sum({{&x, &h}, {&h, &x}}, 1, false, next);
      same = settled(h, next);
      std::swap(h, next);
    }
    wide_sum({{&x, &x}}, 1, false, next);
    same = same && settled(x, next);
    std::swap(x, next);
    mlayer_careful_squarings.fetch_add(1, std::memory_order_relaxed);
    if (same) break;
  }
  for (size_t k = 0; k < entries; ++k) out[k] = T((e ? h : x).get(k));
}

}  // namespace MLAYER_NAMESPACE
