/* isa_avx512.c -- the vector routines for AVX-512. */
#define ISA_NAME "avx512"
#define ISA_ENTRY isa_avx512
#define ISA_BYTES 64
#define ISA_ROWS 6
#define ISA_VECTORS 4
#define ISA_TARGET "avx512f,avx512dq,avx512bw,avx512vl,fma"
#include "isa.inc"
