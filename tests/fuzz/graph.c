/* graph.c -- any text as a graph: what parses prints as itself. */
#include <assert.h>
#include <string.h>

#include "compiler/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

typedef struct Case { const uint8_t *data; size_t n; } Case;

static void round_trip(Ctx *c, void *ud)
{
    const Case *in = ud;
    char *text = ctx_alloc(c, in->n + 1);
    Buf once = { .ctx = c }, twice = { .ctx = c };

    memcpy(text, in->data, in->n);
    graph_print(graph_parse(c, text), &once);
    graph_print(graph_parse(c, once.s), &twice);
    assert(once.len == twice.len && !memcmp(once.s, twice.s, once.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    Ctx *c = ctx_new();
    Case in = { data, n };

    c->limit = 64 << 20;
    ctx_protect(c, round_trip, &in);
    ctx_free(c);
    return 0;
}
