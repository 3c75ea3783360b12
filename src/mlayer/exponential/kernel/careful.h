// The rare cases, one matrix at a time, slowly: not-a-number, infinities, norms whose square
// overflows, and results that overflow. Always in double precision and with a running exponent,
// X = Y 2^p, so that an entry is infinite only where its true value is too large.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include "job.h"

namespace MLAYER_NAMESPACE {

using Doubles = std::vector<double>;

static inline void multiply_add(int n, const Doubles& left, const Doubles& right, Doubles& out) {
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < n; ++k) {
      const double l = left[size_t(i) * n + k];
      if (l == 0) continue;
      for (int j = 0; j < n; ++j) out[size_t(i) * n + j] += l * right[size_t(k) * n + j];
    }
}

// A matrix with its own power of two, and its tangent with another.
struct Scaled {
  Doubles x, h;
  int64_t x_exponent = 0, h_exponent = 0;
};

static inline double largest_entry(const Doubles& m) {
  double most = 0;
  for (const double v : m) most = std::fabs(v) > most ? std::fabs(v) : most;
  return most;
}

// Brings the largest entry to at most 1 and moves the rest into the exponent; small entries keep
// all of the range of double below that.
static inline void normalise(Doubles& m, int64_t& exponent) {
  const double most = largest_entry(m);
  if (most == 0) return;
  const int shift = std::ilogb(most);
  for (double& v : m) v = std::ldexp(v, -shift);
  exponent += shift;
}

static inline double one_norm_dense(int n, const Doubles& m) {
  double most = 0;
  for (int j = 0; j < n; ++j) {
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += std::fabs(m[size_t(i) * n + j]);
    most = sum > most ? sum : most;
  }
  return most;
}

static inline double shift_by(double value, int64_t exponent) {
  const int64_t bound = 5000;  // beyond the range of double either way
  return std::ldexp(value, int(exponent > bound ? bound : exponent < -bound ? -bound : exponent));
}

template <typename T>
static void careful(const Job<T>& job, int64_t index) {
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

  // A = B 2^p with entries of B at most 2, E = D 2^q likewise.
  Doubles b(entries), d(e ? entries : 0);
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      b[size_t(i) * n + j] = a[job.transposed ? size_t(j) * n + i : size_t(i) * n + j];
      if (e) d[size_t(i) * n + j] = e[size_t(i) * n + j];
    }
  int64_t p = 0, q = 0;
  normalise(b, p);
  if (e) normalise(d, q);
  // ||A^2||^(1/2) decides, as in the fast paths; B^2 could underflow where A^2 does not, hence the
  // floor: entries of A far below 2^-500 of the largest do not count.
  Doubles square(entries, 0.0);
  multiply_add(n, b, b, square);
  double spread = std::sqrt(one_norm_dense(n, square));
  if (p > 500) {
    const double floor = std::ldexp(1.0, -500);
    spread = spread > floor ? spread : floor;
  }
  // A degree-24 Taylor polynomial in Horner form: below rounding for ||A^2||^(1/2) <= 1.
  int64_t s = spread > 0 ? p + std::ilogb(spread) + 1 : 0;
  if (s < 0) s = 0;
  for (double& v : b) v = shift_by(v, p - s);
  // sigma E = D 2^(q - s): its exponent is kept apart.
  Scaled sum{Doubles(entries, 0.0), Doubles(e ? entries : 0, 0.0), 0, q - s};
  for (int i = 0; i < n; ++i) sum.x[size_t(i) * n + i] = 1;
  Doubles next_x(entries), next_h(e ? entries : 0);
  for (int k = 24; k >= 1; --k) {
    // sum <- I + B sum / k
    std::fill(next_x.begin(), next_x.end(), 0.0);
    multiply_add(n, b, sum.x, next_x);
    if (e) {
      std::fill(next_h.begin(), next_h.end(), 0.0);
      multiply_add(n, b, sum.h, next_h);
      multiply_add(n, d, sum.x, next_h);
      for (size_t m = 0; m < entries; ++m) sum.h[m] = next_h[m] / k;
    }
    for (size_t m = 0; m < entries; ++m) sum.x[m] = next_x[m] / k;
    for (int i = 0; i < n; ++i) sum.x[size_t(i) * n + i] += 1;
  }
  for (int64_t k = 0; k < s; ++k) {
    if (e) {
      std::fill(next_h.begin(), next_h.end(), 0.0);
      multiply_add(n, sum.x, sum.h, next_h);
      multiply_add(n, sum.h, sum.x, next_h);
      sum.h.swap(next_h);
      sum.h_exponent += sum.x_exponent;
      normalise(sum.h, sum.h_exponent);
    }
    std::fill(next_x.begin(), next_x.end(), 0.0);
    multiply_add(n, sum.x, sum.x, next_x);
    sum.x.swap(next_x);
    sum.x_exponent *= 2;
    if (largest_entry(sum.x) > 0x1p400) normalise(sum.x, sum.x_exponent);
    const int64_t far = int64_t(1) << 60;
    sum.x_exponent = sum.x_exponent > far ? far : sum.x_exponent < -far ? -far : sum.x_exponent;
    sum.h_exponent = sum.h_exponent > far ? far : sum.h_exponent < -far ? -far : sum.h_exponent;
  }
  for (size_t k = 0; k < entries; ++k)
    out[k] = e ? T(shift_by(sum.h[k], sum.h_exponent)) : T(shift_by(sum.x[k], sum.x_exponent));
}

}  // namespace MLAYER_NAMESPACE
