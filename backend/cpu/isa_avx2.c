/* isa_avx2.c -- the vector routines for AVX2 with FMA. */
#define ISA_NAME "avx2"
#define ISA_ENTRY isa_avx2
#define ISA_BYTES 32
#define ISA_ROWS 6
#define ISA_VECTORS 2
#define ISA_TARGET "avx2,fma"
#include "isa.inc"
