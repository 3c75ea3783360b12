// Compiled for the base instruction set of the machine: SSE2 on x86-64, NEON on ARM.
#define MLAYER_NAMESPACE mlayer_portable
#define MLAYER_VECTOR_BYTES 16
#if defined(__aarch64__)
#define MLAYER_VECTOR_REGISTERS 32
#else
#define MLAYER_VECTOR_REGISTERS 16
#endif
#define MLAYER_LANES_UP_TO_F32 12
#define MLAYER_LANES_UP_TO_F64 6
#include "isa.h"

extern const Isa mlayer_isa_portable;
const Isa mlayer_isa_portable = {"portable", mlayer_portable::engine<float>, mlayer_portable::engine<double>};
