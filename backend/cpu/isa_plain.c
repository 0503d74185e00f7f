/* isa_plain.c -- the vector routines for any machine. */
#define ISA_NAME "plain"
#define ISA_ENTRY isa_plain
#define ISA_BYTES 16
#define ISA_ROWS 4
#define ISA_VECTORS 2
#include "isa.inc"
