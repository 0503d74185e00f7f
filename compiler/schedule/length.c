/* length.c -- how many instructions of the machine a schedule becomes, and what
 * makes them fewer. A multiprocessor keeps some 8,000 at hand: a block that
 * goes through more for each item waits for them each time.
 */
#include "schedule.h"

/* Of a schedule and its roles; of an instruction; then, in tenths, of an
 * element that a lane has. Fitted to 61 kernels of the standard library, as
 * `tests/cuda/scheduled compile` counts them: most are within a tenth. */
enum { LEN_BEGIN = 800, LEN_LOAD = 10, LEN_STORE = 40, LEN_VECTOR = 75,
       LEN_VECTOR_NODE = 21, LEN_PRODUCT = 37, LEN_SCAN = 75, LEN_GATED = 525,
       LEN_INVERSE = 610, LEN_SCORES = 460, LEN_STATE = 200,
       LEN_ELSE = 13, LEN_MAP = 23, LEN_FOUND = 34, LEN_COLUMNS = 50 };
enum { EACH_SHARE = 40, EACH_DECAYED = 320, EACH_STATE = 140,
       EACH_FOUND = 24, EACH_READ = 9, EACH_NODE = 14, EACH_EXP = 40,
       EACH_SINE = 20, EACH_TILE = 22, EACH_LEFT = 17 };

static int elements(const Schedule *s, const KInst *k)
{
    int parts = k->parts ? k->parts : 1;
    return (k->nrow + TILE_ROWS - 1) / TILE_ROWS
         * share_of(s, k->role, k->ncol) / 2 / parts;
}

static int node_length(const Node *n)
{
    return n->op == OP_exp ? EACH_EXP : n->op == OP_sin || n->op == OP_cos
        || n->op == OP_tanh || n->op == OP_div ? EACH_SINE : EACH_NODE;
}

/* Whether both of a pair of columns have the same of the program's node, which
 * is of pairs. */
static bool is_of_pairs(const Schedule *s, const KInst *k, Ref r)
{
    return k->row == AX_I && k->col >= AX_DIM
        && !(s->g->n[r].axes & AXIS(k->col));
}

static bool is_of_tokens(const KValue *v)
{
    return v->nrow > 1 && v->ncol > 1;
}

static int map_length(const Schedule *s, const KInst *k)
{
    int all = 10 * LEN_MAP, e = elements(s, k);
    for (int i = 0; i < k->nin; i++) {
        const KValue *v = &s->value[k->in[i]];
        bool found = v->layout == LAY_GLOBAL && is_of_tokens(v);
        all += found ? 10 * LEN_FOUND + EACH_FOUND * e
             : v->layout == LAY_TILE || v->layout == LAY_SUMS ? EACH_READ * e
             : 0;
    }
    for (int i = 0; i < k->nnodes; i++)
        all += node_length(&s->g->n[k->node[i]]) * e
             / (is_of_pairs(s, k, k->node[i]) ? 2 : 1);
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &s->value[k->out[i]];
        bool columns = v->layout >= LAY_VECTOR && v->row != k->row;
        all += v->layout == LAY_TILE || v->layout == LAY_WIDE ? EACH_TILE * e
             : v->layout == LAY_SUMS || v->layout == LAY_GLOBAL ? EACH_LEFT * e
             : columns ? 10 * LEN_COLUMNS : 0;
    }
    return all / 10;
}

/* Of a fragment, or of a vector. */
static int state_length(const Schedule *s, const KInst *k)
{
    int v = k->nout ? k->out[0] : k->nin ? k->in[0] : NOTHING;
    bool fragment = v != NOTHING && s->value[v].layout == LAY_FRAGMENT;
    return LEN_STATE + (fragment ? EACH_STATE * fragment_regs(s, &s->value[v])
                                   / 10 : 0);
}

int inst_length(const Schedule *s, const KInst *k)
{
    switch ((KOp)k->op) {
    case K_LOAD:    return LEN_LOAD;
    case K_VECTOR:  return LEN_VECTOR + LEN_VECTOR_NODE * k->nnodes;
    case K_PRODUCT: return LEN_PRODUCT;
    case K_INVERSE: return LEN_INVERSE;
    case K_STORE:
        return has_matrices(k->role)
             ? EACH_SHARE * fragment_regs(s, &s->value[k->in[0]]) / 10
             : LEN_STORE;
    case K_SCAN:
        return adds_tokens(s->g->n[s->value[k->out[0]].node].op)
             ? LEN_SCAN : LEN_GATED;
    case K_DECAYED:
        return k->nout * (k->col == AX_J ? LEN_SCORES
                          : EACH_DECAYED * elements(s, k) / 10);
    case K_MAP:     return map_length(s, k);
    case K_BEGIN: case K_END: return state_length(s, k);
    case K_CLEAR: case K_CARRY: case K_SETTLE: case K_ACROSS: case K_SYNC:
    case K_PARTIAL: case K_SOLVE: case NKOPS: break;
    }
    return LEN_ELSE;
}

int schedule_length(const Schedule *s)
{
    int n = LEN_BEGIN;
    for (int i = 0; i < s->ninsts; i++)
        n += inst_length(s, &s->inst[i]);
    return n;
}

/* ---- columns in parts ---- */

/* Sums under decays, of other columns than scores have. */
static bool is_decayed_sum(const KInst *k)
{
    return k->op == K_DECAYED && k->col != AX_J;
}

bool may_be_in_parts(const Schedule *s, const KInst *k)
{
    uint32_t several = 0;
    if (is_decayed_sum(k))
        return share_of(s, k->role, k->ncol) % PART_COLS == 0;
    if (k->op != K_MAP || share_of(s, k->role, k->ncol) % PART_COLS)
        return false;
    for (int i = 0; i < k->nin; i++) {
        int lay = s->value[k->in[i]].layout;
        if (lay == LAY_FRAGMENT || lay == LAY_WIDE || lay == LAY_INVERSE)
            return false;
    }
    for (int i = 0; i < k->nout; i++) {
        const KValue *v = &s->value[k->out[i]];
        bool has_several = v->layout == LAY_TILE
                        && s->buffer[v->buffer].uses > 1;
        if (v->layout == LAY_FRAGMENT || v->layout == LAY_WIDE
            || v->layout == LAY_INVERSE
            || (has_several && several >> v->buffer & 1))
            return false;
        several |= has_several ? 1u << v->buffer : 0;
    }
    return k->nin > 0;
}

static bool finds_matrix(const Schedule *s, const KInst *k)
{
    for (int i = 0; i < k->nin; i++)
        if (s->value[k->in[i]].layout == LAY_GLOBAL
            && is_of_tokens(&s->value[k->in[i]]))
            return true;
    return false;
}

/* Cycles that so many parts save, a chunk: each instruction that does not fit
 * is waited for; each part waits for what it reads, longer for memory; one of
 * sums goes through the scores again. */
static int gain(const Schedule *s, const KInst *k, int parts)
{
    enum { WAIT = 8, SHARED = 80, MEMORY = 700, SCORES = 1100 };
    KInst cut = *k;
    cut.parts = (uint8_t)parts;
    return WAIT * (inst_length(s, k) - inst_length(s, &cut))
         - (parts - 1) * (is_decayed_sum(k) ? SCORES
                          : finds_matrix(s, k) ? MEMORY : SHARED);
}

/* The number of parts that saves most, of those that there may be; 0: none. */
static int best_parts(const Schedule *s, const KInst *k)
{
    int best = 0, most = 0;
    if (k->parts || !may_be_in_parts(s, k))
        return 0;
    int all = share_of(s, k->role, k->ncol) / PART_COLS;
    for (int parts = 2; parts <= all; parts++)
        if (all % parts == 0 && gain(s, k, parts) > most) {
            best = parts;
            most = gain(s, k, parts);
        }
    return best;
}

/* Until the text is short enough; `all`: not only programs of tokens. */
static void shorten(Schedule *s, bool all)
{
    while (schedule_length(s) > MOST_LENGTH) {
        KInst *best = NULL;
        int most = 0;
        for (int i = 0; i < s->ninsts; i++) {
            KInst *k = &s->inst[i];
            bool may = all || (k->op == K_MAP && k->row == AX_I);
            int parts = may ? best_parts(s, k) : 0;
            if (parts && gain(s, k, parts) > most) {
                best = k;
                most = gain(s, k, parts);
            }
        }
        if (!best)
            return;
        best->parts = (uint8_t)best_parts(s, best);
    }
}

/* Requires buffers. What a program makes of memory alone, in memory, it may
 * make of some columns after others: the text is as much shorter. So may sums
 * under decays, and what is made of states, which go through what parts have in
 * common again: that takes longer where the text is not far too long (by 14 %
 * at 7300 instructions as estimated; at 9800 a third less). */
void schedule_shorten(Schedule *s)
{
    enum { FAR = 9500 };

    shorten(s, false);
    if (schedule_length(s) > FAR)
        shorten(s, true);
}

/* Requires buffers. Where several warpgroups ahead have few registers, what
 * they make of tiles, in tiles, is made of as many columns at a time as do with
 * these; beside one that carries states they have about twice as many. */
void schedule_slim(Schedule *s)
{
    enum { LEAST = 24 };
    int few = s->groups > 1 ? LEAST : 2 * LEAST;

    for (int i = 0; i < s->ninsts && s->ahead * s->interleave > 1; i++) {
        KInst *k = &s->inst[i];
        int all = share_of(s, KR_AHEAD, k->ncol) / PART_COLS;
        if (k->role != KR_AHEAD || k->op != K_MAP || k->row != AX_I
            || !may_be_in_parts(s, k))
            continue;
        for (int parts = 2; parts <= all && program_registers(s, k) > few;
             parts++)
            k->parts = (uint8_t)(all % parts ? k->parts : parts);
    }
}
