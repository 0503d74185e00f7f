/* print_iterations.c -- what one iteration of a walk's loop leaves to the next,
 * and iterations for the states alone, in which a role does less.
 */
#include "print_parts.h"

#include <string.h>

/* ---- what is left to the next iteration ---- */

/* What is left to the next iteration is a function of the number of its chunk.
 */
static unsigned deferred_name(const Print *p, const KInst *k)
{
    return (unsigned)value_at(p, k->out[0])->node;
}

void put_deferred(Print *p, KRole role, PutInst put)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role != role || !k->deferred)
            continue;
        buf_printf(p->b, "auto deferred%u = [&](u32 %s) {\n",
                   deferred_name(p, k),
                   count_name(p, value_at(p, k->out[0])->buffer));
        put(p, k);
        buf_printf(p->b, "};\n");
    }
}

/* Behind the loop over chunks, of its last. */
void put_last_deferred(Print *p, KRole role)
{
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role == role && k->deferred)
            buf_printf(p->b, "if (%s)\ndeferred%u(%s - 1);\n", p->s->splits
                       ? "x.last > x.first" : "chunks > 0", deferred_name(p, k),
                       count_name(p, value_at(p, k->out[0])->buffer));
    }
}

/* Of the iteration before. */
void put_deferred_before(Print *p, const KInst *k)
{
    buf_printf(p->b, "if (m > %s)\ndeferred%u(%s - 1);\n",
               p->s->splits ? "x.first" : "0", deferred_name(p, k),
               count_name(p, value_at(p, k->out[0])->buffer));
}

/* ---- lean iterations ---- */

/* Whether lean iterations make the value. */
bool is_computed_lean(const Print *p, int value)
{
    for (int i = 0; i < p->s->ninsts; i++)
        if (p->s->inst[i].lean && has_value(p->s->inst[i].out,
                                            p->s->inst[i].nout, value))
            return true;
    return false;
}

/* The instructions as lean iterations have them: they wait for less, and hand
 * on what others fill alone. */
static const Schedule *lean_schedule(const Print *p)
{
    Schedule *s = ctx_alloc(p->c, sizeof *s);
    const uint32_t lean = lean_buffers(p->s);
    size_t bytes = (size_t)p->s->ninsts * sizeof *s->inst;
    *s = *p->s;
    s->inst = ctx_alloc(p->c, bytes);
    memcpy(s->inst, p->s->inst, bytes);
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        *k = k->lean ? lean_inst(p->s, k) : *k;
        k->wait_full = k->lean_full;
        k->wait_empty &= lean;
        k->post_full &= lean;
        k->post_empty &= lean;
        if (k->op == K_SETTLE && k->lean && k->index != NOTHING)
            k->index = 0;
    }
    return s;
}

/* What the instruction does not do in a lean iteration may be the first or the
 * last to fill, or to read, a buffer that others fill. */
static void put_lean(Print *p, const KInst *k, PutInst put)
{
    if (k->lean || k->op == K_SYNC) {
        put(p, k);
        return;
    }
    if (k->op == K_LOAD)
        return;
    put_waits(p, k);
    each_bit(p, k, k->wait_empty, true, put_wait);
    if (k->post_full)
        put_fence(p);
    each_bit(p, k, k->post_full, false, put_post);
    put_release(p, k);
}

void put_lean_loads(Print *p, int lag, PutInst put)
{
    const Schedule *whole = p->s;
    p->s = lean_schedule(p);
    p->lean = true;
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role == KR_LOAD && k->op == K_LOAD && k->lag == lag)
            put_lean(p, k, put);
    }
    p->lean = false;
    p->s = whole;
}

/* Holds what products of lean iterations leave. */
static void put_lean_settled(Print *p, int settle)
{
    for (int i = settle - 1; i >= 0; i--) {
        const KInst *k = &p->s->inst[i];
        if (k->role != p->s->inst[settle].role)
            continue;
        if (k->op == K_SETTLE)
            break;
        if (k->op == K_PRODUCT && k->lean)
            buf_printf(p->b, "keep(%s);\n",
                       fragment_name(p, value_at(p, k->out[0])->node));
    }
}

void put_lean_insts(Print *p, KRole role, PutInst put)
{
    const Schedule *whole = p->s;
    p->s = lean_schedule(p);
    p->lean = true;
    for (int i = 0; i < p->s->ninsts; i++) {
        const KInst *k = &p->s->inst[i];
        if (k->role != role || k->op < K_LOAD || k->op > K_CARRY || k->deferred
            || (packs_carried(p->s, k) && !k->lean))
            continue;
        if (has_matrices(role))
            put_found_early(p, k);
        put_lean(p, k, put);
        if (k->op == K_SETTLE && k->lean && k->index == NOTHING
            && is_waited(p, FORM_PRODUCT) && !has_tensor(p->s))
            put_lean_settled(p, i);
    }
    put_fence(p);
    p->lean = false;
    p->s = whole;
}
