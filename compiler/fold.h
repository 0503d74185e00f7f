/* fold.h -- the rules that making a node applies. */
#ifndef FLIN_FOLD_H
#define FLIN_FOLD_H

#include "ir.h"

/* Builds the gradient of operand i of element-wise node r, of which d comes in
 * (ops.def). */
Ref fold_gradient(Graph *g, Ref r, int i, Ref d);

/* Both sides of rule i for numbers x y z c d (so that a test can compare
 * them); false when there are no more. */
bool fold_rule_values(int i, const double v[5], double side[2]);

/* The first rule that does not shrink, or -1. */
int fold_bad_rule(void);

#endif
