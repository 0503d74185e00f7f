/* source.h -- what kernels' texts are made of. */
#ifndef FLIN_CUDA_SOURCE_H
#define FLIN_CUDA_SOURCE_H

#include "../../compiler/plan.h"

void number_text(Buf *b, double x);
/* Of tensors' elements. */
const char *ctype_text(DType d);
/* The value column of op with operands a, b and c put in. */
void value_text(Buf *b, int op, const char *const operand[3]);
/* The same of an operation of entries: entry k, of the operand's entries that x
 * tells, of r that at index `at`. */
typedef const char *EntryAt(const void *ud, Ref r, const char *at);
char *entry_text(Ctx *c, const Node *n, const char *k, EntryAt *x,
                 const void *ud);

/* Indents by braces; a line that does not end a statement is continued. */
void source_indent(Buf *to, const char *s);

/* The same plan with the node numbers of its text, so that the source and
 * the dump of a plan speak of the same nodes. */
const Plan *plan_as_printed(Ctx *c, const Plan *p);

#endif
