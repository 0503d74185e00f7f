/* places.c -- values that all warps share: where they lie in shared memory, or
 * in the block's part of the workspace, and the barriers between instructions.
 */
#include "schedule.h"

/* ---- places ---- */

/* Whether it has a place here, in shared memory or in the workspace. */
static bool has_place(const Schedule *s, const KValue *v)
{
    return v->layout != LAY_REGTILE && v->layout != LAY_LINE
        && !lies_where_kept(s, v);
}

static int32_t bytes_of(const Schedule *s, const KValue *v)
{
    enum { ALIGN = 16 };
    int32_t n = v->element * v->nrow * v->parts;
    n = (n + ALIGN - 1) / ALIGN * ALIGN;
    return has_two_places(s, v) ? 2 * n : n;
}

static bool meet(const Schedule *s, const KValue *v, const KValue *u)
{
    return has_place(s, v) && has_place(s, u) && v->spilled == u->spilled
        && v->at < u->at + bytes_of(s, u) && u->at < v->at + bytes_of(s, v);
}

/* The instructions from which to which each value has its place: what is there
 * before the first item, or comes from memory ahead of it, has it always. */
typedef struct Interval { int first, last; } Interval;

static void use(Interval *of, int i, bool always, int end)
{
    *of = always ? (Interval){ 0, end }
                 : (Interval){ i < of->first ? i : of->first,
                               i > of->last ? i : of->last };
}

static Interval *find_intervals(const Schedule *s)
{
    Interval *of = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *of);
    for (int v = 0; v < s->nvalues; v++)
        of[v] = (Interval){ s->ninsts, -1 };
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        bool always = i < s->tokens.first
                   || (k->op == K_LOAD && !has_rows(s));
        for (int j = 0; j < k->nin; j++)
            use(&of[fragment_root(s, k->in[j])], i, always, s->ninsts);
        for (int j = 0; j < k->nout; j++)
            use(&of[fragment_root(s, k->out[j])], i, always, s->ninsts);
    }
    return of;
}

static bool at_a_time(const Interval *a, const Interval *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* First fit. roomy: small ones have places of their own, as sharing one would
 * take a barrier. */
static void place_values(Schedule *s, bool roomy)
{
    enum { SMALL = 2048 };
    Interval *of = find_intervals(s);
    s->shared = 0;
    s->spill = 0;
    for (int v = 0; v < s->nvalues; v++)
        if (roomy && bytes_of(s, &s->value[v]) <= SMALL && of[v].last >= 0)
            of[v] = (Interval){ 0, s->ninsts };
    for (int v = 0; v < s->nvalues; v++) {
        KValue *k = &s->value[v];
        if (!has_place(s, k) || k->alias != NOTHING)
            continue;
        k->at = 0;
        for (int u = 0; u < v; u++) {
            const KValue *o = &s->value[u];
            if (o->alias != NOTHING || !at_a_time(&of[u], &of[v])
                || !meet(s, k, o))
                continue;
            k->at = o->at + bytes_of(s, o);
            u = -1;                     /* from the first on again */
        }
        int32_t end = k->at + bytes_of(s, k);
        if (k->spilled)
            s->spill = end > s->spill ? end : s->spill;
        else
            s->shared = end > s->shared ? end : s->shared;
    }
    for (int v = 0; v < s->nvalues; v++)
        if (s->value[v].alias != NOTHING) {
            s->value[v].at = s->value[fragment_root(s, v)].at;
            s->value[v].spilled = s->value[fragment_root(s, v)].spilled;
        }
}

static int count_reads(const Schedule *s, int value)
{
    int n = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            n += fragment_root(s, s->inst[i].in[j]) == value;
    return n;
}

/* The value leaves shared memory that takes most of it, bytes for so long, for
 * the least use. */
static void spill(Schedule *s)
{
    const Interval *of = find_intervals(s);
    KValue *most = NULL;
    double takes = 0;
    for (int v = 0; v < s->nvalues; v++) {
        KValue *k = &s->value[v];
        double own = (double)bytes_of(s, k) * (of[v].last - of[v].first + 1)
                   / (1 + count_reads(s, v));
        if (has_place(s, k) && k->alias == NOTHING && !k->spilled
            && (!most || own > takes)) {
            most = k;
            takes = own;
        }
    }
    most->spilled = true;
}

void flat_places(Schedule *s)
{
    place_values(s, true);
    if (s->shared > s->target->shared)
        place_values(s, false);
    while (s->shared > s->target->shared) {
        spill(s);
        place_values(s, false);
    }
}

/* ---- barriers ---- */

static bool overlap(const Schedule *s, int a, int b)
{
    return meet(s, &s->value[a], &s->value[b]);
}

static bool any_overlap(const Schedule *s, const int16_t *a, int na,
                        const int16_t *b, int nb)
{
    for (int i = 0; i < na; i++)
        for (int j = 0; j < nb; j++)
            if (overlap(s, a[i], b[j]))
                return true;
    return false;
}

/* Whether one of the two, of which threads may do the second while others are
 * still at the first, writes what the other uses. */
static bool must_wait(const Schedule *s, const KInst *a, const KInst *b)
{
    return any_overlap(s, a->out, a->nout, b->in, b->nin)
        || any_overlap(s, a->out, a->nout, b->out, b->nout)
        || any_overlap(s, a->in, a->nin, b->out, b->nout);
}

/* Whether what stands before the first item is done by all threads before they
 * begin one. Where they walk single tokens it is not: what is brought for a
 * token has come where it waits first. */
static bool waits_between(const Schedule *s)
{
    return has_rows(s) || s->kind == K_TOKEN;
}

/* Besides those that stand behind each item, and before the first. */
void flat_barriers(Schedule *s)
{
    KInst sync = { .op = K_SYNC, .role = KR_MATRIX, .index = NOTHING };
    for (int from = 0, i = 0; i < s->ninsts; i++) {
        bool wait = false;
        if (i == s->tokens.first)
            while (token_brings(s, &s->inst[i]))
                i++;
        if (waits_between(s) && from < s->tokens.first)
            from = i >= s->tokens.first ? i : from;
        for (int j = from; j < i; j++)
            wait |= must_wait(s, &s->inst[j], &s->inst[i]);
        if (!wait)
            continue;
        inst_insert(s, i, sync);
        s->tokens.first += i < s->tokens.first;
        from = i + 1;
    }
}

static bool is_written_before(const Schedule *s, int value, int before)
{
    for (int i = 0; i < before; i++)
        for (int j = 0; j < s->inst[i].nout; j++)
            if (s->inst[i].out[j] == value)
                return true;
    return false;
}

static const char *order_fault(const Schedule *s)
{
    for (int i = 0, from = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        for (int j = 0; j < k->nin; j++)
            if (!is_written_before(s, k->in[j], i))
                return "a value is read that nobody has written";
        if (k->op == K_SYNC || (waits_between(s) && i == s->tokens.first))
            from = i;
        for (int j = from; j < i; j++)
            if (!token_brings(s, k) && must_wait(s, &s->inst[j], k))
                return "no barrier before what another thread uses";
    }
    return NULL;
}

const char *schedule_check_tokens(const Schedule *s)
{
    const Interval *of = find_intervals(s);
    for (int v = 0; v < s->nvalues; v++)
        for (int u = 0; u < v; u++)
            if (s->value[v].alias == NOTHING && s->value[u].alias == NOTHING
                && at_a_time(&of[u], &of[v]) && overlap(s, v, u))
                return "two values lie in one place";
    return order_fault(s);
}
