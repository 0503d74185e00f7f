/* rests.c -- scores of what is computed, in a sequence's first rows.
 *
 * A matrix that a program computes (turned by angles, say) is rounded to a
 * tile's 16 bits before its products, and scores cancel. Further on a row of
 * the result adds up so many of them that their errors even out; in a
 * sequence's first rows nothing does. So of the first REST_ROWS of a sequence,
 * in its first chunk alone, programs also keep the **rests** of such tiles,
 * which are what rounding has cut off, and who has made scores of the tiles
 * adds the products of those. Rests lie in the block's part of the workspace,
 * so that no buffer is less deep for them; where two blocks give each other
 * tiles they give these, too, and rests lie in shared memory behind all else.
 */
#include "schedule.h"

/* The program that leaves the tile, where its first warps have the first rows
 * of tokens; else NULL. */
static const KInst *rounds(const Schedule *s, int value)
{
    const KValue *v = &s->value[value];
    int at = value_writer(s, value);
    const KInst *k = at == NOTHING ? NULL : &s->inst[at];
    return k && k->op == K_MAP && v->layout == LAY_TILE && v->row == AX_I
        && v->col >= AX_DIM && !deals_rows(s, k->role) && !k->deferred
        && has_node(k, v->node) ? k : NULL;
}

static void keep_rest(Schedule *s, int value)
{
    KValue *v = &s->value[value];
    if (v->rest != NOTHING || !rounds(s, value))
        return;
    v->rest = s->rests;
    s->rests += rest_slots(s, v) * rest_bytes(v);
}

/* What it has as its rows, and its columns, one sum's behind another's; of
 * scores that come to registers. */
static int factors_of_scores(const Schedule *s, const KInst *k, int16_t *to)
{
    int n = 0;
    bool stays = has_tensor(s) && k->op == K_PRODUCT && !leaves_tensor(s, k);
    if (k->row != AX_I || k->col != AX_J || stays)
        return 0;
    for (int i = 0; i < k->nout && k->op == K_DECAYED; i++)
        for (int j = 0; j < 2; j++)
            to[n++] = k->in[4 * i + j];
    for (int i = 0; i < 2 && k->op == K_PRODUCT; i++)
        if (s->value[k->in[i]].layout != LAY_TILE || k->transposed[i])
            return 0;
        else
            to[n++] = k->in[i];
    return n;
}

int rests_settle(const Schedule *s, int at)
{
    const KInst *k = &s->inst[at];
    for (int i = at + 1; i < s->ninsts && k->op == K_PRODUCT; i++) {
        const KInst *end = &s->inst[i];
        if (end->op == K_SETTLE && end->role == k->role
            && has_value(end->in, end->nin, k->in[0])
            && has_value(end->in, end->nin, k->in[1]))
            return i;
    }
    return NOTHING;
}

int32_t rests_place(const Schedule *s)
{
    enum { ALIGN = 16 };
    int32_t end = tensor_place(s) + tensor_bytes(s);
    return (end + ALIGN - 1) / ALIGN * ALIGN;
}

bool has_rests(const Schedule *s, const KInst *k)
{
    int16_t of[2 * MOST_TERMS];
    int n = factors_of_scores(s, k, of);
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= s->value[of[i]].rest != NOTHING;
    return any;
}

bool keeps_rests(const Schedule *s, KRole role)
{
    bool any = false;
    for (int i = 0; i < s->ninsts && s->rests; i++) {
        const KInst *k = &s->inst[i];
        any |= k->role == role && has_rests(s, k);
        for (int j = 0; j < k->nout; j++)
            any |= k->role == role && k->op == K_MAP
                && s->value[k->out[j]].rest != NOTHING;
    }
    return any;
}

/* Of a kernel of the way forward, of bfloat16: float16 has eight times the
 * precision. Ranks that are rows of a token write more than one key before
 * anything is read. Requires buffers. */
void schedule_rests(Schedule *s)
{
    bool forward = !plan_is_joint(s->p) || s->k - s->p->kernel < s->p->split;
    int16_t of[2 * MOST_TERMS];
    if (!forward || s->tile != BF16 || s->g->rows)
        return;
    int32_t place = rests_place(s);
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool ends = k->op == K_DECAYED || rests_settle(s, i) != NOTHING;
        int n = ends ? factors_of_scores(s, k, of) : 0;
        for (int j = 0; j < n; j++)
            keep_rest(s, of[j]);
    }
    if (s->paired && s->rests)
        s->shared = place + s->rests;
}
