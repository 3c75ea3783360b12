// Drives every entry point of the kernel over sizes, batches and special values, for the sanitizers.
// Reads the two tables (value, derivative) of each precision from standard input, as numbers.
// Buffers are allocated to the entry, so that any access beyond them is noticed.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "table.h"

extern "C" {
int mlayer_kernel_use_isa(const char* name);
int mlayer_expm_f32(const float*, const float*, float*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
int mlayer_expm_f64(const double*, const double*, double*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
int mlayer_expm_c64(const float*, const float*, float*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
int mlayer_expm_c128(const double*, const double*, double*, int64_t, int32_t, int32_t, const mlayer_table*, int32_t);
}

static int call(const float* a, const float* e, float* o, int64_t b, int n, int t, const mlayer_table* k, int threads) {
  return mlayer_expm_f32(a, e, o, b, n, t, k, threads);
}
static int call(const double* a, const double* e, double* o, int64_t b, int n, int t, const mlayer_table* k,
                int threads) {
  return mlayer_expm_f64(a, e, o, b, n, t, k, threads);
}

// Complex matrices: the same memory, read as half as many numbers.
static int call_complex(const float* a, const float* e, float* o, int64_t b, int n, int t, const mlayer_table* k,
                        int threads) {
  return mlayer_expm_c64(a, e, o, b, n, t, k, threads);
}
static int call_complex(const double* a, const double* e, double* o, int64_t b, int n, int t, const mlayer_table* k,
                        int threads) {
  return mlayer_expm_c128(a, e, o, b, n, t, k, threads);
}

template <typename T>
static long exercise(const mlayer_table* tables, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  long calls = 0;
  const T special[] = {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                       std::numeric_limits<T>::max(), std::numeric_limits<T>::denorm_min(), T(-0.0), T(1e30)};
  for (int n : {1, 2, 3, 4, 6, 9, 13, 15, 16, 17, 28, 29, 33, 48, 65})
    for (int64_t batch : {int64_t(0), int64_t(1), int64_t(3), int64_t(19)}) {
      if (n > 17 && batch > 3) continue;
      const size_t entries = size_t(batch) * n * n;
      std::unique_ptr<T[]> a(new T[entries]), e(new T[entries]), out(new T[entries]);
      for (size_t k = 0; k < entries; ++k) {
        const double scale = std::pow(10.0, double((k / (size_t(n) * n)) % 7) - 4) / std::sqrt(n);
        a[k] = T(normal(generator) * scale);
        e[k] = T(normal(generator));
      }
      for (int64_t m = 0; m < batch; ++m) {  // some strictly triangular, some poisoned
        T* matrix = a.get() + size_t(m) * n * n;
        if (m % 5 == 1)
          for (int i = 0; i < n; ++i)
            for (int j = 0; j <= i; ++j) matrix[i * n + j] = 0;
        // the careful path is slow: small matrices only
        if (m % 5 == 3 && n <= 9) matrix[(n * n - 1) / 2] = special[(m + n) % 6];
      }
      for (int derivative : {0, 1})
        for (int transposed : {0, 1})
          for (int threads : {1, 3}) {
            if (call(a.get(), derivative ? e.get() : nullptr, out.get(), batch, n, transposed, tables + derivative,
                     threads))
              std::exit(3);
            // Two real matrices make one complex matrix of the same size.
            if (n <= 33 && call_complex(a.get(), derivative ? e.get() : nullptr, out.get(), batch / 2, n, transposed,
                                        tables + derivative, threads))
              std::exit(3);
            ++calls;
          }
    }
  return calls;
}

static mlayer_table read_table() {
  mlayer_table table;
  double* at = reinterpret_cast<double*>(&table);
  for (size_t k = 0; k < sizeof(table) / sizeof(double); ++k)
    if (std::scanf("%lf", at + k) != 1) std::exit(2);
  return table;
}

int main() {
  const mlayer_table single[] = {read_table(), read_table()}, twice[] = {read_table(), read_table()};
  long calls = 0;
  for (const char* isa : {"portable", "avx2", "avx512"}) {
    if (mlayer_kernel_use_isa(isa)) continue;
    calls += exercise<float>(single, 1) + exercise<double>(twice, 2);
    std::vector<std::thread> threads;  // several callers at once
    for (unsigned t = 0; t < 3; ++t)
      threads.emplace_back([&, t] { exercise<float>(single, 10 + t); });
    for (std::thread& thread : threads) thread.join();
    std::printf("%s: done\n", isa);
  }
  std::printf("%ld calls, no complaint\n", calls);
}
