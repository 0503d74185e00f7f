/* pair_time.c -- how long kernels of both ways back over all pairs of tokens
 * take: what a step makes a multiprocessor do, counted.
 *
 * A block of 256 threads goes from barrier to barrier: it fetches rows, forms
 * products of shared memory, weighs pairs. Each of these takes the time of what
 * it has most of: rows of banks that shared memory reads for it, 32 numbers a
 * cycle where lanes do not meet in a bank; instructions, four a cycle; or
 * waiting, where few warps have something
 * to do. Blocks that are there together wait side by side, and share the rest.
 */
#include "pair_ways.h"

#include <math.h>

/* As the kernels have them (pairs_ways.cuh); registers of a thread that the
 * compiler takes, at most. */
enum { THREADS = 256, WARP = 32, BANKS = 32, AT_ONCE = 8, UNROLLED = 4,
       ISSUED = 4, REGISTERS = 64, FILE_OF = 65536, KEPT_BACK = 1024 };

/* Cycles until what was asked for is there: of shared memory, of the last
 * cache; until all warps have met. As microbenchmarks of Hopper have them. */
static const double WAIT_SHARED = 30, WAIT_CACHE = 280, MEET = 30;

/* Instructions, as nvdisasm shows them of sm_90a: of a pair that is weighed; of
 * a number that is fetched; of a product's turn of four terms beside loads and
 * multiplications (and a comparison of each factor that may be 0); of its end,
 * for each sum, and where these are added up; of what each warp does about a
 * phase. With these a block of the keys' (own 11, step 8, 128 columns) has
 * 12,500 a step, of which counters saw 12,880; of scores (76, 32) 71,600 of
 * 75,300, of the keys' product 30,300 of 31,800. */
static const double OF_PAIR = 55, OF_FETCH = 25, OF_TURN = 7, OF_END = 20,
                    OF_SUM = 6, OF_ADDING = 10, OF_PHASE = 60;

/* ---- what is done between two barriers ---- */

typedef struct Work { double banks, issued, waits; } Work;
typedef struct Step { double alone, banks, issued; } Step;

static double up(double x, double by)
{
    return ceil(x / by);
}

/* So much of it, one behind the other. */
static void add_work(Step *s, Work w, double times)
{
    double issued = (w.issued + OF_PHASE * THREADS / WARP) / ISSUED;

    s->alone += times * (fmax(fmax(w.banks, issued), w.waits) + MEET);
    s->banks += times * w.banks;
    s->issued += times * issued;
}

/* The rows of banks that a load of a warp takes on average, whose lanes have
 * units n, n + 1, ... of `cols` columns: numbers `line` apart, of these or of
 * rows. */
static double bank_rows(int cols, int line, int units, bool of_rows)
{
    double sum = 0;
    int warps = 0, most = units < WARP * cols ? units : WARP * cols;

    for (int first = 0; first < most; first += WARP, warps++) {
        int count[BANKS] = { 0 }, last = -1, rows = 0;
        for (int n = first; n < first + WARP && n < units; n++) {
            int at = of_rows ? n / cols : n % cols;
            bool seen = of_rows ? at == last : n - first >= cols;
            last = at;
            if (seen)
                continue;
            int *bank = &count[(int64_t)at * line % BANKS];
            rows = ++*bank > rows ? *bank : rows;
        }
        sum += rows;
    }
    return warps ? sum / warps : 0;
}

/* M x N sums of so many terms, a thread a square of them; sparse: what is 0 of
 * the first factor is passed over. */
static Work multiplied(int m, int n, int terms, int a_line, int b_line,
                       bool adds, bool sparse)
{
    int side = 4;

    while (side > 1 && up(m, side) * up(n, side) < THREADS)
        side /= 2;
    int rows = (int)up(m, side), cols = (int)up(n, side), units = rows * cols;
    double warps = up(units, WARP), turns = up(terms, UNROLLED);
    double loads = terms * side, square = side * side;
    double each = UNROLLED * (2 * side + square + (sparse ? side : 0))
                + OF_TURN;
    double end = OF_END + OF_SUM * square + (adds ? OF_ADDING : 0);
    return (Work){
        .banks = warps * (loads * (bank_rows(cols, a_line, units, true)
                                   + bank_rows(cols, b_line, units, false))
                          + square * (adds ? 2 : 1)),
        .issued = warps * (turns * each + end),
        .waits = up(units, THREADS) * (turns * (each + WAIT_SHARED) + end) };
}

static Work fetched(int rows, int wide)
{
    double all = (double)rows * wide;

    return (Work){ up(all, WARP), up(all, WARP) * OF_FETCH,
                   up(all, THREADS * AT_ONCE)
                   * (WAIT_CACHE + AT_ONCE * OF_FETCH) };
}

static Work weighed(double pairs)
{
    return (Work){ 4 * up(pairs, WARP), OF_PAIR * up(pairs, WARP),
                   up(pairs, THREADS) * (WAIT_CACHE + OF_PAIR) };
}

static int odd(int n) { return n | 1; }

/* ---- kernels ---- */

static Step step_blocks(const PairAsk *a, int kernel, PairShape s)
{
    const int key = a->key, value = a->value;
    Step to = { 0 };

    add_work(&to, fetched(s.step, key), 1);
    add_work(&to, fetched(s.step, value), 1);
    add_work(&to, multiplied(s.step, s.own, key, odd(key), odd(key), false,
                               false), 1);
    add_work(&to, multiplied(s.step, s.own, value, odd(value), odd(value),
                               false, false), 1);
    add_work(&to, weighed((double)s.step * s.own), 1);
    add_work(&to, multiplied(s.own, key, s.step, 1, 1, true, true), 1);
    if (kernel == PAIR_KEYS)
        add_work(&to, multiplied(s.own, value, s.step, 1, 1, true, true), 1);
    return to;
}

static Step step_scores(const PairAsk *a, PairShape s)
{
    Step to = { 0 };
    bool all = s.wide >= a->key && s.wide >= a->value;

    for (int of = 0; of < 2; of++) {
        double times = up(of ? a->value : a->key, s.wide);
        add_work(&to, fetched(s.step, s.wide), times);
        if (!all)
            add_work(&to, fetched(s.own, s.wide), times);
        add_work(&to, multiplied(s.step, s.own, s.wide, odd(s.wide),
                                     odd(s.wide), times > 1, false), times);
        add_work(&to, weighed((double)s.step * s.own), 1);
    }
    return to;
}

static Step step_product(PairShape s)
{
    Step to = { 0 };

    add_work(&to, fetched(s.step, s.wide), 1);
    add_work(&to, weighed((double)s.step * s.own), 1);
    add_work(&to, multiplied(s.own, s.wide, s.step, 1, 1, true, true), 1);
    return to;
}

double pair_resident(const Machine *on, int room)
{
    double own = floor((double)(on->shared + KEPT_BACK)
                       / (room + KEPT_BACK));

    return fmax(1, fmin(own, FILE_OF / (REGISTERS * THREADS)));
}

/* The first to be free, of a heap of times. */
static void pass_on(double *heap, int n, double more)
{
    int at = 0, child;

    heap[0] += more;
    while ((child = 2 * at + 1) < n) {
        child += child + 1 < n && heap[child + 1] < heap[child];
        if (heap[at] <= heap[child])
            return;
        double t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

/* Steps until all blocks are through, which begin in order where one is free:
 * so long as the longest, if all begin at once. */
static double longest(Ctx *c, const PairBlocks *b, int there)
{
    enum { MANY = 1 << 17 };
    double all = 0, last = 0, each = b->parts * b->beside / b->n;
    double *heap = ctx_alloc(c, (size_t)there * sizeof *heap);

    for (int i = 0; i < b->n; i++)
        all += each * b->steps[i];
    if (b->parts * b->beside > MANY)
        return all / there;
    for (double k = 0; k < b->parts * b->beside; k++) {
        double steps = b->steps[(int)(k / each)];
        double end = heap[0] + steps;
        last = end > last ? end : last;
        pass_on(heap, there, steps);
    }
    return last;
}

double pair_seconds(Ctx *c, const PairAsk *a, const Machine *on,
                    AttentionWay way, int kernel, PairShape s, int room,
                    const PairBlocks *b)
{
    Step one = way == BLOCKS ? step_blocks(a, kernel, s)
             : kernel == PAIR_SCORES ? step_scores(a, s)
             : step_product(s);
    double there = fmin(pair_resident(on, room),
                        up(b->parts * b->beside, on->units));
    double each = fmax(one.alone / there, fmax(one.banks, one.issued));

    return longest(c, b, (int)(there * on->units)) * there * each / on->clock;
}
