/* pebble_play.c -- schedules of attention's backward pass as pebble games. */
#include "pebble_play.h"

#include <math.h>

/* A matrix of words, row-major, each with a vertex. */
typedef struct Words {
    int64_t rows, cols;
    Vertex *at;                         /* plus one; 0: none yet */
} Words;

typedef struct Play {
    Ctx *ctx;
    Attention a;
    Shape shape;
    Game *game;
    Words q, k, v, d_o, lse, delta;     /* given */
    Words p, ds, dq, dk, dv;
    Vertex *prob, *dp;                  /* of the line at work, BLOCKS */
    uint8_t *begun;                     /* rows whose dq is in slow memory */
} Play;

/* ---- moves of runs of words ---- */

static Vertex *word(const Words *w, int64_t row, int64_t col)
{
    return &w->at[row * w->cols + col];
}

static void load(Play *p, const Words *w, int64_t row, int64_t from,
                 int64_t to)
{
    for (int64_t c = from; c < to; c++)
        game_load(p->game, *word(w, row, c) - 1);
}

static void drop(Play *p, const Words *w, int64_t row, int64_t from,
                 int64_t to)
{
    for (int64_t c = from; c < to; c++)
        game_drop(p->game, *word(w, row, c) - 1);
}

/* Stores, and drops. */
static void store(Play *p, const Words *w, int64_t row, int64_t from,
                  int64_t to)
{
    for (int64_t c = from; c < to; c++)
        game_store(p->game, *word(w, row, c) - 1);
    drop(p, w, row, from, to);
}

static void load_rows(Play *p, const Words *w, Range at)
{
    for (int64_t i = at.from; i < at.to; i++)
        load(p, w, i, 0, w->cols);
}

static void drop_rows(Play *p, const Words *w, Range at)
{
    for (int64_t i = at.from; i < at.to; i++)
        drop(p, w, i, 0, w->cols);
}

static void store_rows(Play *p, const Words *w, Range at)
{
    for (int64_t i = at.from; i < at.to; i++)
        store(p, w, i, 0, w->cols);
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

static Vertex inner_product(Play *p, const Words *x, int64_t i,
                            const Words *y, int64_t j)
{
    Vertex sum = 0;

    for (int64_t c = 0; c < p->a.d; c++)
        multiply_add(p, &sum, *word(x, i, c), *word(y, j, c));
    return sum;
}

/* P's entry from its score, which it replaces. */
static Vertex probability(Play *p, Vertex score, int64_t i)
{
    Game *g = p->game;
    Vertex operand[2] = { score - 1, *word(&p->lse, i, 0) - 1 };
    double x = game_value(g, operand[0]) - game_value(g, operand[1]);
    Vertex made = game_compute(g, 1, exp(x), 2, operand) + 1;

    game_drop(g, score - 1);
    return made;
}

/* dS's entry from P's and dP's, which it replaces. */
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

/* ---- BLOCKS: a part of the columns, or rows, stays; lines pass by ---- */

/* A pass; `held` and `streamed` are the line's, the others the part's. */
typedef struct Pass {
    bool by_rows;                       /* lines are rows, with their L and D */
    const Words *held, *streamed, *x, *y;
    const Words *sum;                   /* += dS * held */
    const Words *dv;                    /* += P * streamed, or NULL */
} Pass;

static void line_probabilities(Play *p, const Pass *t, int64_t line, Range at)
{
    load(p, t->held, line, 0, p->a.d);
    if (t->by_rows)
        load(p, &p->lse, line, 0, 1);
    for (int64_t i = at.from; i < at.to; i++) {
        Vertex score = inner_product(p, t->held, line, t->x, i);
        p->prob[i] = probability(p, score, t->by_rows ? line : i);
    }
    if (t->by_rows)
        drop(p, &p->lse, line, 0, 1);
}

/* The line's other vector is wanted a word at a time. */
static void line_stream(Play *p, const Pass *t, int64_t line, Range at)
{
    for (int64_t c = 0; c < p->a.d; c++) {
        Vertex w = *word(t->streamed, line, c);
        game_load(p->game, w - 1);
        for (int64_t i = at.from; i < at.to; i++) {
            multiply_add(p, &p->dp[i], w, *word(t->y, i, c));
            if (t->dv)
                multiply_add(p, word(t->dv, i, c), p->prob[i], w);
        }
        game_drop(p->game, w - 1);
    }
}

static void line_score_gradients(Play *p, const Pass *t, int64_t line,
                                 Range at)
{
    if (t->by_rows)
        load(p, &p->delta, line, 0, 1);
    for (int64_t i = at.from; i < at.to; i++) {
        p->dp[i] = score_gradient(p, p->prob[i], p->dp[i],
                                  t->by_rows ? line : i);
        game_drop(p->game, p->prob[i] - 1);
    }
    if (t->by_rows)
        drop(p, &p->delta, line, 0, 1);
}

/* A word of the row's dq, carried past every part. */
static void add_carried(Play *p, int64_t row, int64_t c, Range at)
{
    if (p->begun[row])
        load(p, &p->dq, row, c, c + 1);
    for (int64_t j = at.from; j < at.to; j++)
        multiply_add(p, word(&p->dq, row, c), p->dp[j], *word(&p->k, j, c));
    store(p, &p->dq, row, c, c + 1);
}

static void line_sums(Play *p, const Pass *t, int64_t line, Range at)
{
    for (int64_t c = 0; c < p->a.d; c++) {
        Vertex w = *word(t->held, line, c);
        for (int64_t i = at.from; i < at.to; i++)
            multiply_add(p, word(t->sum, i, c), p->dp[i], w);
        game_drop(p->game, w - 1);
        if (p->shape.once)
            add_carried(p, line, c, at);
    }
    if (p->shape.once)
        p->begun[line] = 1;
    for (int64_t i = at.from; i < at.to; i++) {
        game_drop(p->game, p->dp[i] - 1);
        p->dp[i] = 0;
    }
}

static void play_lines(Play *p, const Pass *t, Range part)
{
    Range lines = meeting(&p->a, part);

    for (int64_t line = lines.from; line < lines.to; line++) {
        Range at = common(part, meeting(&p->a, (Range){ line, line + 1 }));
        line_probabilities(p, t, line, at);
        line_stream(p, t, line, at);
        line_score_gradients(p, t, line, at);
        line_sums(p, t, line, at);
    }
    ctx_poll(p->ctx);
}

static void play_blocks(Play *p)
{
    const Pass rows_pass = { true, &p->q, &p->d_o, &p->k, &p->v, &p->dk,
                             &p->dv };
    const Pass columns_pass = { false, &p->k, &p->v, &p->q, &p->d_o, &p->dq,
                                NULL };
    int64_t n = p->a.n;

    for (int64_t b = 0; b < p->shape.columns; b++) {
        Range part = part_at(b, p->shape.columns, n);
        load_rows(p, &p->k, part);
        load_rows(p, &p->v, part);
        play_lines(p, &rows_pass, part);
        drop_rows(p, &p->k, part);
        drop_rows(p, &p->v, part);
        store_rows(p, &p->dk, part);
        store_rows(p, &p->dv, part);
    }
    for (int64_t b = 0; b < p->shape.rows && !p->shape.once; b++) {
        const Words *stay[] = { &p->q, &p->d_o, &p->lse, &p->delta };
        Range part = part_at(b, p->shape.rows, n);
        for (int i = 0; i < 4; i++)
            load_rows(p, stay[i], part);
        play_lines(p, &columns_pass, part);
        for (int i = 0; i < 4; i++)
            drop_rows(p, stay[i], part);
        store_rows(p, &p->dq, part);
    }
}

/* ---- TILES: P and dS in slow memory, one product after another ---- */

/* P from q and k, or dS from dO, v and P. */
typedef struct Scores {
    const Words *out, *x, *y, *row_word;
    const Words *given;                 /* P, where dS is made */
} Scores;

/* Entry (i, j) from its inner product; stored. */
static void finish(Play *p, const Scores *t, int64_t i, int64_t j)
{
    Vertex *w = word(t->out, i, j);

    if (t->given) {
        load(p, t->given, i, j, j + 1);
        *w = score_gradient(p, *word(t->given, i, j), *w, i);
        drop(p, t->given, i, j, j + 1);
    } else {
        *w = probability(p, *w, i);
    }
    store(p, t->out, i, j, j + 1);
}

/* Columns that stay, rows that pass by. */
static void play_column_scores(Play *p, const Scores *t, Range J)
{
    Range rows = meeting(&p->a, J);

    load_rows(p, t->y, J);
    for (int64_t i = rows.from; i < rows.to; i++) {
        Range at = common(J, meeting(&p->a, (Range){ i, i + 1 }));
        load(p, t->x, i, 0, p->a.d);
        load(p, t->row_word, i, 0, 1);
        for (int64_t j = at.from; j < at.to; j++) {
            *word(t->out, i, j) = inner_product(p, t->x, i, t->y, j);
            finish(p, t, i, j);
        }
        drop(p, t->x, i, 0, p->a.d);
        drop(p, t->row_word, i, 0, 1);
    }
    drop_rows(p, t->y, J);
}

/* One word of each column and of a row at a time, the tile's sums stay. */
static void play_square_scores(Play *p, const Scores *t, Range I, Range J)
{
    for (int64_t c = 0; c < p->a.d; c++) {
        for (int64_t j = J.from; j < J.to; j++)
            load(p, t->y, j, c, c + 1);
        for (int64_t i = I.from; i < I.to; i++) {
            Range at = common(J, meeting(&p->a, (Range){ i, i + 1 }));
            load(p, t->x, i, c, c + 1);
            for (int64_t j = at.from; j < at.to; j++)
                multiply_add(p, word(t->out, i, j), *word(t->x, i, c),
                             *word(t->y, j, c));
            drop(p, t->x, i, c, c + 1);
        }
        for (int64_t j = J.from; j < J.to; j++)
            drop(p, t->y, j, c, c + 1);
    }
    for (int64_t i = I.from; i < I.to; i++) {
        Range at = common(J, meeting(&p->a, (Range){ i, i + 1 }));
        load(p, t->row_word, i, 0, 1);
        for (int64_t j = at.from; j < at.to; j++)
            finish(p, t, i, j);
        drop(p, t->row_word, i, 0, 1);
    }
}

static void play_scores(Play *p, const Scores *t)
{
    int64_t n = p->a.n, parts = p->shape.scores;

    for (int64_t b = 0; b < parts; b++, ctx_poll(p->ctx)) {
        Range J = part_at(b, parts, n), rows = meeting(&p->a, J);
        if (!p->shape.square) {
            play_column_scores(p, t, J);
            continue;
        }
        for (int64_t i = 0; i < parts; i++) {
            Range I = common(part_at(i, parts, n), rows);
            if (I.from < I.to)
                play_square_scores(p, t, I, J);
        }
    }
}

/* The tile of m w in `sum`, of m^T w where `turned`: one row of w at a time,
 * with the entries of m that meet it. */
static void play_product_tile(Play *p, const Words *sum, const Words *m,
                              const Words *w, bool turned, Range I, Range C)
{
    Range lines = meeting(&p->a, I);

    for (int64_t s = lines.from; s < lines.to; s++) {
        Range at = common(I, meeting(&p->a, (Range){ s, s + 1 }));
        load(p, w, s, C.from, C.to);
        for (int64_t i = at.from; i < at.to; i++) {
            int64_t row = turned ? s : i, col = turned ? i : s;
            load(p, m, row, col, col + 1);
            for (int64_t c = C.from; c < C.to; c++)
                multiply_add(p, word(sum, i, c), *word(m, row, col),
                             *word(w, s, c));
            drop(p, m, row, col, col + 1);
        }
        drop(p, w, s, C.from, C.to);
    }
    for (int64_t i = I.from; i < I.to; i++)
        store(p, sum, i, C.from, C.to);
}

static void play_product(Play *p, const Words *sum, const Words *m,
                         const Words *w, bool turned)
{
    const Shape *s = &p->shape;

    for (int64_t i = 0; i < s->products; i++, ctx_poll(p->ctx))
        for (int64_t c = 0; c < s->wide; c++)
            play_product_tile(p, sum, m, w, turned,
                              part_at(i, s->products, p->a.n),
                              part_at(c, s->wide, p->a.d));
}

static void play_tiles(Play *p)
{
    const Scores probabilities = { &p->p, &p->q, &p->k, &p->lse, NULL };
    const Scores gradients = { &p->ds, &p->d_o, &p->v, &p->delta, &p->p };

    play_scores(p, &probabilities);
    play_scores(p, &gradients);
    play_product(p, &p->dv, &p->p, &p->d_o, true);
    play_product(p, &p->dk, &p->ds, &p->q, true);
    play_product(p, &p->dq, &p->ds, &p->k, false);
}

/* ---- numbers: given at random, and what should come out ---- */

static double draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(*seed >> 11) * 0x1p-52 - 1;
}

static Words make_words(Play *p, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols) * sizeof(Vertex);

    return (Words){ rows, cols, ctx_alloc(p->ctx, bytes) };
}

static Words given_words(Play *p, int64_t rows, int64_t cols, uint64_t *seed)
{
    Words w = make_words(p, rows, cols);

    for (int64_t i = 0; i < rows * cols; i++)
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
    int64_t n = p->a.n, d = p->a.d;
    size_t bytes = (size_t)(n * d) * sizeof(double);
    double *dq = ctx_alloc(p->ctx, bytes), *dk = ctx_alloc(p->ctx, bytes);
    double *dv = ctx_alloc(p->ctx, bytes);

    for (int64_t i = 0; i < n; i++) {
        Range at = meeting(&p->a, (Range){ i, i + 1 });
        for (int64_t j = at.from; j < at.to; j++) {
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
    }
    return fmax(off(p, &p->dq, dq), fmax(off(p, &p->dk, dk),
                                         off(p, &p->dv, dv)));
}

static void set_up(Play *p)
{
    uint64_t seed = 1;
    int64_t n = p->a.n, d = p->a.d;

    p->q = given_words(p, n, d, &seed);
    p->k = given_words(p, n, d, &seed);
    p->v = given_words(p, n, d, &seed);
    p->d_o = given_words(p, n, d, &seed);
    p->lse = given_words(p, n, 1, &seed);
    p->delta = given_words(p, n, 1, &seed);
    p->p = make_words(p, n, n);
    p->ds = make_words(p, n, n);
    p->dq = make_words(p, n, d);
    p->dk = make_words(p, n, d);
    p->dv = make_words(p, n, d);
    p->prob = ctx_alloc(p->ctx, (size_t)n * sizeof *p->prob);
    p->dp = ctx_alloc(p->ctx, (size_t)n * sizeof *p->dp);
    p->begun = ctx_alloc(p->ctx, (size_t)n);
}

void attention_play(Ctx *c, const Attention *a, const Shape *shape,
                    AttentionCount *count)
{
    Play p = { .ctx = c, .a = *a, .shape = *shape,
               .game = game_new(c, a->red) };

    set_up(&p);
    if (a->way == BLOCKS)
        play_blocks(&p);
    else
        play_tiles(&p);
    if (count->loads != p.game->loads || count->stores != p.game->stores)
        fail_code(c, ERR_INTERNAL, "pebble game: %lld loads and %lld stores "
                  "played, %lld and %lld counted", (long long)p.game->loads,
                  (long long)p.game->stores, (long long)count->loads,
                  (long long)count->stores);
    count->peak = p.game->peak;
    count->error = compare(&p);
}
