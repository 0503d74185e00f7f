/* print_tensor.c -- sums of products in tensor memory, where tensor.c has put
 * them: what is written there before products, and read behind them.
 */
#include "print_parts.h"

static const char *place_text(const Print *p)
{
    return ctx_format(p->c, "base + %d", (int)tensor_place(p->s));
}

void put_tensor_barriers(Print *p)
{
    const Schedule *s = p->s;
    if (s->tensor)
        buf_printf(p->b, "UNROLL for (int i = 0; i < %d; i++)\n"
                   "barrier_init(%s + 8 + 8 * i, 1);\n",
                   s->groups + s->ahead * s->interleave, place_text(p));
}

void put_tensor_alloc(Print *p)
{
    if (p->s->tensor)
        buf_printf(p->b, "if (threadIdx.x < 32)\ntensor_alloc<%d>(%s);\n",
                   tensor_columns(p->s), place_text(p));
}

void put_tensor_free(Print *p)
{
    if (p->s->tensor)
        buf_printf(p->b, "tensor_before();\n__syncwarp();\n__syncthreads();\n"
                   "tensor_after();\nif (threadIdx.x < 32)\n"
                   "tensor_free<%d>(tensor_at(%s));\n", tensor_columns(p->s),
                   place_text(p));
}

void put_tensor_of(Print *p, KRole role)
{
    if (p->s->tensor)
        buf_printf(p->b, "Products t = products_at<%d>(%s, %sgroup);\n",
                   p->s->tensor, place_text(p), role == KR_AHEAD
                   ? ctx_format(p->c, "%d + ", p->s->groups) : "");
}

const char *tensor_place_of(Print *p, const KValue *v, int at)
{
    return ctx_format(p->c, "t.sums + %d", (int)v->at + at);
}

/* Whether an iteration in hand has it. */
static bool is_printed(const Print *p, const KInst *k, int role)
{
    return k->role == role && (!p->lean || k->lean);
}

/* Whether its role's warps have not met since products ended: none before it
 * are under way. */
static bool is_first(const Print *p, const KInst *k)
{
    for (const KInst *i = k - 1; i >= p->s->inst; i--) {
        if (i->op == K_SYNC && i->role == k->role)
            return false;
        if (is_printed(p, i, k->role)
            && (i->op == K_PRODUCT || i->op == K_SETTLE))
            return i->op == K_SETTLE;
    }
    return true;
}

void put_tensor_fence(Print *p, bool after)
{
    if (p->s->tensor)
        buf_printf(p->b, after ? "tensor_after();\n" : "tensor_before();\n");
}

void put_tensor_begin(Print *p, const KInst *k)
{
    const KValue *d = value_at(p, k->out[0]);
    bool writes = k->nin > 2 && !adds_in_tensor(p->s, k);
    if (writes)
        buf_printf(p->b, "write_sums(%s, %s);\ntensor_stored();\n",
                   tensor_place_of(p, d, 0), fragment_name(p, d->node));
    if (writes || is_first(p, k))
        buf_printf(p->b, "products_begin();\n");
}

/* The fragments that are read when products end, each by its text. */
static void put_read(Print *p, const KInst *settle,
                     void put(Print *, const KValue *))
{
    const KInst *k = settle;
    while (k > p->s->inst && !(k[-1].op == K_SETTLE
                               && is_printed(p, k - 1, settle->role)))
        k--;
    for (; k < settle; k++)
        if (k->op == K_PRODUCT && is_printed(p, k, settle->role)
            && leaves_tensor(p->s, k))
            put(p, value_at(p, k->out[0]));
}

static void put_read_sums(Print *p, const KValue *v)
{
    buf_printf(p->b, "read_sums(%s, %s);\n", fragment_name(p, v->node),
               tensor_place_of(p, v, 0));
}

static void put_kept(Print *p, const KValue *v)
{
    buf_printf(p->b, "keep(%s);\n", fragment_name(p, v->node));
}

void put_tensor_end(Print *p, const KInst *settle)
{
    buf_printf(p->b, "products_end(t);\n");
    put_read(p, settle, put_read_sums);
    buf_printf(p->b, "tensor_loaded();\n");
    put_read(p, settle, put_kept);
}
