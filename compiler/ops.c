/* ops.c -- the table of operations, and what element-wise ones make of numbers.
 */
#include "ir.h"

#include "elem.h"

#define TEXT(value) TEXT_OF(value)
#define TEXT_OF(value) #value

const OpInfo op_info[NOPS] = {
#define ENTRY(value) value
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    [OP_##name] = { #name, arity, 0, (traits) | ELEMENTWISE, #value, \
                    { ga, gb, gc } },
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    [OP_##name] = { #name, arity, form, traits, TEXT(value), { 0, 0, 0 } },
#include "ops.def"
};

const char *const flag_name[NFLAGS] = { "strict", "exclusive", "reverse",
                                        "trans", "wrap", "later" };

double elem_value(int op, double a, double b, double c)
{
    switch (op) {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    case OP_##name: return value;
#include "ops.def"
    }
    return NAN;
}

double next_value(int op, double s, bool gated, double a, double b)
{
    switch (op) {
#define NEXT(value) value
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: return value;
#include "ops.def"
    }
    return NAN;
}

int moved_axis(const Node *n, int ax)
{
    if (!op_is(n->op, MOVES))
        return ax;
    switch (n->op) {
#define MOVED(axis) axis
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: return value;
#include "ops.def"
    }
    return ax;
}

int32_t node_extent(const Lengths *l, const Node *n, int ax)
{
    int moved = moved_axis(n, ax);

#define own l->own(l->ud, ax)
#define of(x, axis) l->of(l->ud, n->a[x], axis)
#define USUAL l->usual(l->ud, n, ax)
#define RENAMED (moved == ax ? USUAL : of(0, moved))
    switch (n->op) {
#define OP(name, arity, traits, form, axes, extent, kind, value, asks, back) \
    case OP_##name: return extent;
#include "ops.def"
    }
    return USUAL;
#undef own
#undef of
#undef USUAL
#undef RENAMED
}
