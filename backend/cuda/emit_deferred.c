/* emit_deferred.c -- values a token that come from matrices: dots and sums row
 * by row, and what is worked out of those. The ahead warpgroup makes them, a
 * thread a token, once the running sums are there; the vector warp is past the
 * chunk by then.
 */
#include "ahead.h"

/* A dot of two matrices, or a sum of one, along the rows. */
static bool is_row_dot(const Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    bool dot = n->op == OP_dot || n->op == OP_sum;
    for (int i = 0; i < 2 && dot && n->a[i]; i++)
        dot = is_matrix(e, n->a[i]) && n->over != AXIS(e->row_axis)
           && !(n->over & (n->over - 1));
    return dot;
}

bool is_deferred(const Emit *e, Ref r)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    bool deferred = is_token(e, r) && is_row_dot(e, r);
    if (is_token(e, r) && op_info[n->op].traits & ELEMENTWISE)
        for (int i = 0; i < 3; i++)
            deferred |= n->a[i] && is_deferred(e, n->a[i]);
    return deferred;
}

bool has_deferred(const Emit *e, Ref r)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    bool deferred = is_deferred(e, r);
    if (!is_vector(e, r) && is_entrywise(n))
        for (int i = 0; i < 3; i++)
            deferred |= n->a[i] && has_deferred(e, n->a[i]);
    return deferred || (n->op == OP_rot90 && has_deferred(e, n->a[0]));
}

/* What the matrices are made of stays where it is until the dots are done. */
static void use_row_dot(Emit *e, Ref r)
{
    const Node *n = &e->g->n[r];
    uint32_t sources = 0;
    for (int i = 0; i < 2 && n->a[i]; i++) {
        if (has_deferred(e, n->a[i]))
            no_place(e, r, "a sum along a row of what is such a sum itself");
        sources |= sources_of(e, strip(e->g, n->a[i]));
    }
    for (int i = 0; i < e->ntiles; i++)
        e->tile[i].dotted |= sources >> i & 1;
}

void use_deferred(Emit *e, Ref r)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    if (is_row_dot(e, r)) {
        use_row_dot(e, r);
        return;
    }
    for (int i = 0; i < 3; i++)
        if (n->a[i] && e->g->n[n->a[i]].op != OP_num)
            publish_one(e, n->a[i], false);
}

/* ---- the dots ---- */

static void one_row_dot(Emit *e, Buf *b, const Published *p)
{
    const Node *n = &e->g->n[p->f[0].v];
    Ref x = strip(e->g, n->a[0]), y = n->a[1] ? strip(e->g, n->a[1]) : 0;
    Buf body = { .ctx = e->c }, none = body;
    Ahead a = { .e = e, .b = &body, .computed = true };
    ahead_visit(&a, x);
    if (y)
        ahead_visit(&a, y);
    ahead_elements(&a);
    for (int el = 0; el < 4; el++) {
        buf_printf(&body, "sum%d += v%u_%d", el >> 1, (unsigned)x, el);
        if (y)
            buf_printf(&body, " * v%u_%d", (unsigned)y, el);
        buf_printf(&body, ";\n");
    }
    buf_printf(b, "/* %%%u */\n{\nfloat sum0 = 0, sum1 = 0;\n",
               (unsigned)p->f[0].v);
    ahead_tiles(&a, b, tile_count(e, x), &none, &none);
    for (int i = 0; i < 2; i++)
        buf_printf(b, "store_row(vectors + AT_%s + 4 * i%d, sum%d, at);\n",
                   p->name, i, i);
    buf_printf(b, "}\n");
}

static bool is_sole_dot(const Emit *e, const Published *p)
{
    return p->deferred && p->n == 1 && !p->f[0].inverse && !p->log2
        && is_row_dot(e, p->f[0].v);
}

/* ---- what is worked out of them ---- */

static char *deferred_name(Emit *e, Ref r)
{
    Buf t = { .ctx = e->c };
    r = strip(e->g, r);
    if (e->g->n[r].op == OP_num)
        number_text(&t, e->g->n[r].num);
    else
        buf_printf(&t, "v%u", (unsigned)r);
    return t.s;
}

/* Names r's value, from what is published or, being deferred, from its
 * operands.
 */
static void deferred_value(Emit *e, Buf *b, Ref r, uint8_t *seen)
{
    r = strip(e->g, r);
    const Node *n = &e->g->n[r];
    if (seen[r] || n->op == OP_num)
        return;
    seen[r] = 1;
    if (!is_deferred(e, r) || is_row_dot(e, r)) {
        const Published *p = &e->pub[publish_one(e, r, false)];
        buf_printf(b, "const float v%u = load1(vectors + AT_%s%s);\n",
                   (unsigned)r, p->name, p->token ? " + 4 * i" : "");
        return;
    }
    const char *x[3] = { 0 };
    for (int i = 0; i < 3; i++)
        if (n->a[i]) {
            deferred_value(e, b, n->a[i], seen);
            x[i] = deferred_name(e, n->a[i]);
        }
    buf_printf(b, "const float v%u = ", (unsigned)r);
    value_text(b, n->op, x);
    buf_printf(b, ";\n");
}

static void deferred_product(Emit *e, Buf *b, const Published *p)
{
    buf_printf(b, "store1(vectors + AT_%s + 4 * i, 1.f", p->name);
    for (int i = 0; i < p->n; i++)
        buf_printf(b, " %s %s", p->f[i].inverse ? "/" : "*",
                   deferred_name(e, p->f[i].v));
    buf_printf(b, "%s);\n", p->log2 ? " * LOG2E" : "");
}

/* Publishing adds to what is published: the list may grow as it is read. */
void emit_deferred(Emit *e, Buf *dots, Buf *rest)
{
    uint8_t *seen = ctx_alloc(e->c, e->g->len);
    Buf values = { .ctx = e->c };
    for (int i = 0; i < e->npub; i++) {
        const Published *p = &e->pub[i];
        for (int k = 0; k < p->n && p->deferred && !is_sole_dot(e, p); k++)
            deferred_value(e, &values, p->f[k].v, seen);
        if (p->deferred && !is_sole_dot(e, p))
            deferred_product(e, &values, p);
    }
    for (int i = 0; i < e->npub; i++)
        if (is_sole_dot(e, &e->pub[i]))
            one_row_dot(e, dots, &e->pub[i]);
    if (values.len)
        buf_printf(rest, "if (at.thread < 64) {\nconst int i = at.thread;\n"
                   "%s}\n", values.s);
}
