/* races.h -- whether accesses to shared memory are ordered, for hopper.h. A
 * warp has a clock: what it knows to be over of every warp, of every warp's
 * products and stores under way, and of the copy engine. Barriers hand clocks
 * on. Who writes must know that all before are through; who reads, that the
 * last to write is. What a warp has written, products and copies see once it
 * has fenced: they go by a way of their own (the async proxy), and so do
 * copies that write there again. These may also overtake a read that is under
 * way when its warp tells the copy engine of it, unless it has fenced.
 */
#include "host.h"

enum {
    WARPS = MOST_THREADS / 32, PRODUCTS = WARPS, STORES = 2 * WARPS,
    ENGINE = 3 * WARPS, PARTIES, FENCED = PARTIES, ENTRIES = FENCED + WARPS,
    MOST_BARRIERS = 256
};
struct Clock { unsigned at[ENTRIES]; };
struct Handed { Clock gathered, known; };   /* known: once all have arrived */
/* Who has read it since all knew all: a bit each. */
struct Word { unsigned party, written, all_knew; uint64_t readers[2]; };

static int here;                            /* which of two blocks runs */
static Clock clocks[WARPS];
static unsigned begun[PARTIES];             /* products, stores, copies */
static unsigned all_knew;                   /* how often */
static Word words[2][ARENA / 4];
static unsigned read_at[2][PARTIES][ARENA / 4];

static int my_warp() { return (first_fiber + threadIdx.x) / 32; }
static void learn(Clock *c, const Clock &from)
{
    for (int i = 0; i < ENTRIES; i++)
        c->at[i] = max(c->at[i], from.at[i]);
}
/* What this warp has done so far, for those that meet it there. */
static void tell(Handed *h)
{
    const int w = my_warp();
    learn(&h->gathered, clocks[w]);
    clocks[w].at[w]++;
}
static void hand_on(Handed *h) { learn(&h->known, h->gathered); }
static void take(const Handed *h)
{
    learn(&clocks[my_warp()], h->known);
}
/* Of what it read and wrote until now. */
void fence_async()
{
    const int w = my_warp();
    clocks[w].at[FENCED + w] = clocks[w].at[w]++;
}
/* Of what it knows that others wrote. */
void fence_copied()
{
    Clock *c = &clocks[my_warp()];
    for (int i = 0; i < WARPS; i++)
        c->at[FENCED + i] = max(c->at[FENCED + i], c->at[i]);
}

/* Blocks begin when all before is over. */
static void all_know()
{
    Clock all = {};
    all_knew++;
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

static void race(const char *what, unsigned at, unsigned party)
{
    static const char *const of[] = { "warp", "products of warp",
                                      "stores of warp", "copies:" };
    char text[120];
    snprintf(text, sizeof text, "shared memory at %u, 4 bytes: %s by %s %u",
             at, what, of[party / WARPS], party % WARPS);
    fault(text);
}
/* Products and copies, and what a warp has not fenced. */
static bool is_hidden(unsigned party, const Word *w)
{
    return party >= WARPS && w->party < WARPS
        && w->written > clocks[my_warp()].at[FENCED + w->party];
}
/* Of a block; what was there before all knew it is over. */
static Word *word_at(int block, unsigned i)
{
    Word *w = &words[block][i];
    if (w->all_knew != all_knew)
        *w = Word { 0, 0, all_knew, { 0, 0 } };
    return w;
}
static bool within(unsigned at, unsigned bytes)
{
    if (at < ARENA && at + bytes <= ARENA)
        return true;
    fault("shared memory: behind its end");
    return false;
}
static void reads_as(unsigned party, unsigned when, unsigned at, unsigned bytes)
{
    const Clock &c = clocks[my_warp()];
    if (!within(at, bytes))
        return;
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++) {
        Word *w = word_at(here, i);
        if (w->written > c.at[w->party])
            race("read while it is written", 4 * i, w->party);
        else if (is_hidden(party, w))
            race("read, but not fenced when written", 4 * i, w->party);
        w->readers[party / 64] |= (uint64_t)1 << party % 64;
        read_at[here][party][i] = when;
    }
}
static void meets_readers(int block, unsigned party, const Word *w, unsigned i)
{
    const Clock &c = clocks[my_warp()];
    for (unsigned half = 0; half < 2; half++)
        for (uint64_t left = w->readers[half]; left; left &= left - 1) {
            const unsigned p = 64 * half + (unsigned)__builtin_ctzll(left);
            if (read_at[block][p][i] > c.at[p])
                race("written while it is read", 4 * i, p);
            else if (party == ENGINE && p < WARPS
                     && read_at[block][p][i] > c.at[FENCED + p])
                race("copied to, but not fenced when read", 4 * i, p);
        }
}
static void writes_as(int block, unsigned party, unsigned when, unsigned at,
                      unsigned bytes)
{
    const Clock &c = clocks[my_warp()];
    if (!within(at, bytes))
        return;
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++) {
        Word *w = word_at(block, i);
        if (w->written > c.at[w->party])
            race("written twice", 4 * i, w->party);
        else if (is_hidden(party, w))
            race("copied to, but not fenced when written", 4 * i, w->party);
        meets_readers(block, party, w, i);
        w->party = party;
        w->written = when;
    }
}
