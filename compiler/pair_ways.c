/* pair_ways.c -- shapes of both ways back over all pairs of tokens, counted
 * and priced.
 */
#include "pair_ways.h"

#include <math.h>
#include <string.h>

/* What fewer steps may cost in words: kernels with steps of one token took
 * three times those with steps of four and eight on an H200, K = V = 128. */
#define WORTH_STEPS 1.5

enum { FLOAT = 4, STEP_MOST = 32, SAMPLES = 64, SMALLEST = 16,
       SECTOR = 32 };                   /* bytes that are moved at least */

typedef struct Plane {                  /* what both ways know of the mask */
    Ctx *c;
    const Mask *m;
    const PairAsk *ask;
    const Machine *on;
    double pairs;
    int rows, cols, numbers;            /* leaves: of queries, keys, heads */
    bool scores;                        /* pair_reads_scores */
    int soft;                           /* numbers of a row beside q and dy */
} Plane;

/* ---- pairs ---- */

/* A stretch of steps, inclusive. */
typedef struct Stretch { double from, to; } Stretch;

/* What of the other side piece r has for own tokens from .. to. */
static Stretch others(const Region *r, bool of_keys, double from, double to)
{
    const int own = of_keys ? VAR_J : VAR_I, other = of_keys ? VAR_I : VAR_J;
    double near = (double)r->lo[VAR_DISTANCE];
    double far = (double)r->hi[VAR_DISTANCE];

    if (to < (double)r->lo[own] || from > (double)r->hi[own])
        return (Stretch){ 0, -1 };
    return (Stretch){
        fmax((double)r->lo[other], of_keys ? from + near : from - far),
        fmin((double)r->hi[other], of_keys ? to + far : to - near) };
}

static void sort_in(Stretch *list, int n, Stretch x)
{
    while (n > 0 && list[n - 1].from > x.from) {
        list[n] = list[n - 1];
        n--;
    }
    list[n] = x;
}

/* Tokens of the other side that stream past own tokens from .. to, as many at
 * once as a step has: steps without a pair are passed over. As the kernels'. */
static double streamed(const Plane *p, bool of_keys, double from, double to,
                       int step, double *steps)
{
    const Mask *m = p->m;
    double last = p->ask->tokens - 1, first = last, end = -1, sum = 0, done = 0;
    Stretch list[MAX_PATHS];
    int n = 0;

    *steps = 0;
    for (int k = 0; k < m->npieces; k++) {
        Stretch s = others(&m->piece[k].at, of_keys, from, to);
        if (pair_masked(m, m->piece[k].value))
            continue;
        s.from = fmax(s.from, of_keys && !m->whole ? from : 0);
        s.to = fmin(s.to, of_keys || m->whole ? last : to);
        if (s.from > s.to)
            continue;
        first = fmin(first, s.from);
        end = fmax(end, s.to);
        sort_in(list, n++, s);
    }
    for (int k = 0; k < n; k++) {
        double a = fmax(floor((list[k].from - first) / step), done);
        double b = floor((list[k].to - first) / step);
        if (a > b)
            continue;
        sum += fmin((b + 1) * step, end - first + 1) - a * step;
        *steps += b - a + 1;
        done = b + 1;
    }
    return sum;
}

/* The same summed over all parts of so many own tokens; of many parts as those
 * have it that are taken of them. *again: own tokens, once for each step. */
static double visits(const Plane *p, bool of_keys, int own, int step,
                     double *again)
{
    double tokens = p->ask->tokens, parts = ceil(tokens / own), sum = 0;
    double taken = fmin(parts, SAMPLES), steps;

    *again = 0;
    for (double n = 0; n < taken; n++) {
        double at = floor((n + 0.5) * parts / taken) * own;
        double end = fmin(at + own, tokens);
        sum += streamed(p, of_keys, at, end - 1, step, &steps);
        *again += steps * (end - at);
    }
    *again *= parts / taken;
    return sum * parts / taken;
}

/* ---- memory ---- */

/* Rows of matrices lie an odd number of floats apart, so that lanes with a row
 * each meet no bank twice. */
static int odd(int n) { return n | 1; }

static int wider(const PairAsk *a)
{
    return a->key > a->value ? a->key : a->value;
}

static int columns_of(const PairAsk *a, int kernel)
{
    return kernel == PAIR_VALUES ? a->value : kernel == PAIR_SCORES ? wider(a)
         : a->key;
}

static double room_of(const Plane *p, AttentionWay way, int kernel,
                      PairShape s)
{
    const PairAsk *a = p->ask;
    double both = odd(a->key) + odd(a->value);
    double more = kernel == PAIR_KEYS ? p->cols
                : kernel == PAIR_QUERIES ? p->rows + p->numbers : 0;
    double own = kernel == PAIR_KEYS ? 2 * both : both + odd(a->key);

    if (way == BLOCKS)
        return s.own * (own + more) + s.step * both + 2. * s.step * s.own;
    if (kernel == PAIR_SCORES)
        return (double)(s.own + s.step) * odd(s.wide) + (double)s.step * s.own;
    return s.own * (s.wide + more) + s.step * s.wide + (double)s.step * s.own;
}

/* As many own tokens as fit, of a square of scores as many that stream, too. */
static bool set_own(const Plane *p, AttentionWay way, int kernel, double floats,
                    bool square, PairShape *s)
{
    PairShape one = *s, none = *s;
    double most = fmin(ceil(p->ask->tokens), 1 << 14);

    one.own = 1;
    none.own = 0;
    if (square) {
        double w = odd(s->wide);
        s->own = (int)fmin(sqrt(w * w + floats) - w, most);
        s->step = s->own;
        return s->own >= 1;
    }
    double rest = room_of(p, way, kernel, none);
    double each = room_of(p, way, kernel, one) - rest;
    s->own = (int)fmax(fmin(floor((floats - rest) / each), most), 0);
    return s->own >= 1;
}

/* ---- bytes ---- */

static double leaf_bytes(const Plane *p)
{
    return p->m->softmax || p->rows + p->cols ? 8. * (p->rows + p->cols) : 0;
}

static double bytes_of(const Plane *p, AttentionWay way, int kernel,
                       PairShape s)
{
    const PairAsk *a = p->ask;
    bool of_keys = kernel != PAIR_QUERIES;
    double n = a->tokens, e = a->element, both = a->key + a->value;
    double again, seen = visits(p, of_keys, s.own, s.step, &again);
    double soft = FLOAT * p->soft, leaves = p->pairs * leaf_bytes(p);

    if (way == BLOCKS && kernel == PAIR_KEYS)
        return n * 2 * both * e + seen * (both * e + soft) + leaves;
    if (way == BLOCKS)
        return n * (2 * a->key + a->value) * e + n * soft + seen * both * e
             + leaves;
    if (kernel == PAIR_SCORES) {
        double own = s.wide >= wider(a) ? n : again;
        return (own + seen) * both * e + seen * soft
             + 3 * FLOAT * p->pairs + leaves;
    }
    int of = columns_of(a, kernel);
    double slices = ceil((double)of / s.wide);
    double read = kernel == PAIR_VALUES || !p->scores ? 1 : 2;
    double lse = kernel == PAIR_VALUES ? soft / 2 : 0;
    return seen * (of * e + slices * lse) + slices * read * FLOAT * p->pairs
         + n * of * e + (kernel == PAIR_VALUES || p->scores ? leaves : 0);
}

/* Parts that blocks have of a head, in slices of its columns. */
static double blocks_of(const Plane *p, AttentionWay way, int kernel,
                        PairShape s)
{
    double slices = way == TILES && kernel != PAIR_SCORES
                  ? ceil((double)columns_of(p->ask, kernel) / s.wide) : 1;

    return ceil(p->ask->tokens / s.own) * slices;
}

/* A processor does so many blocks one after another, whatever is left over. */
static double idle_of(const Plane *p, AttentionWay way, int kernel,
                      PairShape s)
{
    double blocks = blocks_of(p, way, kernel, s) * p->ask->heads;

    return ceil(blocks / p->on->units) * p->on->units / blocks;
}

/* Of parts that are taken of all, as visits has them. */
static void count_steps(const Plane *p, bool of_keys, PairShape s,
                        PairBlocks *b)
{
    double tokens = p->ask->tokens;

    b->parts = ceil(tokens / s.own);
    b->n = (int)fmin(b->parts, SAMPLES);
    for (int n = 0; n < b->n; n++) {
        double at = floor((n + 0.5) * b->parts / b->n) * s.own;
        streamed(p, of_keys, at, fmin(at + s.own, tokens) - 1, s.step,
                 &b->steps[n]);
    }
}

/* Of `heads` at a time. */
static double seconds_of(const Plane *p, AttentionWay way, int kernel,
                         PairShape s, int room, double bytes, double heads)
{
    double turns = ceil(p->ask->heads / heads), of = p->ask->heads / turns;
    PairBlocks b;

    count_steps(p, kernel != PAIR_QUERIES, s, &b);
    b.beside = of * blocks_of(p, way, kernel, s) / b.parts;
    return turns * (p->on->launch
                    + fmax(of * bytes / p->on->bandwidth,
                           pair_seconds(p->c, p->ask, p->on, way, kernel, s,
                                        room, &b)));
}

/* ---- the best shape ---- */

/* moved: bytes, and as many more as processors are idle; least: of all that
 * were tried. */
typedef struct Best { PairShape s; double bytes, moved, least; } Best;

static void try_shape(const Plane *p, AttentionWay way, int kernel,
                      PairShape s, Best *b)
{
    double bytes = bytes_of(p, way, kernel, s);
    double moved = bytes * idle_of(p, way, kernel, s);
    double least = b->s.own ? fmin(b->least, moved) : moved;
    bool worth = moved <= WORTH_STEPS * least && s.step > b->s.step;
    bool less = moved < b->moved
             && (s.step == b->s.step || b->moved > WORTH_STEPS * least);

    b->least = least;
    if (!b->s.own || worth || less)
        *b = (Best){ s, bytes, moved, least };
}

static void try_widths(const Plane *p, AttentionWay way, int kernel,
                       double floats, int step, Best *b)
{
    int all = columns_of(p->ask, kernel), last = 0;

    if (way == BLOCKS) {
        PairShape s = { 0, step, all };
        if (set_own(p, way, kernel, floats, false, &s))
            try_shape(p, way, kernel, s, b);
        return;
    }
    for (int parts = 1; parts <= all; parts *= 2) {
        PairShape s = { 0, step, (all + parts - 1) / parts };
        bool square = kernel == PAIR_SCORES && parts > 1;
        if (s.wide == last || (square && (s.wide > STEP_MOST || step > 1)))
            continue;
        if (parts > 1 && s.wide * p->ask->element < SECTOR)
            break;
        last = s.wide;
        if (set_own(p, way, kernel, floats, square, &s))
            try_shape(p, way, kernel, s, b);
    }
}

/* Of a kernel, in all of the memory or in a part, which more blocks have. */
static Best best_shape(const Plane *p, AttentionWay way, int kernel)
{
    double floats = floor((double)p->ask->memory / FLOAT);
    Best best = { .bytes = 0 };

    for (int part = 1; part <= SMALLEST; part *= 2) {
        Best b = { .bytes = 0 };
        for (int step = 1; step <= STEP_MOST; step *= 2)
            try_widths(p, way, kernel, floor(floats / part), step, &b);
        if (b.s.own && (!best.s.own || b.moved < best.moved))
            best = b;
    }
    return best;
}

/* ---- both ways ---- */

bool pair_reads_scores(Ctx *c, const Mask *m)
{
    Mask *own = mask_copy(c, m);
    bool reads = false;

    for (int k = 0; k < own->npieces; k++) {
        Ref value = own->piece[k].value, of[MAX_INPUTS] = { 0 };
        if (pair_masked(own, value))
            continue;
        pair_derive(own, value, of);
        for (int i = 0; i < own->g->nin; i++)
            reads = reads || (own->leaf[i].kind == LEAF_SCORE
                              ? of[i] && !is_num(own->g, of[i], 1)
                              : of[i] != 0);
    }
    return reads;
}

static Plane plane_of(Ctx *c, const Mask *m, const PairAsk *ask,
                      const Machine *on)
{
    Plane p = { .c = c, .m = m, .ask = ask, .on = on,
                .scores = pair_reads_scores(c, m), .soft = m->softmax ? 2 : 0 };
    double again;

    for (int n = 0; n < m->g->nin; n++) {
        const Leaf *l = &m->leaf[n];
        bool token = l->kind == LEAF_TOKEN || l->kind == LEAF_CUMSUM;
        p.rows += token && l->side == SIDE_I;
        p.cols += token && l->side == SIDE_J;
        p.numbers += l->kind == LEAF_CONSTANT;
    }
    p.pairs = visits(&p, true, 1, 1, &again);
    return p;
}

int64_t pair_band(const Mask *m)
{
    enum { FAR = 1 << 30 };             /* as far as any token */
    Reach reach;

    return !m->whole && mask_ends(m, &reach) && !reach.first
           && reach.width < FAR ? reach.width : 0;
}

int pair_heads(const PairWay *way, const Machine *on, int64_t heads,
               int64_t memory, const int64_t slots[PAIR_KERNELS])
{
    int64_t least = 1;

    for (int k = 0; k < PAIR_KERNELS; k++) {
        int64_t there = (int64_t)(on->units * pair_resident(on, way->room[k]));
        int64_t n = way->shape[k].own ? there / (slots[k] ? slots[k] : 1) + 1
                                      : 1;
        least = n > least ? n : least;
    }
    int64_t most = memory ? PAIR_SCORES_MOST / memory : heads;
    least = least < most ? least : most ? most : 1;
    int64_t turns = (heads + least - 1) / least;
    return turns > 1 ? (int)((heads + turns - 1) / turns) : (int)heads;
}

static double heads_of(const Plane *p, const PairWay *way)
{
    int64_t slots[PAIR_KERNELS];
    double width = p->ask->tokens;

    if (way->way == BLOCKS)
        return p->ask->heads;
    for (int k = 0; k < PAIR_KERNELS; k++)
        slots[k] = way->shape[k].own
                 ? (int64_t)ceil(p->ask->tokens / way->shape[k].own) : 0;
    if (pair_band(p->m))
        width = fmin(width, (double)pair_band(p->m));
    return pair_heads(way, p->on, (int64_t)p->ask->heads,
                      (int64_t)(2 * FLOAT * width * p->ask->tokens), slots);
}

static bool find_way(const Plane *p, AttentionWay way, PairWay *out)
{
    *out = (PairWay){ .way = way };
    for (int k = 0; k < PAIR_KERNELS; k++) {
        if (way == BLOCKS && k >= PAIR_VALUES)
            break;
        Best b = best_shape(p, way, k);
        if (!b.s.own)
            return false;
        out->shape[k] = b.s;
        out->room[k] = FLOAT * (int)room_of(p, way, k, b.s);
        out->moved[k] = b.bytes;
        out->bytes += b.bytes;
    }
    double heads = heads_of(p, out);
    for (int k = 0; k < PAIR_KERNELS; k++) {
        if (!out->shape[k].own)
            continue;
        out->seconds[k] = seconds_of(p, way, k, out->shape[k], out->room[k],
                                     out->moved[k], heads);
        out->all += out->seconds[k];
    }
    return true;
}

bool pair_way(Ctx *c, const Mask *m, const PairAsk *ask, const Machine *on,
              AttentionWay way, PairWay *out)
{
    Plane p = plane_of(c, m, ask, on);

    return find_way(&p, way, out);
}

bool pair_takes_tiles(const PairWay *tiles, const PairWay *blocks)
{
    return tiles && (!blocks || tiles->bytes < blocks->bytes);
}

PairWay pair_best_way(Ctx *c, const Mask *m, const PairAsk *ask,
                      const Machine *on)
{
    Plane p = plane_of(c, m, ask, on);
    PairWay blocks, tiles;
    bool has_blocks = find_way(&p, BLOCKS, &blocks);
    bool has_tiles = find_way(&p, TILES, &tiles);

    if (!has_blocks && !has_tiles)
        fail(c, 0, "%lld bytes of a block's memory are too few for the way "
             "back over all pairs of tokens", (long long)ask->memory);
    return pair_takes_tiles(has_tiles ? &tiles : NULL,
                            has_blocks ? &blocks : NULL) ? tiles : blocks;
}
