/* segments_count.c -- into how many segments a call is best cut, by what a
 * chunk takes; see segments.h.
 */
#include "segments.h"

#include <stdlib.h>

/* Times, of a chunk's in a walk by one block; measured on an H200 by gated
 * DeltaNet's and KDA's at K = V = 128, and by a scan of vectors in 8 and 16.
 * Half the columns take 0.5 to 0.8 of the time, so that more segments, of
 * blocks of all columns, take less: 8 instead of 4 of 16 heads of 32768 tokens
 * 0.88 of the time for KDA, 0.93 for GLA, 1.01 for the delta rules. Where there
 * are processors for it, a walk of matrices has two blocks a head, each with
 * half the columns. What starts segments, and each step of the carrying kernel,
 * take some chunks: a step waits for memory, and goes through so many rows; of
 * vectors CARRIED_AT_ONCE wait together. */
static const double halved = 0.72, started = 8, waited = 1.5,
                    carried = 0.5 / 128, worth = 0.9;

static double walk_time(int64_t heads, int64_t chunks, int rows,
                        int processors)
{
    int64_t waves = (heads + processors - 1) / processors;
    bool halves = rows > 1 && 2 * heads <= processors;
    return (double)chunks * (halves ? halved : (double)waves);
}

/* Walks of a call in segments, those for ends alone included, and those for
 * transitions that are no diagonals. */
static double walks_of(const Cuts *k)
{
    const double ends = k->lean ? 0.65 : 1;
    return 1 + (k->diagonal ? 1 : 2) * ends + (k->joint ? 1 + ends : 0);
}

/* As many chunks' time as a call takes in n segments, of those that a block
 * walks. */
static double cut_time(int64_t heads, int64_t chunks, const Cuts *k, int n,
                       int processors)
{
    int ways = k->joint ? 2 : 1;
    int64_t each = (chunks + n - 1) / n;
    bool side_by_side = k->diagonal && k->rows == 1;
    double step = (side_by_side ? waited / CARRIED_AT_ONCE : waited)
                + carried * k->rows;
    if (n == 1)
        return ways * walk_time(heads, chunks, k->rows, processors);
    return walks_of(k) * walk_time(heads * n, each, k->rows, processors)
         + (started + step * n) * ways;
}

static int cheapest_count(int64_t heads, int64_t chunks, const Cuts *k,
                          int processors)
{
    int found = 1;
    double least = worth * cut_time(heads, chunks, k, 1, processors);
    for (int n = 2; heads && 2 * heads <= processors && n <= chunks; n++) {
        double cost = cut_time(heads, chunks, k, n, processors);
        if (cost < least) {
            least = cost;
            found = n;
        }
    }
    return found;
}

double segments_gain(Ctx *c, const Graph *g, int64_t heads, int64_t chunks,
                     bool joint, int processors)
{
    Transition t;
    if (!g->chunk || transition_of_rows(c, g, &t) || t.kappa >= 0)
        return 1;
    Cuts k = { 1, joint, true, true };
    int n = cheapest_count(heads, chunks, &k, processors);
    return cut_time(heads, chunks, &k, n, processors)
         / cut_time(heads, chunks, &k, 1, processors);
}

int segments_count(const Call *call, int chunk, const Cuts *k, int processors)
{
    const char *asked = getenv(SEGMENTS_VARIABLE);
    int64_t tokens = 0;
    for (int64_t i = 0; call->seq && i < call->nseq; i++)
        tokens = call->seq[i].len > tokens ? call->seq[i].len : tokens;
    int64_t chunks = (tokens + chunk - 1) / chunk;
    long n = asked ? strtol(asked, NULL, 10) : 0;
    if (n > 0)
        return (int)(n < chunks ? n : chunks > 1 ? chunks : 1);
    return cheapest_count(call->nseq * call->heads, chunks, k, processors);
}
