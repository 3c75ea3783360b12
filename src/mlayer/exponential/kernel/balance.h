// Matrices that many squarings would spoil although a change of scale, or their shape, saves them.
//
// Balancing: with D a diagonal of powers of two, exp(A) = D exp(D^-1 A D) D^-1 and L(A, E) =
// D L(D^-1 A D, D^-1 E D) D^-1, both without rounding. Triangular matrices: their diagonal and the one
// above are known in closed form at every squaring. docs/theory/expm.md has both.
#pragma once
#include <cmath>
#include <limits>

#include "simd.h"

namespace MLAYER_NAMESPACE {

// Matrices with fewer squarings are not balanced: they have little to gain.
template <typename T>
constexpr int kWorthALook = sizeof(T) == 4 ? 2 : 4;
constexpr int kLargestBalanced = 256;
// Rows and columns further apart than this are worth balancing.
constexpr int kApart = 16;
// Triangular matrices with couplings up to this many times the diagonal gain more from twice the precision than from
// exact diagonals at every squaring.
constexpr int kWeak = 8;

template <typename T>
static inline T magnitude(T x) {
  return x < 0 ? -x : x;
}

// As std::fmax, whose loop over floats as doubles crashes g++ 12 for ARM.
static inline double larger(double most, double x) { return x > most ? x : most; }

// Where entry k of a row or column is, and, of a complex one, its imaginary part.
struct Places {
  int real, imaginary;
};

// Whether a row and its column differ much in their largest entries off the diagonal, of n rows with `used` vectors
// each. Maxima, not sums: lanes.h must decide the same way. Imaginary parts are off the diagonal of the real form.
template <typename T, class Where>
static bool imbalanced(int n, int used, size_t row_vectors, const typename Simd<T>::V* a, const Where& places) {
  using V = typename Simd<T>::V;
  constexpr int lanes = Simd<T>::lanes;
  V column[kLargestBalanced / lanes + 2] = {};
  T row[kLargestBalanced];
  for (int i = 0; i < n; ++i, a += row_vectors) {
    const int on = places(i).real;
    V most{};
    for (int j = 0; j < used; ++j) {
      V size = Simd<T>::absolute(a[j]);
      if (j == on / lanes) size[on % lanes] = 0;
      column[j] = Simd<T>::maximum(size, column[j]);
      most = Simd<T>::maximum(size, most);
    }
    row[i] = 0;
    for (int lane = 0; lane < lanes; ++lane) row[i] = most[lane] > row[i] ? most[lane] : row[i];
  }
  const T* const columns = reinterpret_cast<const T*>(column);
  for (int i = 0; i < n; ++i) {
    const Places at = places(i);
    const T most = columns[at.real] > columns[at.imaginary] ? columns[at.real] : columns[at.imaginary];
    if (row[i] > kApart * most || most > kApart * row[i]) return true;
  }
  return false;
}

// The same for the matrices of a block, each in its lane.
template <typename T>
static typename Simd<T>::I imbalanced_lanes(int n, const typename Simd<T>::V* a) {
  using V = typename Simd<T>::V;
  V column[kLargestBalanced] = {};
  V row[kLargestBalanced] = {};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j)
      if (i != j) {
        const V size = Simd<T>::absolute(a[i * n + j]);
        column[j] = Simd<T>::maximum(size, column[j]);
        row[i] = Simd<T>::maximum(size, row[i]);
      }
  typename Simd<T>::I found{};
  for (int i = 0; i < n; ++i) found |= (row[i] > T(kApart) * column[i]) | (column[i] > T(kApart) * row[i]);
  return found;
}

// Exponents of D: rows and columns of D^-1 A D have nearly equal sums, after B. N. Parlett and C. Reinsch (1969).
// An empty row or column counts as small compared with the diagonal, so that triangular matrices are balanced too.
// False where nothing is gained.
template <typename T>
static bool balance(int n, const T* a, size_t row_length, int* exponents) {
  constexpr int furthest = std::numeric_limits<T>::max_exponent / 4;
  double diagonal = 0, all = 0;
  for (int i = 0; i < n; ++i) {
    exponents[i] = 0;
    diagonal = larger(diagonal, std::fabs(double(a[i * row_length + i])));
    for (int j = 0; j < n; ++j) all = larger(all, std::fabs(double(a[i * row_length + j])));
  }
  const double floor = diagonal > 0 ? diagonal / 16 : all * 0x1p-20;
  bool changed = false;
  for (int sweep = 0, more = 1; more && sweep < 20; ++sweep) {
    more = 0;
    for (int i = 0; i < n; ++i) {
      double column = 0, row = 0;
      for (int j = 0; j < n; ++j)
        if (j != i) {
          column += std::fabs(std::ldexp(double(a[j * row_length + i]), exponents[i] - exponents[j]));
          row += std::fabs(std::ldexp(double(a[i * row_length + j]), exponents[j] - exponents[i]));
        }
      column = larger(column, floor), row = larger(row, floor);
      const int shift = int(std::lround(std::log2(row / column) / 2));
      const double after = std::ldexp(column, shift) + std::ldexp(row, -shift);
      if (!shift || !(after < 0.95 * (column + row)) || std::abs(exponents[i] + shift) > furthest) continue;
      exponents[i] += shift;
      changed = true, more = 1;
    }
  }
  return changed;
}

// to = D^-1 from D; false unless every entry is exact.
template <typename T>
static bool rescale(int n, const T* from, T* to, size_t row_length, const int* exponents) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      const T entry = from[i * row_length + j];
      const T scaled = std::ldexp(entry, exponents[j] - exponents[i]);
      if (std::ldexp(scaled, exponents[i] - exponents[j]) != entry) return false;
      to[i * row_length + j] = scaled;
    }
  return true;
}

// x = D x D^-1. True if that enlarges errors more than the squarings that were saved would have: errors
// of the size of the largest entry before, relative to the largest entry after.
template <typename T>
static bool harmed(int n, T* x, size_t row_length, const int* exponents, int saved) {
  double before = 0, after = 0;
  int least = exponents[0], most = exponents[0];
  for (int i = 0; i < n; ++i) {
    least = exponents[i] < least ? exponents[i] : least, most = exponents[i] > most ? exponents[i] : most;
    for (int j = 0; j < n; ++j) {
      T& entry = x[i * row_length + j];
      before = larger(before, std::fabs(double(entry)));
      entry = std::ldexp(entry, exponents[i] - exponents[j]);
      after = larger(after, std::fabs(double(entry)));
    }
  }
  return std::ldexp(before, most - least) > std::ldexp(after, saved);
}

// Whether a matrix is upper (or lower) triangular.
template <typename T>
static bool triangular(int n, const T* a, size_t row_length, bool upper) {
  for (int i = 0; i < n; ++i)
    for (int j = upper ? 0 : i + 1; j < (upper ? i : n); ++j)
      if (a[i * row_length + j] != 0) return false;
  return true;
}

// Whether the couplings of a triangular matrix are at most a few times its diagonal.
template <typename T>
static bool weakly_coupled(int n, const T* a, size_t row_length) {
  double diagonal = 0, beside[kLargestBalanced] = {}, most = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      const double size = std::fabs(double(a[i * row_length + j]));
      if (i == j)
        diagonal = larger(diagonal, size);
      else
        beside[j] += size;
    }
  for (int j = 0; j < n; ++j) most = larger(most, beside[j]);
  return most <= kWeak * diagonal;
}

// The diagonal of exp(t A) and the one next to it, for triangular A: exp(t a_ii), and t a_ij times the divided
// difference of exp at t a_ii and t a_jj, for j = i + 1 (upper) or i - 1 (lower). N. J. Higham and A. H. Al-Mohy
// (SIAM J. Matrix Anal. Appl. 31, 2009) put both into every square.
struct Diagonals {
  int n;
  bool upper;
  double diagonal[kLargestBalanced], beside[kLargestBalanced];

  template <typename T>
  Diagonals(int size, const T* a, size_t row_length, bool is_upper) : n(size), upper(is_upper) {
    for (int i = 0; i < n; ++i) diagonal[i] = a[i * row_length + i];
    for (int i = 0; i + 1 < n; ++i) beside[i] = upper ? a[i * row_length + i + 1] : a[(i + 1) * row_length + i];
  }
  template <typename T>
  void put(double t, T* x, size_t row_length) const {
    for (int i = 0; i < n; ++i) x[i * row_length + i] = T(std::exp(t * diagonal[i]));
    for (int i = 0; i + 1 < n; ++i) {
      const double first = t * diagonal[i], second = t * diagonal[i + 1];
      // From the larger of the two: the rounding error of the mean would be multiplied by its size.
      const double most = larger(first, second), gap = (first < second ? first : second) - most;
      const double difference = std::exp(most) * (gap == 0 ? 1.0 : std::expm1(gap) / gap);
      x[upper ? i * row_length + i + 1 : (i + 1) * row_length + i] = T(t * beside[i] * difference);
    }
  }
};

}  // namespace MLAYER_NAMESPACE
