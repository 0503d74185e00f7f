/* print_sums.c -- sums of what a program has in its loop: of rows, of columns,
 * of all.
 */
#include "print_parts.h"

/* Rows and columns that a sum leaves out: behind the sequence's end, or behind
 * the rows that there are. */
static const char *kept_text(Print *p, const KInst *k, const Node *n)
{
    AxisSet over = n->over;
    if (op_is(n->op, ONE_ROW))
        return n->flags & REVERSE ? "row == 0" : "row == x.n - 1";
    if (k->row >= AX_DIM)
        return k->nrow % TILE_ROWS && over & AXIS(k->row)
             ? ctx_format(p->c, "row < %d", (int)k->nrow) : NULL;
    bool rows = k->row == AX_I && (is_scores(k) ? over & AXIS(AX_I)
                                   : over & (AXIS(AX_I) | AXIS(AX_J)));
    bool cols = is_scores(k) && over & AXIS(AX_J);
    return rows && cols ? "row < x.n && col < x.n" : rows ? "row < x.n"
         : cols ? "col < x.n" : NULL;
}

/* Whether a vector is of sums of the space's rows, else of its columns. */
static bool sums_rows(const Print *p, const KInst *k, const KValue *v)
{
    return is_scores(k) ? p->s->g->n[v->node].axes & AXIS(AX_I)
                        : v->row == k->row;
}

void put_sum_node(Print *p, const KInst *k, const KValue *v)
{
    const Node *n = &p->s->g->n[v->node];
    const char *kept = kept_text(p, k, n);
    unsigned u = (unsigned)v->node;
    bool rows = v->layout == LAY_VECTOR && sums_rows(p, k, v);
    buf_printf(p->b, "s%u%s += ", u, v->layout == LAY_SCALAR ? ""
               : rows && k->nrow <= TILE_ROWS ? "[h]"
               : rows ? ctx_format(p->c, "[h + e / %d * 2]",
                                   map_share(p, k) / 2)
               : k->nrow <= TILE_ROWS ? "[e / 4 * 2 + e % 2]"
               : ctx_format(p->c, "[e %% %d / 4 * 2 + e %% 2]",
                            map_share(p, k) / 2));
    buf_printf(p->b, kept ? "%s ? %s : 0.f;\n" : "%s%s;\n", kept ? kept : "",
               element_of(p, k, v->node));
}

/* Whether v is a sum of that kind. */
static bool is_sum_of(const Print *p, const KInst *k, const KValue *v,
                      bool columns)
{
    bool vector = v->layout == LAY_VECTOR;
    return (vector || v->layout == LAY_SCALAR)
        && columns == (vector && !sums_rows(p, k, v));
}

void put_sums_begin(Print *p, const KInst *k, bool columns)
{
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        bool scalar = v->layout == LAY_SCALAR;
        if (!is_sum_of(p, k, v, columns))
            continue;
        bool rows = sums_rows(p, k, v);
        if (scalar)
            buf_printf(p->b, "float s%u = 0;\n", (unsigned)v->node);
        else
            buf_printf(p->b, "float s%u[%d] = { 0 };\n", (unsigned)v->node,
                       rows ? thread_rows(k) : map_share(p, k) / 4);
    }
}

void put_sums_end(Print *p, const KInst *k, bool columns)
{
    int share = map_share(p, k);
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = value_at(p, k->out[i]);
        unsigned u = (unsigned)v->node;
        bool rows = sums_rows(p, k, v);
        if (!is_sum_of(p, k, v, columns))
            continue;
        if (v->layout == LAY_SCALAR)
            buf_printf(p->b, "put_sum(%s, warp - %d, s%u, l);\n", place(p, v),
                       first_warp(p->s, (KRole)k->role), u);
        else if (rows)
            buf_printf(p->b, "put_row_sums<%d>(%s, group, s%u, l);\n",
                       (int)vector_size(v), place(p, v), u);
        else
            buf_printf(p->b, "put_column_sums(%s, %d, col0(%d), s%u, l);"
                       "\n", place(p, v), (int)vector_size(v), share, u);
    }
}

