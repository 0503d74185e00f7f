/* together.c -- sums under decays that one instruction makes: what they have in
 * common is decayed once, and warps that have the fewest tokens of one have
 * the most of another, without a barrier between.
 */
#include "schedule.h"

#include <string.h>

/* Loads the tile, or clears rows of it. */
static bool brings(const KInst *k, int value)
{
    return (k->op == K_LOAD && has_value(k->out, k->nout, value))
        || (k->op == K_CLEAR && has_value(k->in, k->nin, value));
}

/* The last instruction before `end` without which the value is not there. */
static int ready_at(const Schedule *s, int value, int end)
{
    int at = NOTHING;
    for (int i = 0; i < end; i++) {
        const KInst *k = &s->inst[i];
        if (has_value(k->out, k->nout, value) || brings(k, value))
            at = i;
    }
    return at;
}

/* Whether tiles that go through a ring before this one are read no more. */
static bool is_next_of_ring(const Schedule *s, int value, int from)
{
    const KValue *v = &s->value[value];
    for (int i = from; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++) {
            const KValue *u = &s->value[s->inst[i].in[j]];
            if (u->buffer == v->buffer && u->use < v->use)
                return false;
        }
    return true;
}

/* Whether the value is there at `from`, or is a tile that may be loaded before.
 */
static bool may_be_ready(const Schedule *s, int value, int from, int end)
{
    const KValue *v = &s->value[value];
    if (ready_at(s, value, end) < from)
        return true;
    const KBuffer *b = &s->buffer[v->buffer];
    for (int i = from; i < end; i++)
        if (has_value(s->inst[i].out, s->inst[i].nout, value)
            && s->inst[i].op != K_LOAD)
            return false;
    return v->layout == LAY_TILE && b->copied
        && is_next_of_ring(s, value, from);
}

static bool are_ready(const Schedule *s, const KInst *k, int from, int end)
{
    for (int i = 0; i < k->nin; i++)
        if (!may_be_ready(s, k->in[i], from, end))
            return false;
    return true;
}

static Ref first_product(const Schedule *s, const KInst *k)
{
    KTerm t[MOST_TERMS];
    decayed_terms(s->g, s->value[k->out[0]].node, t);
    return t[0].product;
}

/* Whether a term of one meets what a term of the other does; of scores that is
 * all that they meet, or their rows are the same. */
static bool share_factor(const KInst *a, const KInst *b, bool later)
{
    int decays = later ? 3 : 2;
    if (a->col == AX_J)
        return a->in[3] == b->in[3]
            && (a->in[1] == b->in[1]
                || (a->in[0] == b->in[0] && a->in[2] == b->in[2]));
    for (int i = 0; i < a->nin; i += 4)
        for (int j = 0; j < b->nin; j += 4)
            if (a->in[i + 1] == b->in[j + 1]
                && a->in[i + decays] == b->in[j + decays])
                return true;
    return false;
}

static bool may_be_one(const Schedule *s, int i, int j)
{
    enum { MOST_SUMS = 2 };
    const KInst *a = &s->inst[i], *b = &s->inst[j];
    if (a->op != K_DECAYED || b->op != K_DECAYED || a->row != b->row
        || a->col != b->col || a->nout + b->nout > MOST_SUMS
        || a->nin + b->nin > 4 * MOST_TERMS)
        return false;
    Ref of = first_product(s, a);
    return decay_alike(s->g, of, first_product(s, b))
        && share_factor(a, b, s->g->n[of].over & AXIS(AX_J))
        && are_ready(s, b, i, j);
}

static void move_up(Schedule *s, int from, int to)
{
    KInst moved = s->inst[from];
    memmove(s->inst + to + 1, s->inst + to,
            (size_t)(from - to) * sizeof moved);
    s->inst[to] = moved;
}

/* Whether one is over the tokens before a row, and the other over those behind:
 * the warps that are the first to end with one are the last with the other. */
static bool may_follow(const Schedule *s, int i, int j)
{
    const KInst *a = &s->inst[i], *b = &s->inst[j];
    if (a->op != K_DECAYED || b->op != K_DECAYED || a->role != b->role
        || a->col == AX_J || b->col == AX_J || j == i + 1)
        return false;
    AxisSet both = s->g->n[first_product(s, a)].over
                 ^ s->g->n[first_product(s, b)].over;
    return both & AXIS(AX_J) && are_ready(s, b, i, j);
}

/* The tiles that the second one reads come before the first; where it ends up.
 */
static int bring_tiles(Schedule *s, int i, int j)
{
    for (int n = i; n < j; n++)
        for (int v = 0; v < s->inst[j].nin; v++)
            if (brings(&s->inst[n], s->inst[j].in[v])) {
                move_up(s, n, i++);
                break;
            }
    return i;
}

static void join(Schedule *s, int i, int j)
{
    i = bring_tiles(s, i, j);
    KInst *a = &s->inst[i], *b = &s->inst[j];
    memcpy(a->in + a->nin, b->in, b->nin * sizeof *a->in);
    memcpy(a->out + a->nout, b->out, b->nout * sizeof *a->out);
    a->nin += b->nin;
    a->nout += b->nout;
    memmove(b, b + 1, (size_t)(--s->ninsts - j) * sizeof *b);
}

/* The only program that reads the value, which nobody else does; or NOTHING. */
static int reader_of(const Schedule *s, int value)
{
    int found = NOTHING;
    for (int i = 0; i < s->ninsts; i++) {
        if (!has_value(s->inst[i].in, s->inst[i].nin, value))
            continue;
        if (found != NOTHING || s->inst[i].op != K_MAP)
            return NOTHING;
        found = i;
    }
    return found;
}

/* Whether k leaves something in a buffer in which r does, too: such have turns.
 */
static bool leaves_where(const Schedule *s, const KInst *k, const KInst *r)
{
    bool any = false;
    for (int a = 0; a < k->nout; a++)
        for (int b = 0; b < r->nout; b++) {
            int buffer = s->value[k->out[a]].buffer;
            any |= buffer != NOTHING
                && buffer == s->value[r->out[b]].buffer;
        }
    return any;
}

/* What reads the last of the sums that the first such instruction from `from`
 * on leaves is done as soon as what else it reads is there: they take no
 * registers from then on. */
static void hasten(Schedule *s, int from)
{
    int i = from;
    while (s->inst[i].op != K_DECAYED)
        i++;
    int r = reader_of(s, s->inst[i].out[s->inst[i].nout - 1]), to = i + 1;
    if (r == NOTHING)
        return;
    const KInst *k = &s->inst[r];
    for (int n = to; n < r; n++) {
        bool before = leaves_where(s, &s->inst[n], k);
        for (int j = 0; j < k->nin; j++)
            before |= has_value(s->inst[n].out, s->inst[n].nout, k->in[j])
                   || brings(&s->inst[n], k->in[j]);
        to = before ? n + 1 : to;
    }
    move_up(s, r, to);
}

static void follow(Schedule *s, int i, int j)
{
    move_up(s, j, bring_tiles(s, i, j) + 1);
}

/* Whether no more fragments live at a time than before, or there is room for
 * more yet: of rwkv7's, 160 registers and not 128, ptxas spills 384 bytes where
 * it spilled 120. */
static bool has_room(const Schedule *s, int before)
{
    enum { MORE = 32 };
    int live = registers_live(s, KR_MATRIX);
    return live <= before || live + OTHER_REGS + MORE <= s->regs[1];
}

/* Whether what lies in one place is still there at different times. */
static bool keeps_apart(const Schedule *s)
{
    for (int i = 0; i < s->nbuffers; i++)
        for (int j = 0; j < i; j++)
            if (!lie_apart(&s->buffer[i], &s->buffer[j])
                && !buffers_apart(s, i, j))
                return false;
    return true;
}

/* For each two that may be so, where that leaves enough registers, and buffers
 * may lie as they do. */
static void put_together(Schedule *s, bool (*may)(const Schedule *s, int i,
                                                  int j),
                         void (*put)(Schedule *s, int i, int j))
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = i + 1; j < s->ninsts; j++) {
            if (!may(s, i, j))
                continue;
            int n = s->ninsts;
            size_t size = (size_t)n * sizeof *s->inst;
            KInst *before = ctx_alloc(s->c, size);
            memcpy(before, s->inst, size);
            int live = registers_live(s, KR_MATRIX);
            put(s, i, j);
            if (put == join && registers_fault(s))
                hasten(s, i);
            if (!registers_fault(s) && (put == join || has_room(s, live))
                && keeps_apart(s))
                continue;
            memcpy(s->inst, before, size);
            s->ninsts = n;
        }
}

/* Requires buffers and roles; instructions have no waits yet. Fragments live
 * longer: where registers are short, the last is read at once, or each is made
 * when it is wanted. */
void schedule_together(Schedule *s)
{
    put_together(s, may_be_one, join);
    put_together(s, may_follow, follow);
}
