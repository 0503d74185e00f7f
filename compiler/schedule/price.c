/* price.c -- cycles of a multiprocessor that a block of a kernel takes for a
 * chunk, by what it is made of. Fitted to times of the standard library on an
 * H200, keys and values of 128, 96 heads of 8192 tokens (README, Speed on a
 * GPU): both ways, where those whose way forward is cuda_emit's were all within
 * a quarter, of eight of delta rules seven are (kda 1.20, rwkv7 0.85; comba
 * 1.27); forward by cuda_emit 16 of 18, less kda (1.28) and retnet (1.46).
 */
#include "schedule.h"

#include <math.h>

#include "../cost.h"

/* Cycles an instruction of a walk, of a kernel of all chunks; of one more,
 * that does not fit where a multiprocessor has its instructions at hand; of an
 * inverse for which a walk waits. */
static const double walk_each = 1.52, chunk_each = 3.88, beyond_each = 12,
                    walk_inverse = 10150;

/* A walk forward is a chain, on which programs wait for the one before,
 * whatever they compute: cycles of each of them, of an instruction of the
 * machine. Fitted to 24 such walks, forward alone or saving, of which 23 are
 * within a sixth (mamba3: 0.73). */
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

/* What is done ahead takes from the other role some of what it takes itself;
 * by one warpgroup, longer than by two. Fitted to five walks of 96 heads that
 * are faster so, and three that are not. */
static double forward_cycles(const Schedule *s)
{
    const double beside = 0.5, alone = 1.6;
    double ahead = s->ahead ? role_cycles(s, KR_AHEAD) : 0;

    return fmax(role_cycles(s, KR_MATRIX) + beside * ahead, alone * ahead);
}

/* Instructions; those of sums, and of states' programs, in parts as of whole
 * ones: each part goes through them. What the shorter text saves is not fitted.
 */
static double work_of(const Schedule *s)
{
    double n = schedule_length(s);

    for (int i = 0; i < s->ninsts; i++) {
        KInst whole = s->inst[i];
        whole.parts = 0;
        if (whole.op == K_DECAYED || (whole.parts && whole.row != AX_I))
            n += inst_length(s, &whole) - inst_length(s, &s->inst[i]);
    }
    return n;
}

double schedule_cycles(const Schedule *s)
{
    if (s->kind == K_FORWARD)
        return forward_cycles(s);
    double length = work_of(s);
    double cycles = length * (s->kind == K_TOKEN ? chunk_each : walk_each)
                  + beyond_each * fmax(0, length - MOST_LENGTH);

    for (int i = 0; i < s->ninsts; i++)
        if (s->inst[i].op == K_INVERSE && s->kind != K_TOKEN)
            cycles += walk_inverse;
    return cycles;
}

/* Of an element of a node, and of a token of it. */
typedef struct Cycles { double each, token; } Cycles;

static Cycles cycles_of(const Node *n)
{
    const double simple = 0.0027, hard = 0.102, scanned = 0.32;

    switch (n->op) {
    case OP_gdot:
        return (Cycles){ 0, 22.5 };
    case OP_solve:
        return (Cycles){ 0, 56.7 };
    case OP_cumsum: case OP_scan: case OP_maxscan:
        return (Cycles){ scanned, 7.5 };
    case OP_exp: case OP_log: case OP_tanh: case OP_sigmoid:
    case OP_softplus: case OP_dmask: case OP_div:
        return (Cycles){ hard, 0 };
    case OP_dot: case OP_col: case OP_row: case OP_relabel: case OP_sin:
    case OP_cos: case OP_sum:
        return (Cycles){ 0, 0 };
    default:
        return (Cycles){ node_is_leaf(n) ? 0 : simple, 0 };
    }
}

double nodes_cycles(const Graph *g, const Kernel *k)
{
    const double begin = 981;
    double all = begin, tokens = g->chunk ? g->chunk : 1;

    for (int i = 0; i < k->nnodes; i++) {
        const Node *n = &g->n[k->node[i]];
        Cycles c = cycles_of(n);
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
