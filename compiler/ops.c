/* ops.c -- the table of operations, and what element-wise ones make of numbers.
 */
#include "ir.h"

#include "elem.h"

const OpInfo op_info[NOPS] = {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    [OP_##name] = { #name, arity, (traits) | ELEMENTWISE, 0, #value, \
                    { ga, gb, gc } },
#define OP(name, arity, traits, form, axes, extent, asks, back) \
    [OP_##name] = { #name, arity, traits, form, 0, { 0, 0, 0 } },
#include "ops.def"
};

double elem_value(int op, double a, double b, double c)
{
    switch (op) {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    case OP_##name: return value;
#include "ops.def"
    }
    return NAN;
}

int32_t node_extent(const Lengths *l, const Node *n, int ax)
{
#define own l->own(l->ud, ax)
#define of(x, axis) l->of(l->ud, n->a[x], axis)
#define USUAL l->usual(l->ud, n, ax)
    switch (n->op) {
#define OP(name, arity, traits, form, axes, extent, asks, back) \
    case OP_##name: return extent;
#include "ops.def"
    }
    return USUAL;
#undef own
#undef of
#undef USUAL
}
