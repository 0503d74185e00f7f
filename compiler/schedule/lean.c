/* lean.c -- what of an iteration of a walk the states alone need: a block that
 * goes on where another one ends, of the same sequence, first walks what comes
 * before for them. Such an iteration is lean: of instructions that it has no
 * need for roles hand over what others fill.
 */
#include "schedule.h"

static bool any_of(const bool *set, const int16_t *list, int n)
{
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= set[list[i]];
    return any;
}

/* Whether the program leaves tiles of which each is made by itself. */
static bool is_of_tiles(const Schedule *s, const KInst *k)
{
    enum { MOST = 32 };
    bool all = k->op == K_MAP && k->nout > 1 && k->nout < MOST;
    for (int i = 0; i < k->nout && all; i++)
        all &= s->value[k->out[i]].layout == LAY_TILE
            && has_node(k, s->value[k->out[i]].node);
    return all;
}

static uint32_t needed_results(const Schedule *s, const KInst *k,
                               const bool *needed)
{
    uint32_t set = 0;
    for (int i = 0; i < k->nout; i++)
        if (needed[k->out[i]])
            set |= 1u << i;
    return is_of_tiles(s, k) ? set : ~0u;
}

static bool is_operand(const Graph *g, const KInst *k, Ref r)
{
    bool any = false;
    for (int i = 0; i < k->nnodes; i++)
        for (int j = 0; j < 4; j++)
            any |= g->n[k->node[i]].a[j]
                && shown_node(g, g->n[k->node[i]].a[j]) == r;
    return any;
}

static bool leaves_node(const Schedule *s, const KInst *k, Ref r)
{
    bool any = false;
    for (int i = 0; i < k->nout; i++)
        any |= s->value[k->out[i]].node == r;
    return any;
}

KInst lean_inst(const Schedule *s, const KInst *k)
{
    KInst lean = *k;
    if (!is_of_tiles(s, k) || !(~k->lean_out & ((1u << k->nout) - 1)))
        return lean;
    lean.nin = lean.nout = 0;
    lean.lean_out = ~0u;
    for (int i = 0; i < k->nout; i++)
        if (k->lean_out >> i & 1)
            lean.out[lean.nout++] = k->out[i];
    lean.node = ctx_alloc(s->c, (size_t)k->nnodes * sizeof *lean.node);
    lean.node += k->nnodes;
    lean.nnodes = 0;
    for (int i = k->nnodes - 1; i >= 0; i--)
        if (leaves_node(s, &lean, k->node[i])
            || is_operand(s->g, &lean, k->node[i])) {
            *--lean.node = k->node[i];
            lean.nnodes++;
        }
    for (int i = 0; i < k->nin; i++)
        if (is_operand(s->g, &lean, s->value[k->in[i]].node))
            lean.in[lean.nin++] = k->in[i];
    return lean;
}

/* Fragments in one place are one. */
static bool leaves_needed(const Schedule *s, const KInst *k, const bool *needed)
{
    bool any = any_of(needed, k->out, k->nout)
            || (k->op == K_CLEAR && k->nin && needed[k->in[0]]);
    for (int i = 0; i < k->nout; i++)
        any |= s->value[k->out[i]].layout == LAY_FRAGMENT
            && needed[fragment_root(s, k->out[i])];
    return any || (k->op == K_CARRY
                   && (!packs_carried(s, k) || needed[k->in[1]]));
}

bool goes_on_from(const Schedule *s, const KInst *k, const KInst *maker)
{
    const Graph *g = s->g;
    bool any = false;
    if (k == maker || k->role != maker->role || maker->op != K_VECTOR)
        return false;
    if (k->op == K_CARRY && !k->nin)
        return has_node(maker, shown_node(g, g->st[k->index].next));
    for (int n = 0; n < k->nnodes && k->op == K_VECTOR; n++)
        for (int a = 0; a < 4; a++) {
            Ref r = shown_node(g, g->n[k->node[n]].a[a]);
            any |= r && !has_node(k, r) && has_node(maker, r);
        }
    return any;
}

static bool is_gone_on_from(const Schedule *s, const KInst *maker)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].lean && goes_on_from(s, &s->inst[i], maker);
    return any;
}

static void find_lean(Schedule *s, bool *needed)
{
    for (bool more = true; more;) {
        more = false;
        for (int i = 0; i < s->ninsts; i++) {
            KInst *k = &s->inst[i];
            uint32_t results = needed_results(s, k, needed);
            if ((k->lean && k->lean_out == results) || k->op == K_BEGIN
                || k->op == K_SETTLE || k->op == K_SYNC
                || !(leaves_needed(s, k, needed) || is_gone_on_from(s, k)))
                continue;
            k->lean = more = true;
            k->lean_out = results;
            const KInst lean = lean_inst(s, k);
            for (int j = 0; j < lean.nin; j++) {
                needed[lean.in[j]] = true;
                if (s->value[lean.in[j]].layout == LAY_FRAGMENT)
                    needed[fragment_root(s, lean.in[j])] = true;
            }
        }
    }
}

static bool is_lean_product(const Schedule *s, int role, int value)
{
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_PRODUCT && s->inst[i].role == role
            && s->inst[i].lean && s->inst[i].out[0] == value)
            return true;
    return false;
}

/* Those behind products that such an iteration has, too. */
static void find_lean_ends(Schedule *s)
{
    bool under_way[NKROLES] = { false };
    for (int i = 0; i < s->ninsts; i++) {
        KInst *k = &s->inst[i];
        if (k->op == K_PRODUCT)
            under_way[k->role] |= k->lean;
        if (k->op != K_SETTLE)
            continue;
        if (k->index == NOTHING)
            k->lean = under_way[k->role];
        for (int j = 0; j < k->nin && k->index != NOTHING; j++)
            k->lean |= is_lean_product(s, k->role, k->in[j]);
        under_way[k->role] = false;
    }
}

/* Whether lean iterations leave the instruction's i-th result. */
static bool leaves_lean(const KInst *k, int i)
{
    return i >= 32 || k->lean_out >> i & 1;
}

uint32_t lean_fills(const Schedule *s)
{
    uint32_t set = 0;
    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nout && s->inst[i].lean; j++) {
            if (!leaves_lean(&s->inst[i], j))
                continue;
            const KValue *v = &s->value[s->inst[i].out[j]];
            set |= has_buffer(v) && v->buffer != NOTHING ? 1u << v->buffer : 0;
        }
    return set;
}

uint32_t lean_buffers(const Schedule *s)
{
    uint32_t set = lean_fills(s);
    for (int i = 0; i < s->ninsts; i++)
        set |= s->splits ? s->inst[i].lean_full : 0;
    return set;
}

/* Whether a vector role, or a program across, leaves more than buffers. */
static bool leaves_results(const Schedule *s)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        for (int n = 0; n < s->inst[i].nnodes && s->inst[i].lean; n++) {
            Ref r = s->inst[i].node[n];
            any |= s->stores && s->stores[r];
            for (int o = 0; o < s->g->nout; o++)
                any |= s->wants_out[o] && shown_node(s->g, s->g->out[o].node)
                                          == r;
        }
    return any;
}

bool has_lean(const Schedule *s, int role)
{
    bool any = false;
    for (int i = 0; i < s->ninsts; i++)
        any |= s->inst[i].role == role
            && (s->inst[i].lean || s->inst[i].lean_full);
    return any;
}

static bool is_worth_it(const Schedule *s)
{
    bool saves = false;
    for (int i = 0; i < s->ninsts; i++)
        saves |= s->inst[i].op == K_PRODUCT && !s->inst[i].lean;
    return saves;
}

/* Requires instructions in order, and buffers; what roles wait for is not yet
 * chained. */
void schedule_lean(Schedule *s)
{
    bool *needed = ctx_alloc(s->c, (size_t)s->nvalues * sizeof *needed + 1);
    bool several = false;
    s->splits = false;
    for (int i = 0; i < s->ninsts; i++) {
        s->inst[i].lean = false;
        s->inst[i].lean_out = ~0u;
    }
    if (!s->may_split)
        return;
    find_lean(s, needed);
    find_lean_ends(s);
    for (int b = 0; b < s->nbuffers; b++)
        several |= s->buffer[b].uses > 1 && lean_buffers(s) >> b & 1;
    s->splits = !several && !leaves_results(s) && is_worth_it(s);
    for (int i = 0; i < s->ninsts && !s->splits; i++)
        s->inst[i].lean = false;
}
