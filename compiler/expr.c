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

enum { TEXT_MAX = 60, NAMED_MAX = 2000 };

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

/* An expression as it is written out: nodes below the top that have names are
 * called by them. */
typedef struct Expr {
    const Graph *g;
    const char *const *name;            /* per node, or NULL */
    Ref top;
    size_t most;                        /* characters */
    int depth_most;
    Buf b;
} Expr;

static void expr(Expr *e, Ref r, int outer, int depth)
{
    const Graph *g = e->g;
    const Node *n = &g->n[r];
    Buf *b = &e->b;
    int level = 0;
    const char *op = infix(n->op, &level);

    if (b->len > e->most)
        return;
    if (r != e->top && e->name && e->name[r]) {
        buf_printf(b, "%s", e->name[r]);
        return;
    }
    if (depth == e->depth_most) {
        buf_printf(b, "...");
        return;
    }
    if (op) {
        buf_printf(b, "%s", level < outer ? "(" : "");
        expr(e, n->a[0], level, depth + 1);
        buf_printf(b, "%s", op);
        expr(e, n->a[1], level + 1, depth + 1);
        buf_printf(b, "%s", level < outer ? ")" : "");
        return;
    }
    switch (n->op) {
    case OP_num: number_text(b, n->num); return;
    case OP_input: buf_printf(b, "%s", g->in[n->index].name); return;
    case OP_state: buf_printf(b, "%s", g->st[n->index].name); return;
    case OP_count: buf_printf(b, "%s", g->axis[lowest(n->over)].name); return;
    case OP_size: buf_printf(b, "#%s", g->axis[n->index].name); return;
    case OP_neg:
        buf_printf(b, "%s-", outer > 1 ? "(" : "");
        expr(e, n->a[0], 2, depth + 1);
        buf_printf(b, "%s", outer > 1 ? ")" : "");
        return;
    default: break;
    }
    buf_printf(b, "%s(", op_info[n->op].name);
    for (int i = 0; i < op_info[n->op].arity; i++) {
        if (e->name && !n->a[i])
            continue;
        buf_printf(b, "%s", i && b->s[b->len - 1] != '(' ? ", " : "");
        if (n->a[i])
            expr(e, n->a[i], 0, depth + 1);
    }
    if (e->name && n->flags & (STRICT | REVERSE))
        buf_printf(b, "%s%s", b->s[b->len - 1] == '(' ? "" : "; ",
                   n->flags & STRICT ? "strict" : "reverse");
    buf_printf(b, ")");
}

static char *cut(Expr *e)
{
    if (e->b.len > e->most) {
        e->b.len = e->most;
        buf_printf(&e->b, "...");
    }
    return e->b.s;
}

char *expr_text(const Graph *g, Ref r)
{
    Expr e = { .g = g, .most = TEXT_MAX, .depth_most = TEXT_MAX,
               .b = { .ctx = g->ctx } };

    expr(&e, r, 0, 0);
    return cut(&e);
}

char *expr_named(const Graph *g, Ref r, const char *const *name)
{
    Expr e = { .g = g, .name = name, .top = r, .most = NAMED_MAX,
               .depth_most = NAMED_MAX, .b = { .ctx = g->ctx } };

    expr(&e, r, 0, 0);
    return cut(&e);
}

char *line_text(const Graph *g, int line, const char *what)
{
    const Lines *l = &g->lines;

    if (line <= 0)
        return ctx_string(g->ctx, what);
    if (!l->file)
        return ctx_format(g->ctx, "line %d: %s", line, what);
    for (int i = 0; i < l->n; i++)
        if (l->at[i].line == line)
            return ctx_format(g->ctx, "%s:%d: %s\n  %d | %s", l->file, line,
                              what, line, l->at[i].text);
    return ctx_format(g->ctx, "%s:%d: %s", l->file, line, what);
}

void ensure_failed(const Graph *g, const char *what, int op, Ref a)
{
    fail_internal(g->ctx, g->line, "internal: %s%s%s: not so: %s",
                  op_info[op].name, a ? " of " : "",
                  a ? expr_text(g, a) : "", what);
}
