/* pebble_attention.c -- two schedules of attention's backward pass, played as
 * pebble games or counted.
 */
#include <math.h>
#include <string.h>

#include "pebble.h"

/* A matrix of words, row-major; in a game each word has a vertex. */
typedef struct Words {
    int64_t rows, cols;
    Vertex *at;                         /* plus one; 0: none yet */
} Words;

typedef struct Play {
    Ctx *ctx;
    Attention a;
    Game *game;                         /* NULL: count alone */
    AttentionCount *count;
    Words q, k, v, d_o, lse, delta;     /* given */
    Words p, ds, dq, dk, dv;
} Play;

int64_t attention_least(AttentionWay way, int64_t d)
{
    return way == BLOCKS ? 7 * d + 6 : 6;
}

/* Columns in a block; the side of a tile, beside which lie a column and three
 * words at work. */
static int64_t block_width(const Attention *a)
{
    int64_t width = (a->red - 3 * a->d - 6) / (4 * a->d);

    return width < a->n ? width : a->n;
}

static int64_t tile_side(const Attention *a)
{
    int64_t side = (int64_t)sqrt((double)a->red);

    while (side > 1 && side * side + side + 3 > a->red)
        side--;
    return side;
}

double attention_steps(const Attention *a)
{
    double n = (double)a->n, d = (double)a->d;

    if (a->way == BLOCKS)
        return n * (n / (double)block_width(a) + 2);
    double side = (double)tile_side(a);
    return (n / side + 1) * n * (2 + 3 * (d / side + 1));
}

/* ---- moves of runs of words ---- */

static Vertex *word(const Words *w, int64_t row, int64_t col)
{
    return &w->at[row * w->cols + col];
}

static void load(Play *p, const Words *w, int64_t row, int64_t from,
                 int64_t to)
{
    p->count->loads += to - from;
    for (int64_t c = from; p->game && c < to; c++)
        game_load(p->game, *word(w, row, c) - 1);
}

static void drop(Play *p, const Words *w, int64_t row, int64_t from,
                 int64_t to)
{
    for (int64_t c = from; p->game && c < to; c++)
        game_drop(p->game, *word(w, row, c) - 1);
}

/* Stores, and drops. */
static void store(Play *p, const Words *w, int64_t row, int64_t from,
                  int64_t to)
{
    p->count->stores += to - from;
    for (int64_t c = from; p->game && c < to; c++)
        game_store(p->game, *word(w, row, c) - 1);
    drop(p, w, row, from, to);
}

/* *sum += x * y; the first term makes it. */
static void multiply_add(Play *p, Vertex *sum, Vertex x, Vertex y)
{
    Game *g = p->game;
    Vertex operand[3] = { x - 1, y - 1, *sum - 1 };
    double value = game_value(g, x - 1) * game_value(g, y - 1)
                 + (*sum ? game_value(g, *sum - 1) : 0);
    Vertex made = game_compute(g, 1, value, *sum ? 3 : 2, operand) + 1;

    if (*sum)
        game_drop(g, *sum - 1);
    *sum = made;
}

/* Row r of sum[., from .. to) += x * row s of w. */
static void add_row(Play *p, const Words *sum, int64_t r, Vertex x,
                    const Words *w, int64_t s, int64_t from, int64_t to)
{
    for (int64_t c = from; p->game && c < to; c++)
        multiply_add(p, word(sum, r, c), x, *word(w, s, c));
}

/* ---- the pairs ---- */

/* Columns of row i in [from, to) whose pairs count: [*first, *last). The band
 * is symmetric: rows of column i as well. */
static bool pairs(const Play *p, int64_t i, int64_t from, int64_t to,
                  int64_t *first, int64_t *last)
{
    int64_t low = i - p->a.window + 1, high = i + p->a.window;

    *first = from > low ? from : low;
    *last = to < high ? to : high;
    return *first < *last;
}

/* P's entry from its score, dS's from P's and dP's: scores are replaced. */
static Vertex probability(Play *p, Vertex score, int64_t i)
{
    Game *g = p->game;
    Vertex operand[2] = { score - 1, *word(&p->lse, i, 0) - 1 };
    double x = game_value(g, operand[0]) - game_value(g, operand[1]);
    Vertex made = game_compute(g, 1, exp(x), 2, operand) + 1;

    game_drop(g, score - 1);
    return made;
}

static Vertex score_gradient(Play *p, Vertex prob, Vertex dp, int64_t i)
{
    Game *g = p->game;
    Vertex operand[3] = { prob - 1, dp - 1, *word(&p->delta, i, 0) - 1 };
    double x = game_value(g, operand[0])
             * (game_value(g, operand[1]) - game_value(g, operand[2]));
    Vertex made = game_compute(g, 1, x, 3, operand) + 1;

    game_drop(g, dp - 1);
    return made;
}

/* ---- blocks in fast memory ---- */

/* All of one pair: its score, and what it adds to dV, dK and dQ. */
static void block_pair(Play *p, int64_t i, int64_t j)
{
    Vertex s = 0, dp = 0, prob, ds;
    int64_t d = p->a.d;

    for (int64_t c = 0; c < d; c++)
        multiply_add(p, &s, *word(&p->q, i, c), *word(&p->k, j, c));
    prob = probability(p, s, i);
    for (int64_t c = 0; c < d; c++)
        multiply_add(p, &dp, *word(&p->d_o, i, c), *word(&p->v, j, c));
    ds = score_gradient(p, prob, dp, i);
    add_row(p, &p->dv, j, prob, &p->d_o, i, 0, d);
    game_drop(p->game, prob - 1);
    add_row(p, &p->dk, j, ds, &p->q, i, 0, d);
    add_row(p, &p->dq, i, ds, &p->k, j, 0, d);
    game_drop(p->game, ds - 1);
}

static void block_row(Play *p, int64_t i, int64_t from, int64_t to,
                      uint8_t *begun)
{
    int64_t first, last, d = p->a.d;

    if (!pairs(p, i, from, to, &first, &last))
        return;
    load(p, &p->q, i, 0, d);
    load(p, &p->d_o, i, 0, d);
    load(p, &p->lse, i, 0, 1);
    load(p, &p->delta, i, 0, 1);
    if (begun[i])
        load(p, &p->dq, i, 0, d);
    begun[i] = 1;
    for (int64_t j = first; p->game && j < last; j++)
        block_pair(p, i, j);
    store(p, &p->dq, i, 0, d);
    drop(p, &p->q, i, 0, d);
    drop(p, &p->d_o, i, 0, d);
    drop(p, &p->lse, i, 0, 1);
    drop(p, &p->delta, i, 0, 1);
}

static void play_blocks(Play *p)
{
    int64_t n = p->a.n, d = p->a.d;
    int64_t width = block_width(&p->a), blocks = (n + width - 1) / width;
    uint8_t *begun = ctx_alloc(p->ctx, (size_t)n);

    for (int64_t b = 0; b < blocks; b++) {      /* of equal width */
        int64_t from = b * n / blocks, to = (b + 1) * n / blocks;
        for (int64_t j = from; j < to; j++) {
            load(p, &p->k, j, 0, d);
            load(p, &p->v, j, 0, d);
        }
        for (int64_t i = 0; i < n; i++)
            block_row(p, i, from, to, begun);
        for (int64_t j = from; j < to; j++) {
            drop(p, &p->k, j, 0, d);
            drop(p, &p->v, j, 0, d);
            store(p, &p->dk, j, 0, d);
            store(p, &p->dv, j, 0, d);
        }
        ctx_poll(p->ctx);
    }
}

/* ---- n x n in slow memory ---- */

typedef struct Range { int64_t from, to; } Range;

static Range tile_at(int64_t i, int64_t tiles, int64_t n)
{
    return (Range){ i * n / tiles, (i + 1) * n / tiles };
}

/* The tile of x y^T in `scores`: one column of x and of y at a time. */
static void score_tile(Play *p, const Words *scores, const Words *x,
                       const Words *y, Range I, Range J)
{
    int64_t first, last, rows = 0;

    for (int64_t i = I.from; i < I.to; i++)
        rows += pairs(p, i, J.from, J.to, &first, &last);
    if (!p->game) {
        p->count->loads += p->a.d * (rows + J.to - J.from);
        return;
    }
    for (int64_t c = 0; c < p->a.d; c++) {
        for (int64_t j = J.from; j < J.to; j++)
            load(p, y, j, c, c + 1);
        for (int64_t i = I.from; i < I.to; i++) {
            if (!pairs(p, i, J.from, J.to, &first, &last))
                continue;
            load(p, x, i, c, c + 1);
            for (int64_t j = first; j < last; j++)
                multiply_add(p, word(scores, i, j), *word(x, i, c),
                             *word(y, j, c));
            drop(p, x, i, c, c + 1);
        }
        for (int64_t j = J.from; j < J.to; j++)
            drop(p, y, j, c, c + 1);
    }
}

static void probability_tile(Play *p, Range I, Range J)
{
    int64_t first, last;

    score_tile(p, &p->p, &p->q, &p->k, I, J);
    for (int64_t i = I.from; i < I.to; i++) {
        if (!pairs(p, i, J.from, J.to, &first, &last))
            continue;
        load(p, &p->lse, i, 0, 1);
        for (int64_t j = first; p->game && j < last; j++)
            *word(&p->p, i, j) = probability(p, *word(&p->p, i, j), i);
        store(p, &p->p, i, first, last);
        drop(p, &p->lse, i, 0, 1);
    }
}

static void score_gradient_tile(Play *p, Range I, Range J)
{
    int64_t first, last;

    score_tile(p, &p->ds, &p->d_o, &p->v, I, J);
    for (int64_t i = I.from; i < I.to; i++) {
        if (!pairs(p, i, J.from, J.to, &first, &last))
            continue;
        load(p, &p->delta, i, 0, 1);
        for (int64_t j = first; p->game && j < last; j++) {
            load(p, &p->p, i, j, j + 1);
            *word(&p->ds, i, j) = score_gradient(p, *word(&p->p, i, j),
                                                 *word(&p->ds, i, j), i);
            drop(p, &p->p, i, j, j + 1);
        }
        p->count->loads += p->game ? 0 : last - first;
        store(p, &p->ds, i, first, last);
        drop(p, &p->delta, i, 0, 1);
    }
}

/* The tile of m w in `sum`, of m^T w where `turned`: one row of w at a time,
 * with the entries of m that meet it. */
static void product_tile(Play *p, const Words *sum, const Words *m,
                         const Words *w, bool turned, Range I, Range C)
{
    int64_t first, last;

    for (int64_t s = 0; s < p->a.n; s++) {
        if (!pairs(p, s, I.from, I.to, &first, &last))
            continue;
        load(p, w, s, C.from, C.to);
        for (int64_t i = first; p->game && i < last; i++) {
            int64_t row = turned ? s : i, col = turned ? i : s;
            load(p, m, row, col, col + 1);
            add_row(p, sum, i, *word(m, row, col), w, s, C.from, C.to);
            drop(p, m, row, col, col + 1);
        }
        p->count->loads += p->game ? 0 : last - first;
        drop(p, w, s, C.from, C.to);
    }
    for (int64_t i = I.from; i < I.to; i++)
        store(p, sum, i, C.from, C.to);
}

static bool meets(const Play *p, Range I, Range J)
{
    int64_t gap = I.from >= J.to ? I.from - J.to + 1
                : J.from >= I.to ? J.from - I.to + 1 : 0;

    return gap < p->a.window;
}

static void play_tiles(Play *p)
{
    int64_t n = p->a.n, d = p->a.d, side = tile_side(&p->a);
    int64_t tiles = (n + side - 1) / side, wide = (d + side - 1) / side;

    for (int64_t i = 0; i < tiles; i++, ctx_poll(p->ctx))
        for (int64_t j = 0; j < tiles; j++) {
            Range I = tile_at(i, tiles, n), J = tile_at(j, tiles, n);
            if (!meets(p, I, J))
                continue;
            probability_tile(p, I, J);
            score_gradient_tile(p, I, J);
        }
    for (int64_t i = 0; i < tiles; i++, ctx_poll(p->ctx))
        for (int64_t c = 0; c < wide; c++) {
            Range I = tile_at(i, tiles, n), C = tile_at(c, wide, d);
            product_tile(p, &p->dv, &p->p, &p->d_o, true, I, C);
            product_tile(p, &p->dk, &p->ds, &p->q, true, I, C);
            product_tile(p, &p->dq, &p->ds, &p->k, false, I, C);
        }
}

/* ---- numbers: given at random, and what should come out ---- */

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

static Words make_words(Play *p, int64_t rows, int64_t cols)
{
    Words w = { rows, cols, NULL };

    if (p->game)
        w.at = ctx_alloc(p->ctx, (size_t)(rows * cols) * sizeof *w.at);
    return w;
}

static Words given_words(Play *p, int64_t rows, int64_t cols, uint64_t *seed)
{
    Words w = make_words(p, rows, cols);

    for (int64_t i = 0; p->game && i < rows * cols; i++)
        w.at[i] = game_input(p->game, 1, draw(seed)) + 1;
    return w;
}

static double value(const Play *p, const Words *w, int64_t row, int64_t col)
{
    return game_value(p->game, *word(w, row, col) - 1);
}

static double row_dot(const Play *p, const Words *x, int64_t i, const Words *y,
                      int64_t j)
{
    double sum = 0;

    for (int64_t c = 0; c < p->a.d; c++)
        sum += value(p, x, i, c) * value(p, y, j, c);
    return sum;
}

/* Checks that a gradient lies in slow memory; its distance from `right`. */
static double off(Play *p, const Words *w, const double *right)
{
    double worst = 0;

    for (int64_t i = 0; i < p->a.n * p->a.d; i++) {
        if (!w->at[i] || !game_is_blue(p->game, w->at[i] - 1))
            fail_code(p->ctx, ERR_INTERNAL, "pebble game: a gradient is not "
                      "in slow memory");
        worst = fmax(worst, fabs(game_value(p->game, w->at[i] - 1)
                                 - right[i]));
    }
    return worst;
}

/* The gradients by plain sums, against those that the game has left. */
static double compare(Play *p)
{
    int64_t n = p->a.n, d = p->a.d, first, last;
    size_t bytes = (size_t)(n * d) * sizeof(double);
    double *dq = ctx_alloc(p->ctx, bytes), *dk = ctx_alloc(p->ctx, bytes);
    double *dv = ctx_alloc(p->ctx, bytes);

    for (int64_t i = 0; i < n; i++)
        for (int64_t j = pairs(p, i, 0, n, &first, &last) ? first : n;
             j < last; j++) {
            double prob = exp(row_dot(p, &p->q, i, &p->k, j)
                              - value(p, &p->lse, i, 0));
            double ds = prob * (row_dot(p, &p->d_o, i, &p->v, j)
                                - value(p, &p->delta, i, 0));
            for (int64_t c = 0; c < d; c++) {
                dq[i * d + c] += ds * value(p, &p->k, j, c);
                dk[j * d + c] += ds * value(p, &p->q, i, c);
                dv[j * d + c] += prob * value(p, &p->d_o, i, c);
            }
        }
    return fmax(off(p, &p->dq, dq), fmax(off(p, &p->dk, dk),
                                         off(p, &p->dv, dv)));
}

void attention_run(Ctx *c, const Attention *a, bool play,
                   AttentionCount *count)
{
    Play p = { .ctx = c, .a = *a, .count = count };
    uint64_t seed = 1;
    int64_t n = a->n, d = a->d;

    memset(count, 0, sizeof *count);
    if (a->red < attention_least(a->way, d))
        fail(c, 0, "attention's schedule wants %lld words of fast memory at "
             "least, not %lld", (long long)attention_least(a->way, d),
             (long long)a->red);
    p.game = play ? game_new(c, a->red) : NULL;
    p.q = given_words(&p, n, d, &seed);
    p.k = given_words(&p, n, d, &seed);
    p.v = given_words(&p, n, d, &seed);
    p.d_o = given_words(&p, n, d, &seed);
    p.lse = given_words(&p, n, 1, &seed);
    p.delta = given_words(&p, n, 1, &seed);
    p.p = make_words(&p, n, n);
    p.ds = make_words(&p, n, n);
    p.dq = make_words(&p, n, d);
    p.dk = make_words(&p, n, d);
    p.dv = make_words(&p, n, d);
    if (a->way == BLOCKS)
        play_blocks(&p);
    else
        play_tiles(&p);
    if (!play)
        return;
    if (count->loads != p.game->loads || count->stores != p.game->stores)
        fail_code(c, ERR_INTERNAL, "pebble game: moves and count differ");
    count->peak = p.game->peak;
    count->error = compare(&p);
}
