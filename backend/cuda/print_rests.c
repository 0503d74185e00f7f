/* print_rests.c -- rests of tiles (compiler/schedule/rests.c): rests.cuh's, in
 * the text of a sequence's first chunk, or where that is asked.
 */
#include "print_parts.h"

/* In this iteration. */
static const char *rest_place(Print *p, const KValue *v)
{
    const char *at = ctx_format(p->c, "%d + it %% %d * %d",
                                (int)(v->rest + (p->s->paired
                                                 ? rests_place(p->s) : 0)),
                                (int)rest_slots(p->s, v), (int)rest_bytes(v));
    return v->rest == NOTHING ? "0u"
         : p->s->paired ? ctx_format(p->c, "base + %s", at)
         : ctx_format(p->c, "rests_of(a.run, %d, %s)", (int)p->s->rests, at);
}

/* What it needs is worked out there: registers are for all chunks. */
static const char *lane_begin(Print *p)
{
    return ctx_format(p->c, "{\nconst Lane l = %s;\n", lane_text(p, true));
}

/* A kernel over all chunks has one text for them. */
static const char *of_first(const Print *p)
{
    return p->s->kind == K_TOKEN ? "x.row == x.where.start && " : "";
}

const char *rest_text(Print *p, const KInst *k, const KValue *v)
{
    int share = map_share(p, k);
    return v->rest == NOTHING || !p->first ? ""
         : ctx_format(p->c, "%sif (%sl.warp == 0)\nleave_rest<%d>(%s, p,"
                      " %s, x.n, col0(%d), l);\n}\n", lane_begin(p),
                      of_first(p), share / 16,
                      rest_place(p, v), fragment_name(p, v->node), share);
}

int put_given_rest(Print *p, const KValue *v, const char *full)
{
    int half = (int)rest_bytes(v) / 2;
    if (v->rest == NOTHING || !p->first)
        return 0;
    buf_printf(p->b, "const u32 rest = %s + %s * %d;\ngive(rest, rest, %d, %s);"
               "\n", rest_place(p, v), half_text(p), half, half, full);
    return half;
}

/* The warp that has the first rows, and columns, of scores. */
static void put_branch(Print *p, int share)
{
    buf_printf(p->b, "%sif (%sl.warp == 0 && col0(%d) == 0) {\n",
               lane_begin(p), of_first(p), share);
}

/* Lanes read what the copy engine may write next. */
static void put_product_rests(Print *p, const KInst *k)
{
    const KValue *a = value_at(p, k->in[0]), *b = value_at(p, k->in[1]);
    const KValue *d = value_at(p, k->out[0]);
    put_branch(p, share_of(p->s, k->role, k->ncol));
    buf_printf(p->b, "add_rests<%d, %d, %d>(%s, %s, %s, %s, %s, l);\n"
               "fence_async();\n}\n}\n", (int)a->ncol, a->rest != NOTHING,
               b->rest != NOTHING, fragment_name(p, d->node), place(p, a),
               place(p, b), rest_place(p, a), rest_place(p, b));
}

void put_rests_of_ended(Print *p, const KInst *settle)
{
    const Schedule *s = p->s;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (!p->first || k->role != settle->role || !has_rests(s, k)
            || rests_settle(s, i) != settle - s->inst)
            continue;
        if (is_waited(p, FORM_PRODUCT) && !has_tensor(s))
            buf_printf(p->b, "keep(%s);\n",
                       fragment_name(p, value_at(p, k->out[0])->node));
        put_product_rests(p, k);
    }
}

void put_decayed_rests(Print *p, const KInst *k)
{
    if (!p->first || !has_rests(p->s, k))
        return;
    put_branch(p, share_of(p->s, k->role, k->ncol));
    for (int i = 0; i < k->nout; i++) {
        const KValue *v[4];
        for (int j = 0; j < 4; j++)
            v[j] = value_at(p, k->in[4 * i + j]);
        const Node *n = &p->s->g->n[value_at(p, k->out[i])->node];
        if (v[0]->rest != NOTHING || v[1]->rest != NOTHING)
            buf_printf(p->b, "add_decayed_rests<%d, %d, %d>(%s, %s, %s, %s, %s,"
                       " %s, %s, %d, l);\n", (int)v[0]->ncol,
                       v[0]->rest != NOTHING, v[1]->rest != NOTHING,
                       fragment_name(p, value_at(p, k->out[i])->node),
                       place(p, v[0]), place(p, v[1]),
                       rest_place(p, v[0]), rest_place(p, v[1]),
                       place(p, v[2]), place(p, v[3]),
                       (n->flags & STRICT) != 0);
    }
    buf_printf(p->b, "}\n}\n");
}
