/* scores_price.c -- what sums over pairs take, and the states in their place.
 */
#include "scores.h"

#include <math.h>

/* Of the rate of products on an H200: what pairs' tiles attain, forward, and
 * both ways (their way back makes scores again), as measured for second-order
 * Taylor features (K = V = 128, T 2048, 32 and 96 heads: 1.39 and 1.33 ns a
 * token and head forward, 5.06 and 5.00 both ways); as estimated from walks'
 * times: what walks with states attain whose state a block holds, and whose
 * state lies in memory. */
#define TILES_FORWARD 0.85
#define TILES_BACK 0.75
#define STATES_HELD 0.4
#define STATES_IN_MEMORY 0.05

enum { WIDE = 128, TILE = 64, OWN = 128 };

/* Of the rate of elements: what plans of bands predict on GPUs of three
 * architectures (K = V = 128) for products with each place of the rings, by
 * mma.sync, and with the chunk's tokens; for those of few tokens, which have no
 * rings; and what a warp a row is reckoned to attain, each lane of which reads
 * a key of its own from the caches. */
#define RINGS 1.5
#define TAPS 0.75
#define PLAIN 0.15

enum { RING_CHUNK = 64 };

void scores_add_sequence(const Scores *s, ScoreCall *k, double tokens,
                         double times)
{
    double row = s->width && s->width < tokens ? (double)s->width : tokens;
    double behind = tokens - row;       /* rows that do not reach the first */
    double first = fmin((double)s->first, behind);
    int edges = s->width ? s->first ? 3 : 2 : 1;

    k->pairs += times * (row * (row + 1) / 2 + behind * row
                         + first * (first + 1) / 2 + (behind - first) * first);
    k->edge += times * edges * tokens;
    k->tokens += times * tokens;
    k->longest = fmax(k->longest, row + first);
    /* rows behind, which all weigh the first keys, are dealt in parts */
    k->column = fmax(k->column, s->first ? fmin(tokens, row + OWN
                                                + (double)s->first) : row);
    k->sequences += times;
}

static double padded(int32_t n)
{
    return (double)((n + TILE - 1) / TILE * TILE);
}

double pairs_weights(const Graph *pairs, const int32_t *size)
{
    AxisSet axes = 0;

    for (int i = 3; i < pairs->nin; i++)
        if (mask_reads(pairs->mask, pairs->in[i].name))
            axes |= pairs->in[i].axes;
    return (double)entry_count(size, axes);
}

const char *pairs_off_tensor_cores(const Graph *pairs, const int32_t *size,
                                   bool narrow, const Machine *m)
{
    Ctx *c = pairs->ctx;

    if (pairs_weights(pairs, size) > 1)
        return "pairs are weighed for each entry";
    if (m->arch / 10 != 9)
        return "pairs by tiles are sm_90a's";
    if (!narrow)
        return "tensors are of 32 bits";
    for (int i = 0; i < 3; i++) {
        const Input *in = &pairs->in[i];
        int64_t n = entry_count(size, in->axes);
        if (n > WIDE || n % 8)
            return ctx_format(c, "%s has %d entries: up to %d, by eights, are "
                              "a tile's", in->name, (int)n, WIDE);
    }
    return NULL;
}

/* A block of OWN rows is alone with its products: few of them leave processors
 * idle, and the longest row is the least that there is to wait for; of the
 * gradients of keys and values, four products a pair, the longest column. */
double pairs_seconds(const Graph *pairs, const ScoreCall *k, const Machine *m,
                     bool backward)
{
    double key = (double)entry_count(k->size, pairs->in[0].axes);
    double value = (double)entry_count(k->size, pairs->in[2].axes);
    bool off = pairs_off_tensor_cores(pairs, k->size, k->narrow, m);

    if (off) {
        double each = backward ? 4 * key + 3 * value : key + value;
        double weights = pairs_weights(pairs, k->size);
        if (weights > 1)                /* y; dq; dk and dv; twice with leaves
                                           that tokens have */
            each += (backward ? 6 : 1) * weights * (double)pairs->mask->g->len;
        return k->pairs * k->heads * each / (PLAIN * m->vector);
    }
    key = padded((int32_t)key);
    value = padded((int32_t)value);
    double rate = m->matrix * (backward ? TILES_BACK : TILES_FORWARD);
    double computed = k->pairs + k->edge * OWN / 2;
    double each = 2 * (backward ? 5 * key + 4 * value : key + value);
    double of_keys = backward ? 2 * (2 * key + 2 * value) : 0;
    double longest = (k->longest * (each - of_keys) + k->column * of_keys)
                   * OWN / (rate / m->units);
    double all = computed * k->heads * each / rate;
    return fmax(all, longest) + (backward ? 3 : 1) * m->launch;
}

/* What a token and head of the graph reads and writes: what the call has not is
 * float32. */
static double bytes_of(const Graph *g, const ScoreCall *k)
{
    double bytes = 0;

    for (int i = 0; i < g->nin; i++)
        if (g->in[i].timed)
            bytes += (double)entry_count(k->size, g->in[i].axes)
                   * (k->narrow && g->in[i].rank ? 2 : 4);
    for (int o = 0; o < g->nout; o++)
        bytes += 4. * (double)entry_count(k->size, g->n[g->out[o].node].axes);
    return bytes;
}

/* Scans with states that a block of threads holds: each of a window's blocks is
 * a sequence. */
static double blocks_seconds(const Scores *s, const ScoreCall *k,
                             const Machine *m, bool backward)
{
    const WindowBlocks *b = &s->window->blocks;
    const Graph *scan[] = { b->within, b->tail, b->across, s->window->sinks };
    double walks = k->heads * fmax(k->sequences, k->tokens / (double)s->width);
    double idle = walks < m->units ? m->units / fmax(walks, 1) : 1;
    double entries = 0, bytes = 0;
    int launches = 0;

    for (int n = 0; n < 4; n++) {
        if (!scan[n])
            continue;
        launches++;
        bytes += bytes_of(scan[n], k);
        for (int i = 0; i < scan[n]->nst; i++)
            entries += (double)entry_count(k->size, scan[n]->st[i].axes);
    }
    return (backward ? 3 : 1) * (launches * m->launch
        + k->tokens * k->heads * (4 * entries * idle / (STATES_HELD * m->matrix)
                                  + bytes / m->bandwidth));
}

double scores_seconds(const Scores *s, const ScoreCall *k, const Machine *m,
                      bool backward)
{
    double all = 0, bytes = 0;

    if (s->window)
        return blocks_seconds(s, k, m, backward);

    for (int n = 0; n < s->nsums; n++)
        all += pairs_seconds(s->pairs[n], k, m, backward);
    for (int o = 0; s->tokens && o < s->tokens->nout; o++)
        bytes += 4. * (double)entry_count(k->size,
                        s->tokens->n[s->tokens->out[o].node].axes);
    int passes = (s->tokens != NULL) + (s->result != NULL);
    return all + (backward ? 3 : 1) * (m->launch * passes + k->tokens
                  * k->heads * bytes / m->bandwidth);
}

/* Of a window what is kept of tokens, and a sum beside it, of keys and values.
 */
static bool keeps_sum(const Scores *s, const State *st)
{
    AxisSet both = AXIS(s->axis[0][0]) | AXIS(s->axis[0][1]);

    return (st->axes & both) == both;
}

/* A window that has blocks, and no pairs, reads of each place of its rings what
 * differs by key or value, and goes token by token. */
double states_seconds(const Scores *s, const Graph *step, const ScoreCall *k,
                      const Machine *m, bool backward)
{
    double entries = 0, sums = 0;

    for (int i = 0; i < step->nst; i++) {
        double n = (double)entry_count(k->size, step->st[i].axes);
        bool sum = s->width && keeps_sum(s, &step->st[i]);
        if (s->sums & STATE(i))
            *(sum ? &sums : &entries) += n;
    }
    double walks = k->heads * k->sequences;
    double idle = walks < m->units ? m->units / fmax(walks, 1) : 1;
    if (s->width) {
        double chunk = s->ring_axis ? RING_CHUNK / (double)s->width : 0;
        double rate = (s->ring_axis ? RINGS : TAPS) * m->vector;
        double turns = s->window ? k->tokens / fmax(k->sequences, 1) : 0;
        return m->launch + turns * m->chain
             + k->tokens * k->heads * 4 * (backward ? 3 : 1)
             * (entries * (1 + chunk) / rate
                + sums / (STATES_HELD * m->matrix)) * idle;
    }
    bool held = entries * sizeof(float) <= (double)m->shared;
    double rate = m->matrix * (held ? STATES_HELD : STATES_IN_MEMORY);
    return k->tokens * k->heads * 4 * entries * (backward ? 3 : 1) * idle
         / rate;
}
