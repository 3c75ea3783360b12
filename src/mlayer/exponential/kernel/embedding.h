// Complex matrices as real ones of twice the size: B + i C is [[B, -C], [C, B]].
//
// Sums and products of such forms are the forms of the sums and products, so the exponential and its
// derivative are too, and the form of the conjugate transpose is the transpose of the form.
#pragma once
#include "run.h"

// Of a, its direction and the result, `unit` matrices each; n is the size of the real form.
template <typename T>
static size_t embedding_bytes(int n, int64_t unit) {
  return 3 * size_t(unit) * n * n * sizeof(T);
}

template <typename T>
static void embed(const T* from, int64_t count, int n, T* to) {
  const int half = n / 2;
  for (int64_t m = 0; m < count; ++m, to += size_t(n) * n)
    for (int i = 0; i < half; ++i, from += n) {
      T *top = to + size_t(i) * n, *bottom = to + size_t(half + i) * n;
      for (int j = 0; j < half; ++j) {
        const T real = from[2 * j], imaginary = from[2 * j + 1];
        top[j] = bottom[half + j] = real;
        top[half + j] = -imaginary;
        bottom[j] = imaginary;
      }
    }
}

template <typename T>
static void extract(const T* from, int64_t count, int n, T* to) {
  const int half = n / 2;
  for (int64_t m = 0; m < count; ++m, from += size_t(n) * n)
    for (int i = 0; i < half; ++i, to += n) {
      const T *top = from + size_t(i) * n, *bottom = from + size_t(half + i) * n;
      for (int j = 0; j < half; ++j) to[2 * j] = top[j], to[2 * j + 1] = bottom[j];
    }
}

// Matrices first .. last - 1 of a job whose pointers are to complex numbers and whose n is that of the real form.
template <typename T>
static void embedded_range(const Engine<T>& engine, const Job<T>& job, int64_t first, int64_t last, int64_t unit,
                           void* scratch, T* forms) {
  const size_t entries = size_t(job.n) * job.n, complex_entries = entries / 2;  // in numbers of type T
  T *a = forms, *direction = a + unit * entries, *out = direction + unit * entries;
  for (int64_t at = first; at < last; at += unit) {
    const int64_t count = last - at < unit ? last - at : unit;
    if (unit == 1 && engine.complex_matrix(job, at, scratch)) continue;
    embed(job.a + at * complex_entries, count, job.n, a);
    if (job.direction) embed(job.direction + at * complex_entries, count, job.n, direction);
    const Job<T> real{a, job.direction ? direction : nullptr, out, count, job.n, job.transposed, job.table, true};
    engine.range(real, 0, count, scratch);
    extract(out, count, job.n, job.out + at * complex_entries);
  }
}
