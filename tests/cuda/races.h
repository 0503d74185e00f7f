/* races.h -- whether accesses to shared memory are ordered, for hopper.h. A
 * warp has a clock: what it knows to be over of every warp, of every warp's
 * products and stores under way, and of the copy engine. Barriers hand clocks
 * on. Who writes must know that all before are through; who reads, that the
 * last to write is. What a warp has written, products and copies see once it
 * has fenced: they go by a way of their own (the async proxy), and so do
 * copies that write there again.
 */
#include "host.h"

#pragma GCC visibility push(hidden)

enum {
    WARPS = MOST_THREADS / 32, PRODUCTS = WARPS, STORES = 2 * WARPS,
    ENGINE = 3 * WARPS, PARTIES, FENCED = PARTIES, ENTRIES = FENCED + WARPS,
    MOST_BARRIERS = 256
};
struct Clock { unsigned at[ENTRIES]; };
struct Handed { Clock gathered, known; };   /* known: once all have arrived */
struct Word { unsigned party, written, read[PARTIES]; };

inline int here;                            /* which of two blocks runs */
inline Clock clocks[WARPS];
inline unsigned begun[PARTIES];             /* products, stores, copies */
inline Word words[2][ARENA / 4];

PLAIN inline int my_warp() { return (first_fiber + threadIdx.x) / 32; }
PLAIN inline void learn(Clock *c, const Clock &from)
{
    for (int i = 0; i < ENTRIES; i++)
        c->at[i] = max(c->at[i], from.at[i]);
}
/* What this warp has done so far, for those that meet it there. */
PLAIN inline void tell(Handed *h)
{
    const int w = my_warp();
    learn(&h->gathered, clocks[w]);
    clocks[w].at[w]++;
}
PLAIN inline void hand_on(Handed *h) { learn(&h->known, h->gathered); }
PLAIN inline void take(const Handed *h)
{
    learn(&clocks[my_warp()], h->known);
}
/* Of what it wrote until now. */
PLAIN inline void fence_async()
{
    const int w = my_warp();
    clocks[w].at[FENCED + w] = clocks[w].at[w]++;
}

/* Blocks begin when all before is over. */
PLAIN inline void all_know()
{
    Clock all = {};
    for (int i = 0; i < WARPS; i++)
        learn(&all, clocks[i]);
    for (int i = PRODUCTS; i < PARTIES; i++)
        all.at[i] = ++begun[i];
    for (int i = 0; i < WARPS; i++)
        all.at[FENCED + i] = all.at[i];
    for (int i = 0; i < WARPS; i++) {
        clocks[i] = all;
        clocks[i].at[i]++;
    }
    for (int i = PRODUCTS; i < PARTIES; i++)
        begun[i]++;
}

PLAIN inline void race(const char *what, unsigned at, unsigned party)
{
    static const char *const of[] = { "warp", "products of warp",
                                      "stores of warp", "copies:" };
    char text[120];
    snprintf(text, sizeof text, "shared memory at %u, 4 bytes: %s by %s %u",
             at, what, of[party / WARPS], party % WARPS);
    fault(text);
}
/* Products and copies, and what a warp has not fenced. */
PLAIN inline bool is_hidden(unsigned party, const Word *w)
{
    return party >= WARPS && w->party < WARPS
        && w->written > clocks[my_warp()].at[FENCED + w->party];
}
PLAIN inline void reads_as(unsigned party, unsigned when, unsigned at,
                           unsigned bytes)
{
    const Clock &c = clocks[my_warp()];
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++) {
        Word *w = &words[here][i];
        if (w->written > c.at[w->party])
            race("read while it is written", 4 * i, w->party);
        else if (is_hidden(party, w))
            race("read, but not fenced when written", 4 * i, w->party);
        w->read[party] = when;
    }
}
PLAIN inline void writes_as(int block, unsigned party, unsigned when,
                            unsigned at, unsigned bytes)
{
    const Clock &c = clocks[my_warp()];
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++) {
        Word *w = &words[block][i];
        if (w->written > c.at[w->party])
            race("written twice", 4 * i, w->party);
        else if (is_hidden(party, w))
            race("copied to, but not fenced when written", 4 * i, w->party);
        for (unsigned p = 0; p < PARTIES; p++)
            if (w->read[p] > c.at[p])
                race("written while it is read", 4 * i, p);
        w->party = party;
        w->written = when;
    }
}
#pragma GCC visibility pop
