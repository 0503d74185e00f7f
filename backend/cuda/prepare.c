/* prepare.c -- one way to cut a plan: what its kernels keep for one
 * another, as which type, and where; the schedules that they have.
 */
#include "print.h"
#include "prepare.h"
#include "../../compiler/cost.h"

#include <string.h>

/* ---- what kernels keep for one another ---- */

/* Whether kernels from schedules take r by way of a tile of 16 bits. */
static bool is_tile(const Lowered *t, Ref r)
{
    AxisSet s = t->g->n[r].axes;

    return t->o->scheduled && t->chunk > 1 && s & (s - 1)
        && !(s & (s - 1) & ((s & (s - 1)) - 1));
}

static bool is_factor(const Graph *g, Ref r)
{
    for (Ref u = r + 1; u < g->len; u++)
        for (int i = 0; i < 2 && node_is_product(g, &g->n[u]); i++)
            if (shown_node(g, g->n[u].a[i]) == r)
                return true;
    return false;
}

/* Marks which nodes go, element by element, into the kernel's sums along the
 * chunk of matrices, and are found by it. */
static void mark_summed(const Lowered *t, uint8_t *summed)
{
    const Graph *g = t->g;
    uint8_t *goes = ctx_alloc(g->ctx, g->len);

    for (Ref r = (Ref)g->len - 1; r > 0; r--) {
        const Node *n = &g->n[r];
        goes[r] |= summed[r];           /* by kernels behind this one */
        bool on = n->op == OP_cumsum ? (n->axes & DIM_AXES) != 0
                : goes[r] && (op_info[n->op].traits & ELEMENTWISE
                              || n->op == OP_row || n->op == OP_col
                              || n->op == OP_rot90 || n->op == OP_pairsum
                              || n->op == OP_delay || n->op == OP_ofrank);
        for (int a = 0; a < 4 && n->a[a] && on && t->has[r]; a++)
            goes[n->a[a]] = 1;
        summed[r] |= goes[r] && !t->has[r];
    }
}

/* What some kernel finds, and sums up so: gradients of gates, differences of
 * large numbers that 16 bits do not hold. A factor of products is of 16 bits
 * there, and so it is to be here. */
static uint8_t *find_summed(Lowered **t, int n)
{
    const Graph *g = t[0]->g;
    uint8_t *summed = ctx_alloc(g->ctx, g->len);

    for (int i = n - 1; i >= 0; i--)
        mark_summed(t[i], summed);
    for (Ref r = 1; r < g->len; r++)
        summed[r] &= !is_factor(g, r);
    return summed;
}

/* Whether the kernel keeps r for others, or finds it. */
static bool passes_on(const Lowered *t, Ref r)
{
    const Kernel *k = &t->p->kernel[t->at];

    for (int i = 0; i < k->nnodes; i++)
        for (int a = 0; a < 4; a++)
            if (t->g->n[k->node[i]].a[a] == r && !t->has[r])
                return true;
    return t->stored_here[r];
}

/* Whether both kernels have the same nodes, and find and leave the same. */
static bool is_same_kernel(const Lowered *t, const Lowered *u)
{
    bool same = t->g == u->g && t->k->kind == u->k->kind
             && t->k->nnodes == u->k->nnodes
             && !memcmp(t->k->node, u->k->node,
                        (size_t)t->k->nnodes * sizeof *t->k->node);

    for (Ref r = 1; r < t->g->len && same; r++)
        for (int i = 0; i < 4 && t->has[r]; i++) {
            Ref a = t->g->n[r].a[i];
            same &= t->stored_here[r] == u->stored_here[r]
                 && t->asked[r] == u->asked[r] && t->asked[a] == u->asked[a];
        }
    return same && !memcmp(t->out_here, u->out_here, sizeof t->out_here);
}

/* As a kernel that is known has it; NULL: none is the same. */
static const Schedule *schedule_there(const Search *y, const Lowered *t,
                                      bool ahead)
{
    for (const Known *k = y->known; k; k = k->next)
        if (k->ahead == ahead && k->roughly <= y->roughly
            && is_same_kernel(t, k->t)) {
            Schedule *s = ctx_alloc(t->c, sizeof *s);
            *s = *k->s;
            s->p = t->p;
            s->k = t->k;
            return s;
        }
    return NULL;
}

/* Whether rows of tensors are whole pieces, and lie so. An axis of no state
 * that is a matrix has no tiles. */
static bool has_whole_rows(const Lowered *t)
{
    const Graph *g = t->g;
    AxisSet axes = 0, last = 0;

    for (int i = 0; i < g->nst; i++)
        axes |= g->st[i].rank > 1 ? g->st[i].axes : 0;
    for (int i = 0; i < g->nin; i++)
        if (g->in[i].timed && g->in[i].rank)
            last |= AXIS(g->in[i].order[g->in[i].rank - 1]);
    for (int i = 0; i < g->nout; i++)
        if (g->out[i].rank)
            last |= AXIS(g->out[i].order[g->out[i].rank - 1]);
    bool whole = !t->o->scattered;
    for (axes &= last & DIM_AXES; axes; axes &= axes - 1)
        whole &= g->axis[lowest(axes)].size * (int64_t)dtype_size(t->o->tile)
                 % ROW_PIECE == 0;
    return whole;
}

static KernelWish wish_of(const Lowered *t, bool ahead, bool roughly)
{
    return (KernelWish){
        .p = t->p, .kernel = t->at, .tile = t->narrow, .memory = t->o->tile,
        .in = t->o->in, .out = t->o->out, .wants_out = t->out_here,
        .sum_out = t->o->sum_out, .stored16 = t->stored_narrow,
        .stores = t->stored_here, .few = t->o->few, .spare = t->o->spare,
        .inverses = ahead, .roughly = roughly, .s0 = t->o->s0,
        .s1 = t->o->s1, .waits = t->waits, .single = t->o->single,
        .spilled = t->o->attempt, .others = t->others, .nothers = t->nothers,
        .fault = t->o->fault,
    };
}

static const Target *target_for(const Lowered *t)
{
    enum { AMPERE = 80 };
    return target_of(t->c, t->o->arch ? t->o->arch : AMPERE, t->g->chunk,
                     t->narrow, t->o->tile, has_whole_rows(t));
}

const Schedule *find_plain(const Lowered *t)
{
    KernelWish w = wish_of(t, false, false);
    Schedule *s = schedule_plain(t->c, &w, target_for(t));

    if (s->why)
        fail_code(t->c, ERR_INTERNAL, "%s: %s", t->out->name, s->why);
    return s;
}

const Schedule *find_schedule(const Lowered *t, bool ahead, bool roughly)
{
    KernelWish w = wish_of(t, ahead, roughly);

    if (t->at + 1 == t->o->without) {
        Schedule *none = ctx_alloc(t->c, sizeof *none);
        *none = (Schedule){ .c = t->c, .p = t->p, .g = t->g,
                            .why = "FLIN_SCHEDULE wants none of this one" };
        return none;
    }
    return schedule_kernel(t->c, &w, target_for(t));
}

/* Of a kernel whose nodes lie as asked. */
static const Schedule *schedule_of(Search *y, const Lowered *t, bool ahead)
{
    const Schedule *s = schedule_there(y, t, ahead);

    if (!s) {
        Known *k = ctx_alloc(y->c, sizeof *k);
        s = find_schedule(t, ahead, y->roughly);
        *k = (Known){ y->known, t, ahead, y->roughly, s };
        y->known = k;
    }
    return s;
}

/* Matrices of axes that are taken as longer lie otherwise than where kernels
 * are printed without a schedule: all have one, or none of such axes. */
static void drop_padded(Lowered **t, int n)
{
    bool all = true;

    for (int i = 0; i < n; i++)
        all &= t[i]->out->schedule && !t[i]->out->schedule->why;
    for (int i = 0; i < n && !all; i++) {
        const Schedule *s = t[i]->out->schedule;
        if (!s || s->why || s->tokens.threads || !has_padding(s))
            continue;
        Schedule *none = ctx_alloc(t[i]->c, sizeof *none);
        *none = *s;
        none->why = "axes longer than they are, beside a kernel without a"
                    " schedule";
        t[i]->out->schedule = none;
    }
}

/* Which stored values are of 16 bits an element: those that whoever fetches
 * them does so for products alone, and those that pass through a kernel from a
 * schedule; it is made as if all matrices were. A number of a token is not. */
static void find_narrow(Search *y, Lowered **t, int n, bool ahead,
                        uint8_t *narrow)
{
    const Plan *p = t[0]->p;
    uint8_t *factor = ctx_alloc(t[0]->c, p->g->len);
    const uint8_t *summed = find_summed(t, n);

    for (Ref r = 1; r < p->g->len; r++) {
        AxisSet axes = p->g->n[r].axes;
        factor[r] = t[0]->o->tile == BF16 && p->stored[r] && axes & (axes - 1);
        for (int i = 0; i < n; i++)
            factor[r] &= t[i]->has[r] || !t[i]->wide[r];
        narrow[r] = factor[r] | (p->stored[r] && is_tile(t[0], r)
                                 && !summed[r]);
    }
    uint8_t *asked = ctx_alloc(t[0]->c, p->g->len);
    memcpy(asked, narrow, p->g->len);
    for (int i = 0; i < n && t[0]->o->scheduled; i++) {
        t[i]->asked = asked;
        t[i]->out->schedule = schedule_of(y, t[i], ahead);
    }
    if (t[0]->o->scheduled && y->drops)
        drop_padded(t, n);
    for (Ref r = 1; r < p->g->len; r++) {
        bool passes = false;
        for (int i = 0; i < n && narrow[r]; i++)
            passes |= t[i]->out->schedule && !t[i]->out->schedule->why
                   && passes_on(t[i], r);
        narrow[r] = factor[r] | (narrow[r] && passes);
    }
}

/* Where each stored value lies among those of its chunk. */
static void place_stored(Search *search, const Prepared *y, bool ahead,
                         int64_t *at, uint8_t *later, uint8_t *narrow)
{
    const Plan *p = y->p;
    Lowered **t = y->t;
    CudaModule *m = y->m;

    find_narrow(search, t, p->nkernels, ahead, narrow);
    for (Ref r = 1; r < p->g->len; r++) {
        if (!p->stored[r])
            continue;
        later[r] = p->split > 0 && p->keeper[r] >= p->split;
        int64_t *bytes = later[r] ? &m->later : &m->kept;
        at[r] = *bytes;
        *bytes += stored_bytes(t[0], r);
    }
}

/* ---- one way to cut it ---- */

/* Two blocks of all chunks on a multiprocessor take hardly less each than one:
 * rwkv7's of 21,600 cycles and 132 bytes spilled are slower than one of 15,400
 * that spills none, kda's of 9,500 and 60 faster than one of as many (an H200).
 */
void lowered_price(Lowered *t)
{
    const double two = 0.85;
    const Schedule *s = t->out->schedule;
    const Kernel *k = &t->p->kernel[t->at];

    t->out->moves = kernel_moves(t->p, t->at, options_machine(t->o));
    t->out->cycles = s && !s->why && !s->tokens.threads ? kernel_cycles(s)
                                  : plain_cycles(t->g, k);
    t->out->alone = t->out->cycles;
    if (!s || s->why || s->tokens.threads)
        return;
    if (s->kind == K_TOKEN)
        t->out->alone *= s->resident > 1 ? two : 1;
    else if (!t->o->few)
        t->out->alone *= (double)s->slices / s->resident;
}

Prepared prepare_as_cut(Search *search, const Plan *p, int *of, bool ahead)
{
    Ctx *c = search->c;
    const CudaOptions *o = search->o;
    Prepared y = { .p = p, .of = of, .m = ctx_alloc(c, sizeof *y.m),
                   .ahead = ahead };
    size_t most = (size_t)(y.p->nkernels + y.p->g->nout + y.p->g->nst);
    int64_t *stored_at = ctx_alloc(c, y.p->g->len * sizeof *stored_at);
    uint8_t *narrow = ctx_alloc(c, y.p->g->len);
    uint8_t *later = ctx_alloc(c, y.p->g->len);
    DType matrices = schedule_tile(p, o->tile);

    y.t = ctx_alloc(c, (size_t)y.p->nkernels * sizeof *y.t);
    y.m->kernel = ctx_alloc(c, most * sizeof *y.m->kernel);
    y.m->chunk = y.p->g->chunk ? y.p->g->chunk : 1;
    y.m->threads = y.m->chunk > 1 ? 512 : 128;
    y.m->units = o->units ? o->units : options_machine(o)->units;
    memcpy(y.m->sum_out, o->sum_out, sizeof y.m->sum_out);
    memcpy(y.m->sum_s1, o->sum_s1, sizeof y.m->sum_s1);
    for (int i = 0; i < y.p->nkernels; i++) {
        y.t[i] = lowered_new(c, y.p, o, y.m, i);
        y.t[i]->ext = search->ext;
        y.t[i]->stored_at = stored_at;
        y.t[i]->stored_narrow = narrow;
        y.t[i]->narrow = matrices;
        y.t[i]->stored_later = later;
        lowered_analyse(y.t[i]);
    }
    place_stored(search, &y, ahead, stored_at, later, narrow);
    for (int i = 0; i < y.p->nkernels; i++)
        lowered_price(y.t[i]);
    y.m->chunk /= rows_of_token(y.p->g); /* in tokens */
    for (int i = 0; i < y.p->nkernels; i++)
        y.m->kernel[i].tokens = y.m->chunk;
    return y;
}

bool lacks_schedule(const Prepared *y, int kernel)
{
    const Schedule *s = y->t[kernel]->out->schedule;
    return !s || s->why;
}
