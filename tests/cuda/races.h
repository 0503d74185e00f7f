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
    ENGINE = 3 * WARPS, PARTIES, FENCED = PARTIES, SUMS = FENCED + WARPS,
    LANDED = SUMS + WARPS, ENTRIES = LANDED + WARPS, MOST_BARRIERS = 256,
    LANES = 128, COLUMNS = 512, TENSOR = ARENA / 4, /* words */
    LEFT = TENSOR + LANES * COLUMNS,    /* in the workspace, so many words */
    LEFT_WORDS = 1 << 16, WORDS = LEFT + LEFT_WORDS
};
struct Clock { unsigned at[ENTRIES]; };
struct Handed { Clock gathered, known; };   /* known: once all have arrived */
/* Who has read it since all knew all: a bit each. */
struct Word { unsigned party, written, all_knew; uint64_t readers[2]; };

static int here;                            /* which of two blocks runs */
static Clock clocks[WARPS];
static Clock sums_known[WARPS];             /* as its last fence after threads
                                               met found it */
static unsigned begun[PARTIES];             /* products, stores, copies */
static unsigned all_knew;                   /* how often */
static Word words[2][WORDS];
static unsigned read_at[2][PARTIES][WORDS];
/* What a copy has brought there since: from where, so many bytes. Known where
 * each access is looked at. */
struct Origin { const char *p; unsigned bytes, all_knew; };
static Origin origins[2][ARENA / 4];

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

/* Of what it did in tensor memory. */
static void fence_sums()
{
    const int w = my_warp();
    clocks[w].at[SUMS + w] = clocks[w].at[w]++;
}

/* Of global memory, for host.cc. Between lanes of a warp its clock's own steps
 * are the order. */
static By by_own_warp()
{
    const int w = my_warp();
    return By { w, clocks[w].at[w], false };
}
static bool is_over(const Seen &s)
{
    const Clock &c = clocks[my_warp()];
    if (s.party == my_warp())
        return s.thread == threadIdx.x || s.clock < c.at[s.party];
    return s.party >= 0 && s.clock <= c.at[s.party];
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
        all.at[FENCED + i] = all.at[SUMS + i] = all.at[i];
    for (int i = 0; i < WARPS; i++) {
        clocks[i] = sums_known[i] = all;
        clocks[i].at[i]++;
    }
    for (int i = PRODUCTS; i < PARTIES; i++)
        begun[i]++;
}

static void race(const char *what, unsigned at, unsigned party)
{
    static const char *const of[] = { "warp", "products of warp",
                                      "stores of warp", "copies:" };
    char text[140], where[50];
    if (at < ARENA)
        snprintf(where, sizeof where, "shared memory at %u", at);
    else if (at >= 4 * LEFT)
        snprintf(where, sizeof where, "the workspace at %u", at - 4 * LEFT);
    else
        snprintf(where, sizeof where, "tensor memory at lane %u, column %u",
                 (at / 4 - TENSOR) / COLUMNS, (at / 4 - TENSOR) % COLUMNS);
    snprintf(text, sizeof text, "%s, 4 bytes: %s by %s %u", where, what,
             of[party / WARPS], party % WARPS);
    fault(text);
}
/* What the warp knows that touches word i. */
static Clock known_of(unsigned i)
{
    Clock c = clocks[my_warp()];
    if (i >= TENSOR) {
        c = sums_known[my_warp()];
        c.at[my_warp()] = clocks[my_warp()].at[my_warp()];
    }
    return c;
}
/* Products and copies, and what a warp has not fenced. */
static bool is_hidden(const Clock &c, unsigned party, const Word *w, unsigned i)
{
    return party >= WARPS && w->party < WARPS
        && w->written > c.at[(i < TENSOR ? FENCED : SUMS) + w->party];
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
    if ((at < ARENA && at + bytes <= ARENA) || at >= 4 * LEFT)
        return true;
    fault("shared memory: behind its end");
    return false;
}
/* Products of a warp's in tensor memory: one thread's, which come in order. */
static bool is_in_line(unsigned party, const Word *w, unsigned i)
{
    return i >= TENSOR && party >= WARPS && w->party == party;
}
static void reads_word(const Clock &c, unsigned party, unsigned when,
                       unsigned i)
{
    Word *w = word_at(here, i);
    if (w->written > c.at[w->party] && !is_in_line(party, w, i))
        race("read while it is written", 4 * i, w->party);
    else if (is_hidden(c, party, w, i))
        race("read, but not fenced when written", 4 * i, w->party);
    w->readers[party / 64] |= (uint64_t)1 << party % 64;
    read_at[here][party][i] = when;
    if (looks && i < TENSOR && origins[here][i].all_knew == all_knew)
        looks_at(origins[here][i].p, origins[here][i].bytes,
                 __builtin_return_address(0));
}
static void reads_as(unsigned party, unsigned when, unsigned at, unsigned bytes)
{
    if (!within(at, bytes))
        return;
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++)
        reads_word(clocks[my_warp()], party, when, i);
}
static void meets_readers(const Clock &c, int block, unsigned party,
                          const Word *w, unsigned i)
{
    const bool sums = i >= TENSOR && party >= WARPS;
    for (unsigned half = 0; half < 2; half++)
        for (uint64_t left = w->readers[half]; left; left &= left - 1) {
            const unsigned p = 64 * half + (unsigned)__builtin_ctzll(left);
            if (read_at[block][p][i] > c.at[p] && !(sums && p == party))
                race("written while it is read", 4 * i, p);
            else if ((party == ENGINE || sums) && p < WARPS
                     && read_at[block][p][i] > c.at[(sums ? SUMS : FENCED) + p])
                race("copied to, but not fenced when read", 4 * i, p);
        }
}
static void writes_word(const Clock &c, int block, unsigned party,
                        unsigned when, unsigned i)
{
    Word *w = word_at(block, i);
    if (w->written > c.at[w->party] && !is_in_line(party, w, i))
        race("written twice", 4 * i, w->party);
    else if (is_hidden(c, party, w, i))
        race("copied to, but not fenced when written", 4 * i, w->party);
    meets_readers(c, block, party, w, i);
    w->party = party;
    w->written = when;
    if (i < TENSOR)
        origins[block][i].all_knew = 0;
}
static void writes_as(int block, unsigned party, unsigned when, unsigned at,
                      unsigned bytes)
{
    if (!within(at, bytes))
        return;
    for (unsigned i = at / 4; i < (at + bytes + 3) / 4; i++)
        writes_word(clocks[my_warp()], block, party, when, i);
}
