/* layer_arena.c -- the places of a layer's values in the call's workspace on
 * the device, as they come and go: what is kept, what is large, what is small.
 */
#include <string.h>

#include "layer_gpu.h"

static int64_t rounded(int64_t bytes)
{
    return (bytes + ROOM_ALIGN - 1) / ROOM_ALIGN * ROOM_ALIGN;
}

/* Behind the first i there are. */
static int64_t put_taken(Lay *k, Gaps *a, int i, int64_t at, int64_t bytes)
{
    if (a->n == a->max) {
        int max = 2 * a->max + 32;
        a->taken = ctx_grow(k->c, a->taken, (size_t)a->max * sizeof *a->taken,
                            (size_t)max * sizeof *a->taken);
        a->max = max;
    }
    memmove(a->taken + i + 1, a->taken + i, (size_t)(a->n - i)
                                            * sizeof *a->taken);
    a->taken[i] = (struct Taken){ at, bytes };
    a->n++;
    a->used = at + bytes > a->used ? at + bytes : a->used;
    a->most = a->used > a->most ? a->used : a->most;
    return at;
}

/* The first gap that is wide enough. */
static int64_t take(Lay *k, Gaps *a, int64_t bytes)
{
    int64_t at = 0;
    int i = 0;

    for (; i < a->n && a->taken[i].at - at < bytes; i++)
        at = a->taken[i].at + a->taken[i].bytes;
    return put_taken(k, a, i, at, bytes);
}

/* The narrowest gap that is wide enough, in what has been taken once; -1: there
 * is none. */
static int64_t take_again(Lay *k, Gaps *a, int64_t bytes)
{
    int64_t at = 0, least = INT64_MAX, found = -1;
    int before = 0;

    for (int i = 0; i <= a->n; i++) {
        int64_t end = i < a->n ? a->taken[i].at : a->most;
        if (end - at >= bytes && end - at < least) {
            least = end - at;
            found = at;
            before = i;
        }
        at = i < a->n ? end + a->taken[i].bytes : at;
    }
    return found < 0 ? found : put_taken(k, a, before, found, bytes);
}

/* What is kept lies before all else, or in memory of its own: how much that is
 * is known when it runs. */
void *arena_room(Lay *k, int64_t bytes, bool keep)
{
    Arena *a = &k->arena;
    int64_t at = -1;

    bytes = rounded(bytes);
    bool large = !keep && bytes >= a->small;
    if (k->back && k->spends && !keep && (large || a->fills))
        at = take_again(k, &a->region[KEPT], bytes);
    Gaps *r = &a->region[keep || at >= 0 ? KEPT : large ? LARGE : SMALL];
    int64_t most = r->most;
    at = at < 0 ? take(k, r, bytes) : at;
    if (!k->dry && r->most > most)
        fail_code(k->c, ERR_INTERNAL, "%s: %s more than was counted",
                  k->g->name, keep ? "keeps" : "takes");
    return (void *)(r->base + (uintptr_t)at);
}

/* The one that has it: the last that begins before. Of those that begin at one
 * place all but one are empty, and come first. */
static Gaps *region_of(Arena *a, const void *at)
{
    Gaps *found = NULL;

    for (Gaps *r = a->region; r < a->region + REGIONS; r++)
        if ((uintptr_t)at >= r->base && (!found || r->base >= found->base))
            found = r;
    return found;
}

void arena_drop(Lay *k, void *at)
{
    Gaps *r = hold_place(k, at) ? NULL : region_of(&k->arena, at);

    for (int i = 0; r && i < r->n; i++)
        if (r->taken[i].at == (int64_t)((uintptr_t)at - r->base)) {
            r->n--;
            memmove(r->taken + i, r->taken + i + 1, (size_t)(r->n - i)
                                                    * sizeof *r->taken);
            return;
        }
}
