/* price.c -- cycles of a multiprocessor that a block of a kernel takes for a
 * chunk, by what it is made of. Fitted to times on an H200 of keys and values
 * of 128. Calls both ways, of 96 heads of 8192 tokens: 17 of 18 of the standard
 * library are within a quarter (mamba3: 0.77).
 */
#include "schedule.h"

#include <math.h>

#include "../cost.h"

enum { FITTED = 90,                     /* the H200 */
       MOST_PRODUCTS = 32 };

/* A walk of a call that goes forward alone makes its scores itself: programs
 * wait for the one before, whatever they compute. Cycles of each of them, of an
 * instruction of the machine. Fitted to 24 such walks, of which 23 are within a
 * sixth (mamba3: 0.73). */
static double role_cycles(const Schedule *s, KRole role)
{
    const double each = 0.25, map = 720, inverse = 1750, scan = 3030,
                 decayed = 2850, beyond = 5.9;
    double length = schedule_length(s), cycles = 0;

    for (int i = 0; i < s->ninsts && role == KR_AHEAD; i++)
        if (s->inst[i].role == role)
            cycles += each * inst_length(s, &s->inst[i]);
    if (role == KR_MATRIX)
        cycles = each * length + beyond * fmax(0, length - MOST_LENGTH);
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->role == role)
            cycles += k->op == K_MAP ? map : k->op == K_INVERSE ? inverse
                    : k->op == K_SCAN ? scan
                    : k->op == K_DECAYED ? decayed : 0;
    }
    return cycles;
}

int count_decays(const Schedule *s, const KInst *k)
{
    int n = 0;

    for (int i = 0; i < k->nnodes; i++)
        n += is_mask(s->g->n[k->node[i]].op) && s->g->n[k->node[i]].a[0];
    return n;
}

/* Of sums along the chunk: a lane has 16 rows of one column or two; with gates,
 * of 32 columns at a time. Fitted to walks of 64 sequences and heads that sum
 * and scale ahead, and no more: 2.9 us a chunk and 4.2 (gla, kda; an H200). */
static double scan_cycles(const Schedule *s, const KInst *k)
{
    const double each = 1300;

    return k->nin > 1 ? each * share_of(s, k->role, k->ncol) / 32 : each;
}

/* Whether nothing but packing waits for the products: others are under way. */
static bool waits_to_pack(const Schedule *s, int settle)
{
    return settle + 1 < s->ninsts && packs_carried(s, &s->inst[settle + 1]);
}

/* Of a role, where states stay in registers: each wait for products, and what
 * programs of matrices are long, all their parts; sums along a chunk, and each
 * of those under decays, which its warpgroups share. Those are fitted to seven
 * walks on an H200, by one warpgroup and by two: all but one that spills are
 * within an eighth. */
static double ordered_cycles(const Schedule *s, KRole role, double settle,
                             double each, double decays, double inverse)
{
    const double early = 200, decayed = 7500;
    double cycles = 0;

    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        KInst whole = *k;               /* parts come one after another */
        whole.parts = 0;
        if (k->role == role && !k->deferred)
            cycles += packs_carried(s, k) ? -early
                    : k->op == K_SETTLE ? waits_to_pack(s, i) ? 0 : settle
                    : k->op == K_MAP ? each * inst_length(s, &whole)
                                       + decays * count_decays(s, k)
                    : k->op == K_INVERSE ? inverse
                    : k->op == K_SCAN ? scan_cycles(s, k)
                    : k->op == K_DECAYED
                      ? decayed * k->nout / warpgroups_of(s, role) : 0;
    }
    return cycles;
}

static int count_of(const Schedule *s, KOp op)
{
    int n = 0;

    for (int i = 0; i < s->ninsts; i++)
        n += s->inst[i].op == op;
    return n;
}

/* Whether it is a walk of a call that goes forward alone, or of training as one
 * of those: scores are made ahead of it. */
static bool goes_forward(const Schedule *s)
{
    return s->kind == K_FORWARD && (!plan_is_joint(s->p) || walks_behind(s));
}

/* Whether its cycles are of half the columns, and so fewer. */
static bool is_halved(const Schedule *s)
{
    return s->row_axis && s->slices > 1 && goes_forward(s);
}

/* Whichever of both roles takes longer; beside one another each takes more, two
 * warpgroups that share what is done ahead the most.
 * Fitted to six walks at 96 heads of 8192 tokens, on an H100 and an H200: those
 * that no memory binds are within a twentieth. Two that alternate, and invert,
 * take less by `solves`: of 4 x 2,048 tokens and 16 heads comba .099 ms,
 * gated_deltanet .075 and deltanet .063, by price .101, .083 and .067, of
 * 2 x 16,384 .53, .44 and .37, by price .54, .48 and .40; or by `features`:
 * lightning .059 and .296, by price .066 and .296. */
static double rows_cycles(const Schedule *s)
{
    const double beside = 1.31, shared = s->ahead > 1 ? 1.6 : beside;
    const double solves = 1.08, features = 1.3;
    double part = is_halved(s) ? half_columns() : 1;
    double each = s->interleave < 2 ? 1 : count_of(s, K_INVERSE) ? solves
                : features;

    double cycles = fmax(beside * ordered_cycles(s, KR_MATRIX, 500, 2.4, 0, 0),
                         shared * ordered_cycles(s, KR_AHEAD, 600, 2.36, 480,
                                                 1526) / each);
    return part * cycles;
}

/* What is done ahead takes from the other role some of what it takes itself;
 * by one warpgroup, longer than by two. Fitted to five walks of 96 heads that
 * are faster so, and three that are not. */
static double forward_cycles(const Schedule *s)
{
    if (s->row_axis)
        return rows_cycles(s);
    const double beside = 0.5, alone = s->ahead > 1 ? 1.05 : 1.6;
    double ahead = s->ahead ? role_cycles(s, KR_AHEAD) : 0;

    return fmax(role_cycles(s, KR_MATRIX) + beside * ahead, alone * ahead);
}

/* Sums, and programs of states, in parts cost as whole ones: each part goes
 * through their instructions. */
static double work_of(const Schedule *s, const KInst *x)
{
    KInst whole = *x;

    if (x->op == K_DECAYED || x->row != AX_I)
        whole.parts = 0;
    return inst_length(s, &whole);
}

/* What a walk does once a chunk; states are found and left once a sequence. */
static double loop_length(const Schedule *s)
{
    double n = 0;

    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op != K_BEGIN && s->inst[i].op != K_END)
            n += work_of(s, &s->inst[i]);
    return n;
}

static double length_of(const Schedule *s, KOp op)
{
    double n = 0;

    for (int i = 0; i < s->ninsts; i++)
        n += s->inst[i].op == op ? work_of(s, &s->inst[i]) : 0;
    return n;
}

/* For instructions that a multiprocessor has not at hand, cycles: kernels of
 * 8000, as estimated, wait for none. What parts save of that is not fitted. */
static double waited_for(const Schedule *s)
{
    const double each = 12, most = 8000;
    double n = schedule_length(s);

    for (int i = 0; i < s->ninsts; i++)
        n += work_of(s, &s->inst[i]) - inst_length(s, &s->inst[i]);
    return each * fmax(0, n - most);
}

/* Matrices of tokens that programs find where they lie in memory, when they
 * want them. */
static int count_late(const Schedule *s)
{
    int n = 0;

    for (int i = 0; i < s->ninsts; i++)
        for (int j = 0; j < s->inst[i].nin && s->inst[i].op == K_MAP; j++) {
            const KValue *v = &s->value[s->inst[i].in[j]];
            n += v->layout == LAY_GLOBAL && v->row == AX_I && v->col >= AX_DIM;
        }
    return n;
}

/* Of a kernel of all chunks, beside the bytes that it waits for: sums under
 * decays take longer than their instructions are many. Fitted to sixteen at
 * 32 sequences and heads of 16384 tokens: all within a sixth. Forward alone
 * what comes late is waited for, by `late` each: kda .68 ms of 96 heads with
 * gates in float32, .51 in 16 bits; gdn2, rwkv7 .91 and 1.26 with two such, by
 * price .93 and 1.23. */
static double token_cycles(const Schedule *s)
{
    const double each = 1.23, decayed = 4.15, inverse = 870, begin = 700;
    const double late = plan_is_joint(s->p) ? 0 : 3000;

    return begin + each * loop_length(s) + decayed * length_of(s, K_DECAYED)
         + inverse * count_of(s, K_INVERSE) + waited_for(s)
         + late * count_late(s);
}

/* Waits for products, beyond the six that other walks have at most: the delta
 * rule's that is all of its way back has 14, and takes 9.7 us a chunk of one
 * block (an H200, of 16, 32 and 96 heads). */
static double waited_for_products(const Schedule *s)
{
    const double each = 1200, counted = 6;

    return each * fmax(0, count_of(s, K_SETTLE) - counted);
}

static double flops_of(const Schedule *s, const KInst *k)
{
    const KValue *a = &s->value[k->in[0]];

    return 2.0 * k->ncol * a->nrow * a->ncol;
}

static double product_flops(const Schedule *s)
{
    double all = 0;

    for (int i = 0; i < s->ninsts; i++) {
        if (s->inst[i].op == K_PRODUCT)
            all += flops_of(s, &s->inst[i]);
    }
    return all;
}

/* Of a walk whose states stay in registers: when its matrix role has done what
 * it has to so far, and its products have, of which each begins behind the one
 * before it. */
typedef struct Turn {
    double now, busy, end[MOST_PRODUCTS];
    int products;
} Turn;

/* A warpgroup's warps have a scheduler each, and hide nothing of one another's
 * waits; a warpgroup has its own rows. What tells others of a tile waits until
 * it is written, and for the products that are under way. Cycles of an
 * instruction, of a fence, and behind a product are read off the clock within
 * two iterations of four such walks (gated_deltanet, kda; an H200), and fitted
 * to the times of six of 32 and 16 heads, which are within a ninth; those of
 * two warpgroups that no memory binds take up to 1.3 times as long. */
static void turn_once(const Schedule *s, bool together, Turn *t)
{
    const double each = 1.6, told = 100, ended = 70;
    double rate = s->target->flops * (together ? 1 : s->groups);

    t->products = 0;
    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        int last = k->op == K_SETTLE ? t->products - k->index - 1
                 : k->post_full ? t->products - 1 : NOTHING;
        if (k->role != KR_MATRIX || k->op == K_BEGIN || k->op == K_END)
            continue;
        t->now += k->op == K_SETTLE ? 0 : each * work_of(s, k) / s->groups;
        if (k->op == K_PRODUCT && t->products < MOST_PRODUCTS) {
            t->busy = fmax(t->busy, t->now) + flops_of(s, k) / rate;
            t->end[t->products++] = t->busy;
        }
        if (last >= 0)
            t->now = fmax(t->now, t->end[last] + ended);
        t->now += k->post_full ? told : 0;
    }
}

/* An iteration behind another; of all warpgroups their products at least.
 * together: those of one wait for those of another, as where both begin at
 * once. */
static double turn_cycles(const Schedule *s, bool together)
{
    Turn t = { 0 };

    turn_once(s, together, &t);
    double first = t.now;
    turn_once(s, together, &t);
    return fmax(t.now - first, product_flops(s) / s->target->flops);
}

/* Of a block: what it has no slice of, those of the other slices find in the
 * cache. */
static double iteration_bytes(const Schedule *s)
{
    double all = 0;

    for (int i = 0; i < s->ninsts; i++) {
        const KInst *k = &s->inst[i];
        if (k->op != K_LOAD && k->op != K_STORE)
            continue;
        const KValue *v = &s->value[k->op == K_LOAD ? k->out[0] : k->in[0]];
        bool own = s->slices < 2 || v->row == s->slice_axis
                || v->col == s->slice_axis;
        all += value_bytes(v) / (own ? 1.0 : s->slices);
    }
    return all;
}

/* Of a walk of training, forward or back, whose blocks have all of a head's
 * columns or a slice of them: instructions wait for one another. Fitted to ten
 * of slices, there: all within an eighth. */
static double walk_cycles(const Schedule *s)
{
    if (s->row_axis)
        return turn_cycles(s, false);
    const double each = 3, decayed = 3.1, inverse = 8300;

    return each * loop_length(s) + decayed * length_of(s, K_DECAYED)
         + inverse * count_of(s, K_INVERSE) + waited_for(s)
         + waited_for_products(s);
}

/* What such a walk waits for memory: a block of slices moves 18 bytes a cycle
 * (gla, rwkv6, gdn2, kda, both ways, of 32 heads: they take as long within a
 * tenth, iplr forward four fifths, gdn2 forward a third more); and where states
 * are rows, what has one place comes when it is free (iplr: 2350 cycles of
 * 106496 bytes). */
static double moved_cycles(const Schedule *s)
{
    const double moved = 18, single = 45;
    double cycles = walk_cycles(s);

    if (!s->row_axis)
        return s->slices < 2 ? cycles
                             : fmax(cycles, iteration_bytes(s) / moved);
    for (int i = 0; i < s->nbuffers; i++) {
        const KBuffer *b = &s->buffer[i];
        cycles += b->copied && b->depth < 2 ? b->bytes / single : 0;
    }
    return cycles;
}

/* What products take longer than those that these prices were fitted to. */
static double slower_products(const Schedule *s)
{
    const double here = s->target->form[FORM_PRODUCT]->times
                      / s->target->flops;

    return product_flops(s) * fmax(0, here - 1 / machine_flops(FITTED));
}

double schedule_cycles(const Schedule *s)
{
    double all = s->kind == K_TOKEN ? token_cycles(s)
               : goes_forward(s) ? forward_cycles(s) : moved_cycles(s);
    return all + slower_products(s);
}

/* Schedules are told apart by what two warpgroups take at best; walks for ends
 * of 16 heads of 32768 tokens in eight segments take .109 and .158 ms
 * (gated_deltanet; an H200), by price .119 and .157 if these wait for one
 * another, else .086 and .135. By what blocks move, too; plans are not: rwkv6
 * of 32 heads takes 2.28 ms, and 2.55 in that which is cheaper so. */
double kernel_cycles(const Schedule *s)
{
    const double least = 2470;
    bool forward = goes_forward(s), joint = plan_is_joint(s->p) && !forward;
    bool rows = s->row_axis && forward;

    if (joint && s->kind != K_TOKEN)
        return (s->row_axis ? turn_cycles(s, true) : walk_cycles(s))
             + slower_products(s);
    if (!rows)
        return schedule_cycles(s);
    return fmax(least * (is_halved(s) ? half_columns() : 1),
                schedule_cycles(s));
}

/* ---- lean iterations ---- */

static Schedule lean_turn(const Schedule *s)
{
    Schedule lean = *s;

    lean.inst = ctx_alloc(s->c, (size_t)s->ninsts * sizeof *lean.inst);
    lean.ninsts = 0;
    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].lean)
            lean.inst[lean.ninsts++] = lean_inst(s, &s->inst[i]);
    return lean;
}

/* Whichever role takes longer by itself: of half the columns that is about what
 * it takes beside the other. */
static double slower_role(const Schedule *s)
{
    return fmax(ordered_cycles(s, KR_MATRIX, 500, 2.4, 0, 0),
                ordered_cycles(s, KR_AHEAD, 600, 2.36, 480, 1526));
}

double lean_moves(const Schedule *s)
{
    Schedule lean = lean_turn(s);

    return iteration_bytes(&lean) / iteration_bytes(s);
}

/* Beside the shares that were fastest of 16 heads of 2 x 16384 tokens (an H200,
 * among .5, .62, .74, .85): deltanet .73 (.74), gated_deltanet .68 (.74); where
 * nothing is done ahead in lean iterations (among .45, .5, .55, .6) linear .50
 * (all alike), simple_gla .50 (.5), mamba2 .50 (.45, .5). */
double lean_share(const Schedule *s, const Machine *m)
{
    const double most = 0.85, alone = 0.75;
    double each = m->units * m->clock / m->bandwidth;   /* cycles a byte */
    Schedule lean = lean_turn(s);
    double whole = fmax(slower_role(s), each * iteration_bytes(s));
    double role = slower_role(&lean);

    if (ordered_cycles(&lean, KR_AHEAD, 600, 2.36, 480, 1526) <= 0)
        role *= alone;
    return fmin(most, fmax(role, each * iteration_bytes(&lean)) / whole);
}

#define SIMPLE 0.0027

/* Of an element of a node, and of a token of it. */
typedef struct Cycles { double each, token; } Cycles;

static Cycles cycles_of(const Graph *g, const Node *n)
{
    const double hard = 0.102, scanned = 0.32, decayed = 22.5, solved = 56.7;

    if (is_ramp(g, n))
        return (Cycles){ SIMPLE, 0 };
    if (op_is(n->op, RECURS))
        return (Cycles){ scanned, 7.5 };
    if ((n->op == OP_sin || n->op == OP_cos)    /* neighbours have one angle */
        && is_ramp(g, &g->n[g->n[n->a[0]].a[0]]))
        return (Cycles){ hard / 2, 0 };
    if (op_is(n->op, HARD))
        return (Cycles){ hard, 0 };
    if (is_decayed_contraction(n->op))
        return (Cycles){ 0, decayed };
    if (op_is(n->op, MULTIPLIES) && !op_is(n->op, ADDS_UP))
        return (Cycles){ 0, solved };
    bool none = op_is(n->op, ADDS_UP | RENAMES) || node_is_leaf(n);
    return (Cycles){ none ? 0 : SIMPLE, 0 };
}

double nodes_cycles(const Graph *g, const Kernel *k)
{
    const double begin = 981;
    double all = begin, tokens = g->chunk ? g->chunk : 1;

    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &g->n[k->node[i]];
        Cycles c = cycles_of(g, n);
        all += c.token * tokens
             + c.each * (double)axes_size(g, n->axes | n->over);
    }
    return all;
}

/* Without wgmma or a copy engine: two kernels of simple_gla's, measured. */
double plain_cycles(const Graph *g, const Kernel *k)
{
    const double times = 4, each_flop = 0.0017;

    return times * nodes_cycles(g, k) + each_flop * k->flops;
}
