/* expr.c -- axes and expressions as the user would write them, for messages.
 */
#include "ir.h"

#include <stdio.h>
#include <string.h>

char *axes_text(const Graph *g, AxisSet s)
{
    Buf b = { .ctx = g->ctx };

    buf_put(&b, "", 0);
    for (int ax = 0; ax < NAXES; ax++)
        if (s & AXIS(ax))
            buf_printf(&b, "%s%s", b.len ? " " : "", g->axis[ax].name);
    return b.s;
}

enum { TEXT_MAX = 60 };

static const char *infix(int op, int *level)
{
    switch (op) {
    case OP_add: *level = 1; return " + ";
    case OP_sub: *level = 1; return " - ";
    case OP_mul: *level = 2; return "*";
    case OP_div: *level = 2; return "/";
    case OP_lt: *level = 0; return " < ";
    case OP_le: *level = 0; return " <= ";
    case OP_eq: *level = 0; return " == ";
    default: return NULL;
    }
}

/* Where a number would print with a comma in some locales, it does not. */
static void number_text(Buf *b, double x)
{
    char s[40];

    snprintf(s, sizeof s, "%.6g", x);
    for (char *p = s; *p; p++)
        if (*p == ',')
            *p = '.';
    buf_put(b, s, strlen(s));
}

static void expr(const Graph *g, Ref r, int outer, int depth, Buf *b)
{
    const Node *n = &g->n[r];
    int level = 0;
    const char *op = infix(n->op, &level);

    if (b->len > TEXT_MAX)
        return;
    if (depth == TEXT_MAX) {
        buf_printf(b, "...");
        return;
    }
    if (op) {
        buf_printf(b, "%s", level < outer ? "(" : "");
        expr(g, n->a[0], level, depth + 1, b);
        buf_printf(b, "%s", op);
        expr(g, n->a[1], level + 1, depth + 1, b);
        buf_printf(b, "%s", level < outer ? ")" : "");
        return;
    }
    switch (n->op) {
    case OP_num: number_text(b, n->num); return;
    case OP_input: buf_printf(b, "%s", g->in[n->index].name); return;
    case OP_state: buf_printf(b, "%s", g->st[n->index].name); return;
    case OP_size: buf_printf(b, "#%s", g->axis[n->index].name); return;
    case OP_neg:
        buf_printf(b, "%s-", outer > 1 ? "(" : "");
        expr(g, n->a[0], 2, depth + 1, b);
        buf_printf(b, "%s", outer > 1 ? ")" : "");
        return;
    default: break;
    }
    buf_printf(b, "%s(", op_info[n->op].name);
    for (int i = 0; i < op_info[n->op].arity; i++) {
        buf_printf(b, "%s", i ? ", " : "");
        if (n->a[i])
            expr(g, n->a[i], 0, depth + 1, b);
    }
    buf_printf(b, ")");
}

char *expr_text(const Graph *g, Ref r)
{
    Buf b = { .ctx = g->ctx };

    expr(g, r, 0, 0, &b);
    if (b.len > TEXT_MAX) {
        b.len = TEXT_MAX;
        buf_printf(&b, "...");
    }
    return b.s;
}
