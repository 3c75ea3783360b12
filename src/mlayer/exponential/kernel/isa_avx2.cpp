// Compiled with AVX2 and FMA.
#if defined(__x86_64__)
#define MLAYER_NAMESPACE mlayer_avx2
#define MLAYER_VECTOR_BYTES 32
#define MLAYER_VECTOR_REGISTERS 16
#define MLAYER_LANES_UP_TO_F32 23
#define MLAYER_LANES_UP_TO_F64 16
#include "isa.h"

extern const Isa mlayer_isa_avx2;
const Isa mlayer_isa_avx2 = {"avx2", mlayer_avx2::engine<float>, mlayer_avx2::engine<double>};
#endif
