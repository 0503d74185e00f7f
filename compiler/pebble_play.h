/* pebble_play.h -- the shape of a schedule of attention's backward pass, and
 * the game that plays it move by move.
 */
#ifndef FLIN_PEBBLE_PLAY_H
#define FLIN_PEBBLE_PLAY_H

#include "pebble.h"

typedef struct Range { int64_t from, to; } Range;

/* How many parts n is cut into, all of nearly one width. */
typedef struct Shape {
    bool once;                          /* BLOCKS: one pass, not two */
    int64_t columns, rows;              /* BLOCKS: that stay, in each pass */
    bool square;                        /* TILES: scores in square tiles, not
                                           beside columns that stay */
    int64_t scores, products;           /* TILES: columns; rows of a result */
    int64_t wide;                       /* TILES: parts of d, of a result */
} Shape;

static inline Range part_at(int64_t i, int64_t parts, int64_t n)
{
    return (Range){ i * n / parts, (i + 1) * n / parts };
}

/* Rows with pairs in these columns; the band is symmetric: or columns with
 * pairs in these rows. */
static inline Range meeting(const Attention *a, Range r)
{
    int64_t low = r.from - a->window + 1, high = r.to + a->window - 1;

    return (Range){ low > 0 ? low : 0, high < a->n ? high : a->n };
}

static inline Range common(Range a, Range b)
{
    return (Range){ a.from > b.from ? a.from : b.from,
                    a.to < b.to ? a.to : b.to };
}

/* Plays it on random numbers; sets peak and error, and fails where the moves
 * are not as many as `count` has. */
void attention_play(Ctx *c, const Attention *a, const Shape *shape,
                    AttentionCount *count);

#endif
