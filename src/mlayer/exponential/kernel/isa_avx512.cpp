// Compiled with AVX-512 F, DQ, BW and VL.
#if defined(__x86_64__)
#define MLAYER_NAMESPACE mlayer_avx512
#define MLAYER_VECTOR_BYTES 64
#define MLAYER_VECTOR_REGISTERS 32
#define MLAYER_LANES_UP_TO_F32 31
#define MLAYER_LANES_UP_TO_F64 20
#include "isa.h"

extern const Isa mlayer_isa_avx512;
const Isa mlayer_isa_avx512 = {"avx512", mlayer_avx512::engine<float>, mlayer_avx512::engine<double>};
#endif
