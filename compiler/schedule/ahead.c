/* ahead.c -- what of a walk no carried state goes into: a warpgroup of its own
 * does it, a chunk ahead of those that carry the states. What these read of it
 * lies in shared memory; whatever they would find in registers is left to them,
 * with all that goes on from it.
 */
#include "schedule.h"

#include <string.h>

typedef struct Ahead {
    Schedule *s;
    bool *tied;                         /* instructions: not ahead */
    bool *depends;                      /* values: made by those */
} Ahead;

static bool is_fragment(const Schedule *s, int v)
{
    return s->value[v].layout == LAY_FRAGMENT;
}

/* Whether two values lie in one place, in which one role writes. */
static bool lie_together(const Schedule *s, int a, int b)
{
    return fragment_root(s, a) == fragment_root(s, b);
}

static bool ties(Ahead *x, int at)
{
    bool was = x->tied[at];
    x->tied[at] = true;
    return !was;
}

/* Ends of products that are under way at one time are one role's. */
static bool tie_under_way(Ahead *x, int settle)
{
    const Schedule *s = x->s;
    bool any = x->tied[settle], changed = false;
    int from = settle;
    while (from > 0 && s->inst[from - 1].op != K_SETTLE)
        from--;
    for (int i = from; i < settle; i++)
        any |= s->inst[i].op == K_PRODUCT && x->tied[i];
    for (int i = from; i <= settle && any; i++)
        if (s->inst[i].op == K_PRODUCT || i == settle)
            changed |= ties(x, i);
    return changed;
}

/* By what it reads. */
static bool tie_reader(Ahead *x, int at)
{
    const KInst *k = &x->s->inst[at];
    bool depends = false;
    for (int i = 0; i < k->nin; i++)
        depends |= x->depends[k->in[i]];
    return depends && ties(x, at);
}

/* By what lies where another instruction, that is tied, has it. */
static bool tie_writer(Ahead *x, int at)
{
    const Schedule *s = x->s;
    const KInst *k = &s->inst[at];
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *u = &s->inst[i];
        if (!x->tied[i] || !has_matrices(u->role))
            continue;
        for (int a = 0; a < k->nout; a++)
            for (int b = 0; b < u->nin + u->nout; b++) {
                int v = b < u->nin ? u->in[b] : u->out[b - u->nin];
                if (lie_together(s, k->out[a], v)
                    && (is_fragment(s, v) || b >= u->nin))
                    return ties(x, at);
            }
    }
    return false;
}

static void mark_dependent(Ahead *x, int at)
{
    const KInst *k = &x->s->inst[at];
    for (int i = 0; i < k->nout; i++)
        x->depends[k->out[i]] = true;
}

/* The state of one axis that the instruction begins, carries on, or ends as
 * what it finds in shared memory; or NOTHING. */
static int vector_state(const Schedule *s, const KInst *k)
{
    int v = k->op == K_BEGIN && k->nout ? k->out[0]
          : (k->op == K_CARRY || k->op == K_END) && k->nin ? k->in[0]
          : NOTHING;
    bool vector = v != NOTHING && s->value[v].layout == LAY_VECTOR;
    return vector ? k->index : NOTHING;
}

/* Such a state is carried by one role: by that which computes what becomes of
 * it, if the other never reads it. */
static bool tie_vector_state(Ahead *x, int at)
{
    const Schedule *s = x->s;
    int state = vector_state(s, &s->inst[at]);
    bool depends = false;
    for (int i = 0; i < s->ninsts && state != NOTHING; i++) {
        const KInst *u = &s->inst[i];
        bool own = vector_state(s, u) == state;
        for (int j = 0; j < u->nin && x->tied[i]; j++)
            depends |= s->value[u->in[j]].node == s->g->st[state].node;
        depends |= own && x->tied[i];
    }
    return depends && ties(x, at);
}

/* Instructions of other roles are tied where they go on from what is. */
static void find_tied(Ahead *x)
{
    const Schedule *s = x->s;
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < s->ninsts; i++) {
            const KInst *k = &s->inst[i];
            bool matrix = k->role == KR_MATRIX;
            bool own = k->op == K_BEGIN || k->op == K_CARRY || k->op == K_END;
            bool vector = s->carries && vector_state(s, k) != NOTHING;
            bool rows = s->row_axis && k->nrow && k->row == s->row_axis;
            if (matrix && ((own && !vector) || rows))
                more |= ties(x, i);
            if (matrix && vector)
                more |= tie_vector_state(x, i);
            if (k->op != K_CLEAR || k->nout)
                more |= tie_reader(x, i);
            if (matrix && !x->tied[i])
                more |= tie_writer(x, i);
            if (k->op == K_SETTLE)
                more |= tie_under_way(x, i);
            if (x->tied[i])
                mark_dependent(x, i);
        }
    }
}

static bool clears(const KInst *k)
{
    return k->op == K_CLEAR && !k->nout;
}

static bool is_read(const Schedule *s, int value, KRole role)
{
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin; j++)
            if (s->inst[i].in[j] == value && s->inst[i].role == role
                && !clears(&s->inst[i]))
                return true;
    return false;
}

/* Whoever reads a tile finds its ends cleared. Where both do, they meet, before
 * all else: neither waits there for what the other does later. Of a schedule
 * with a row axis the matrix role waits for what is made ahead first. */
static void deal_clears(Schedule *s)
{
    int front = 0;
    while (s->inst[front].op == K_BEGIN)
        front++;
    for (int i = front; i < s->ninsts; i++) {
        KInst k = s->inst[i];
        if (!clears(&k) || !is_read(s, k.in[0], KR_AHEAD))
            continue;
        s->inst[i].role = k.role = KR_AHEAD;
        if (!is_read(s, k.in[0], KR_MATRIX) || s->row_axis)
            continue;
        memmove(s->inst + front + 1, s->inst + front,
                (size_t)(i - front) * sizeof k);
        s->inst[front++] = k;
        k.role = KR_MATRIX;
        inst_insert(s, front++, k);
        i++;
    }
}

/* Sums of a role's warps, one each. */
static void deal_parts(Schedule *s, const KInst *k)
{
    for (int i = 0; i < k->nout; i++) {
        KValue *v = &s->value[k->out[i]];
        bool vector = v->layout == LAY_VECTOR;
        bool of_rows = vector && (k->col == AX_J
            ? s->g->n[v->node].axes & AXIS(AX_I) : v->row == k->row);
        v->ahead = v->layout == LAY_FRAGMENT;
        if (k->op == K_MAP && (v->layout == LAY_SCALAR || of_rows))
            v->parts = (uint8_t)(v->parts / s->groups * s->ahead);
    }
}

/* Of a row axis the matrix role has what is of it, in registers: it finds
 * tiles, vectors and numbers, and leaves tiles for others to store. */
static const char *rows_fault(const Schedule *s, const KInst *k)
{
    bool space = k->op == K_MAP || k->op == K_PRODUCT;
    bool own = k->op == K_BEGIN || k->op == K_SETTLE || k->op == K_CLEAR
            || k->op == K_CARRY || k->op == K_END;
    if ((!space && !own) || (space && k->row != s->row_axis))
        return "beside states in registers";
    for (int i = 0; i < k->nnodes; i++)
        if (!(op_info[s->g->n[k->node[i]].op].traits & ELEMENTWISE))
            return "states in registers, and what is not element by element";
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = &s->value[k->in[i]];
        bool loads = k->op == K_MAP && v->layout == LAY_TILE && !is_wide(s, v);
        if (v->layout == LAY_SUMS || v->layout == LAY_WIDE
            || (v->layout == LAY_GLOBAL && v->ncol > 1)
            || (loads && (k->nnodes || k->nout != 1)))
            return "states in registers, and what no product takes";
    }
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &s->value[k->out[i]];
        bool rows = v->layout == LAY_FRAGMENT || v->layout == LAY_PACKED
                 ? v->row == s->row_axis
                 : v->layout == LAY_TILE
                   && (v->row == AX_I || v->row == s->row_axis
                       || v->col == s->row_axis);
        if (!rows)
            return "states in registers, and what is none of theirs";
    }
    return NULL;
}

bool schedule_rows_alone(Schedule *s)
{
    for (int i = 0; i < s->ninsts && s->row_axis; i++) {
        const KInst *k = &s->inst[i];
        const char *why = k->role == KR_MATRIX ? rows_fault(s, k) : NULL;
        s->why = why ? why : s->why;
        if (why)
            return false;
    }
    return true;
}

bool schedule_ahead(Schedule *s, int warpgroups)
{
    Ahead x = { .s = s };
    bool any = false, shifts = false;
    x.tied = ctx_alloc(s->c, (size_t)s->ninsts * sizeof *x.tied);
    x.depends = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *x.depends);
    find_tied(&x);
    s->ahead = warpgroups;
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        shifts |= clears(k) && (k->nin > 1
               || op_is(s->g->n[s->value[k->in[0]].node].op, SHIFTS));
        if (x.tied[i] || k->role != KR_MATRIX || clears(k))
            continue;
        k->role = KR_AHEAD;
        deal_parts(s, k);
        any |= k->op == K_PRODUCT || k->op == K_DECAYED || k->op == K_SCAN;
    }
    deal_clears(s);
    return any && (!shifts || s->row_axis) && schedule_rows_alone(s);
}
