/* chunk.c -- how many tokens to a chunk: what the cost model predicts to be
 * fastest. Never asks how long a sequence is, so that one that is cut in two
 * is computed as a whole one is.
 */
#include <math.h>
#include <string.h>

#include "cost.h"
#include "pipeline.h"

typedef struct Trial {
    const Graph *step;
    const int32_t *size;
    const Machine *m;
    bool joint, serial;
    int chunk;
    double seconds;                     /* a token and head */
} Trial;

/* One kernel for each pass: which kernels would be best takes far longer to
 * find, and hardly depends on the chunk. */
static void try_chunk(Ctx *c, void *ud)
{
    Trial *t = ud;
    Graph step = *t->step, *g;

    c->file = step.ctx->file;
    step.ctx = c;                       /* what is made is made in c */
    g = by_chunks(&step, t->size, t->chunk, t->joint, t->m);
    t->serial = !g;
    if (g)
        t->seconds = price_plan(plan_simple(g), t->m) / t->chunk;
}

int best_chunk(Ctx *c, const Graph *step, const int32_t size[NAXES],
               bool joint, const Machine *m, Weighed weighed[CHUNKS_WEIGHED])
{
    static const int sizes[CHUNKS_WEIGHED] = { 16, 32, 64, 128 };
    Trial t = { .step = step, .size = size, .m = m, .joint = joint };
    double least = INFINITY;
    int best = 64;

    memset(weighed, 0, CHUNKS_WEIGHED * sizeof *weighed);
    for (int i = 0; i < CHUNKS_WEIGHED && !t.serial; i++) {
        t.chunk = sizes[i];
        t.seconds = INFINITY;
        ctx_apart(c, try_chunk, &t);
        weighed[i] = (Weighed){ .chunk = t.chunk, .kernels = joint ? 2 : 1,
                                .seconds = t.seconds };
        if (t.seconds < least) {
            least = t.seconds;
            best = t.chunk;
        }
        ctx_poll(c);
    }
    return best;
}
