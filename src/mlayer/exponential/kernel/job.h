// One call of the kernel: which matrices, what of them, and where the result goes.
#pragma once
#include "table.h"

template <typename T>
struct Job {
  const T* a;          // (batch, n, n), or its transpose
  const T* direction;  // (batch, n, n) for the derivative, else null
  T* out;              // (batch, n, n)
  int64_t batch;
  int n;
  bool transposed;  // a holds the transposes of the matrices that are meant
  const mlayer_table* table;
  bool real_form = false;  // the matrices are [[B, -C], [C, B]]: their lower halves follow from the upper ones
};
