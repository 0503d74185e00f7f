/* pebble_attention.c -- two schedules of attention's backward pass: what they
 * move, counted, in the shape that moves least.
 */
#include "pebble_play.h"

#include <math.h>

/* One row or column at least, with what lies beside it: see the widths. */
int64_t attention_least(AttentionWay way, int64_t d)
{
    return way == TILES ? 5 : d < 2 ? 4 * d + 6 : 5 * d + 4;
}

/* ---- widths: what a part may have, with all that lies beside it ---- */

/* A column's k, v, dk, dv, P and dP; a row's q, and two words at work. */
static int64_t column_width(const Attention *a)
{
    return (a->red - a->d - 2) / (4 * a->d + 2);
}

/* A row's q, dO, dq, L, D, P and dP; a column's k, and two words at work. */
static int64_t row_width(const Attention *a)
{
    return (a->red - a->d - 2) / (3 * a->d + 4);
}

/* A column's k, or v; a row's q, or dO, and four words at work. */
static int64_t score_width(const Attention *a)
{
    return (a->red - a->d - 4) / a->d;
}

/* A square of scores; a column of an operand and three words at work. */
static int64_t square_side(const Attention *a)
{
    int64_t side = (int64_t)sqrt((double)a->red);

    while (side * side + side + 3 > a->red)
        side--;
    return side;
}

/* A row of the result, a row of an operand, and two words at work. */
static int64_t product_width(const Attention *a, int64_t wide)
{
    int64_t cols = (a->d + wide - 1) / wide;

    return (a->red - cols - 2) / cols;
}

static int64_t parts_of(const Attention *a, int64_t width)
{
    return width < a->n ? (a->n + width - 1) / width : 1;
}

/* ---- counts ---- */

/* Rows that meet a part, summed over the parts. */
static int64_t visits(const Attention *a, int64_t parts)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < parts; i++) {
        Range rows = meeting(a, part_at(i, parts, a->n));
        sum += rows.to - rows.from;
    }
    return sum;
}

static int64_t all_pairs(const Attention *a)
{
    int64_t w = a->window < a->n ? a->window : a->n;

    return a->n * (2 * w - 1) - w * (w - 1);
}

static AttentionCount count_blocks(const Attention *a, const Shape *s)
{
    int64_t n = a->n, d = a->d, rows = visits(a, s->columns);
    AttentionCount count = { .loads = 2 * n * d + rows * (2 * d + 2),
                             .stores = 2 * n * d };

    if (s->once) {
        count.loads += (rows - n) * d;
        count.stores += rows * d;
    } else {
        count.loads += 2 * n * (d + 1) + visits(a, s->rows) * 2 * d;
        count.stores += n * d;
    }
    return count;
}

/* Square tiles that pairs meet, each times its columns. */
static int64_t tile_columns(const Attention *a, int64_t tiles)
{
    int64_t sum = 0;

    for (int64_t j = 0; j < tiles; j++) {
        Range J = part_at(j, tiles, a->n), rows = meeting(a, J);
        int64_t first = rows.from * tiles / a->n;
        int64_t last = ((rows.to - 1) * tiles + tiles - 1) / a->n;
        while (part_at(first, tiles, a->n).to <= rows.from)
            first++;
        while (part_at(last, tiles, a->n).from >= rows.to)
            last--;
        sum += (last - first + 1) * (J.to - J.from);
    }
    return sum;
}

/* Of P and dS alike, beside the entries themselves. */
static int64_t score_loads(const Attention *a, bool square, int64_t parts)
{
    int64_t rows = visits(a, parts) * (a->d + 1);

    return rows + a->d * (square ? tile_columns(a, parts) : a->n);
}

static int64_t product_loads(const Attention *a, int64_t parts, int64_t wide)
{
    return wide * all_pairs(a) + a->d * visits(a, parts);
}

static AttentionCount count_tiles(const Attention *a, const Shape *s)
{
    int64_t pairs = all_pairs(a);

    return (AttentionCount){
        .loads = 2 * score_loads(a, s->square, s->scores) + pairs
               + 3 * product_loads(a, s->products, s->wide),
        .stores = 2 * pairs + 3 * a->n * a->d
    };
}

/* ---- the best shape ---- */

static int64_t moved(AttentionCount c)
{
    return c.loads + c.stores;
}

static Shape best_blocks(const Attention *a)
{
    Shape two = { .columns = parts_of(a, column_width(a)),
                  .rows = parts_of(a, row_width(a)) };
    Shape one = two;

    one.once = true;
    return moved(count_blocks(a, &one)) < moved(count_blocks(a, &two))
         ? one : two;
}

/* Fewer parts of d read the scores less often, but leave fewer rows room. */
static void best_product(const Attention *a, Shape *s)
{
    int64_t least = INT64_MAX, scores = all_pairs(a);

    for (int64_t w = 1; w <= a->d; w++) {
        if (least < INT64_MAX && w * scores + a->d * a->n >= least)
            return;
        if (product_width(a, w) < 1)
            continue;
        int64_t parts = parts_of(a, product_width(a, w));
        int64_t loads = product_loads(a, parts, w);
        if (loads < least) {
            least = loads;
            s->products = parts;
            s->wide = w;
        }
    }
}

static Shape best_tiles(const Attention *a)
{
    Shape s = { .square = true, .scores = parts_of(a, square_side(a)) };

    if (score_width(a) >= 1) {
        int64_t parts = parts_of(a, score_width(a));
        if (score_loads(a, false, parts) < score_loads(a, true, s.scores)) {
            s.square = false;
            s.scores = parts;
        }
    }
    best_product(a, &s);
    return s;
}

double attention_steps(const Attention *a)
{
    double n = (double)a->n, d = (double)a->d, red = (double)a->red;

    return a->way == BLOCKS ? 2 * n / (double)column_width(a) + 2
                            : 3 * n / sqrt(red) + n * d / red * log(d + 2) + 2;
}

void attention_run(Ctx *c, const Attention *a, bool play,
                   AttentionCount *count)
{
    Shape shape;

    if (a->red < attention_least(a->way, a->d))
        fail(c, 0, "attention's schedule wants %lld words of fast memory at "
             "least, not %lld", (long long)attention_least(a->way, a->d),
             (long long)a->red);
    shape = a->way == BLOCKS ? best_blocks(a) : best_tiles(a);
    *count = a->way == BLOCKS ? count_blocks(a, &shape)
                              : count_tiles(a, &shape);
    if (play)
        attention_play(c, a, &shape, count);
}
