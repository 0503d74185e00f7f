/* ops.c -- the table of operations, and what element-wise ones make of numbers.
 */
#include "ir.h"

#include "elem.h"

const OpInfo op_info[NOPS] = {
#define ELEM(name, arity, traits, value, ga, gb, gc) \
    [OP_##name] = { #name, arity, (traits) | ELEMENTWISE, #value, \
                    { ga, gb, gc } },
#define OP(name, arity) [OP_##name] = { #name, arity, 0, 0, { 0, 0, 0 } },
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
