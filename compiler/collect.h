/* collect.h -- sums whose terms share a factor. */
#ifndef FLIN_COLLECT_H
#define FLIN_COLLECT_H

#include "ir.h"

/* a + b. Of matrices of tokens, products of the two that have a matrix in
 * common become one: what multiplies it is added first. Nodes below `from` are
 * not looked into. */
Ref add_collected(Graph *g, Ref from, Ref a, Ref b);

/* The sum of x over the axes; over tokens, of a product with a sum of matrices,
 * term by term: each is added up where it is made. */
Ref sum_of_terms(Graph *g, Ref x, AxisSet over);

/* x with tokens as rows, or columns: op is row or col. */
Ref view_of(Graph *g, int op, Ref x);

#endif
