// The table that schedule.py passes to the kernel: the only source of thresholds and coefficients.
#pragma once
#include <cstdint>

// Bumped whenever an entry point or mlayer_table changes; native.py and node.py check it.
#define MLAYER_KERNEL_VERSION 4

extern "C" {

// Layout must match `KernelTable` in native.py.
typedef struct {
  double theta[4];       // largest ||A^2||^(1/2) at which degree 2, 4, 8, 16 meets the bound,
  double norm_theta[4];  // or else largest ||A||
  double four[2];    // A^2 (four[0] A^2 + four[1] A) is the degree-4 part
  double eight[6];   // coefficients of the degree-8 polynomial
  double sixteen[15];  // coefficients of the degree-16 polynomial
  double largest_norm;  // above this 1-norm A^2 may overflow: the careful path takes over
} mlayer_table;

}  // extern "C"
