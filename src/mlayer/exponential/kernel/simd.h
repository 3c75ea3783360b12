// Vectors of the instruction set this translation unit is compiled for.
//
// GCC's and Clang's vector extensions give one source for AVX-512, AVX2, NEON and the rest:
// MLAYER_VECTOR_BYTES is set by the isa_*.cpp file that includes this file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace MLAYER_NAMESPACE {

// The sum of two vectors and its rounding error, without a product that could be fused into it.
template <class V>
static inline V two_sum(V a, V b, V& error) {
  const V sum = a + b, seen = sum - a;
  error = (a - (sum - seen)) + (b - seen);
  return sum;
}

template <typename T>
struct IntegerOf;
template <>
struct IntegerOf<float> {
  using type = int32_t;
  static constexpr int mantissa_bits = 23, bias = 127;
};
template <>
struct IntegerOf<double> {
  using type = int64_t;
  static constexpr int mantissa_bits = 52, bias = 1023;
};

template <typename T>
struct Simd {
  static constexpr int lanes = MLAYER_VECTOR_BYTES / sizeof(T);
  typedef T V __attribute__((vector_size(MLAYER_VECTOR_BYTES)));
  // The same bytes at any address, for loads from and stores to the user's tensors.
  typedef T Unaligned __attribute__((vector_size(MLAYER_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
  using Integer = typename IntegerOf<T>::type;
  typedef Integer I __attribute__((vector_size(MLAYER_VECTOR_BYTES)));

  // Not V{} + value, which would add 0 in every call: the compiler must keep the sign of -0.
  template <size_t... k>
  static inline V repeat(T value, std::index_sequence<k...>) {
    return V{((void)k, value)...};
  }
  static inline V broadcast(T value) { return repeat(value, std::make_index_sequence<lanes>()); }
  // Pins a loaded operand in a register. Left alone, GCC loads it again for each use, and the loads
  // rather than the multiplications then limit the speed.
  static inline void keep(V& v) {
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
  }
  static inline V absolute(V v) {
    const Integer mask = Integer(~(uint64_t(1) << (8 * sizeof(T) - 1)));
    return (V)((I)v & mask);
  }
  static inline V maximum(V a, V b) { return a > b ? a : b; }
  // 2^e for integers e in the normal range.
  static inline V power_of_two(I e) {
    return (V)((e + IntegerOf<T>::bias) << IntegerOf<T>::mantissa_bits);
  }
  // Smallest integer e with value <= 2^e, for positive normal values.
  static inline I ceil_log2(V value) {
    const I bits = (I)value;
    const I exponent = (bits >> IntegerOf<T>::mantissa_bits) - IntegerOf<T>::bias;
    const Integer fraction = (Integer(1) << IntegerOf<T>::mantissa_bits) - 1;
    // A true comparison is -1 in every lane.
    return exponent - ((bits & fraction) != 0);
  }

  // One step of the in-register transposition: exchange the off-diagonal blocks of size B.
  template <int B, size_t... k>
  static inline void exchange(V& a, V& b, std::index_sequence<k...>) {
    const V low = __builtin_shufflevector(a, b, ((k & B) ? int(k) - B + lanes : int(k))...);
    const V high = __builtin_shufflevector(a, b, ((k & B) ? int(k) + lanes : int(k) + B)...);
    a = low;
    b = high;
  }
  template <int B>
  static inline void transpose_step(V* rows) {
    if constexpr (B >= 1) {
#pragma GCC unroll 16
      for (int i = 0; i < lanes; ++i)
        if (!(i & B)) exchange<B>(rows[i], rows[i + B], std::make_index_sequence<lanes>());
      transpose_step<B / 2>(rows);
    }
  }
  // rows[i][j] becomes rows[j][i].
  static inline void transpose(V* rows) { transpose_step<lanes / 2>(rows); }
};

}  // namespace MLAYER_NAMESPACE
