/* layer_tiling.c -- how a product and the program over rows that alone reads it
 * are cut, so that what lies between them is in memory in part: by tokens or by
 * columns, in as few tiles as there is memory for.
 *
 * Of as many tiles, T tokens and n columns: tiles of tokens read the weight for
 * each, and add up its gradient there; tiles of columns read the values for
 * each, and add up theirs. So it is the one of these two that is smaller that
 * is to be read again: tokens are cut where there are more of them than
 * columns, which is seldom so of a vocabulary.
 */
#include <math.h>

#include "layer_run.h"

/* Where tiles are asked for without a word about memory: at most so much of the
 * result at once, and a quarter of all. */
enum { TILES_LEAST = 4 };
static const int64_t TILE_BYTES = 256 << 20;

/* A width is a whole number of these: what a thread of the CPU takes at once,
 * so that sums have the bits of those of whole rows. */
enum { STRIP = 1024 };

int32_t column_width(int32_t columns, int at)
{
    int64_t half = (int64_t)1 << (at + 1);
    int64_t wide = (columns + half - 1) / half, last = (int64_t)columns;

    if (at > 0)
        last = column_width(columns, at - 1);
    wide = (wide + STRIP - 1) / STRIP * STRIP;
    return wide < last ? (int32_t)wide : 0;
}

/* ---- time ---- */

/* A product: so many bytes, in so many pieces. */
static double product_seconds(const TileAsk *a, double bytes, double pieces)
{
    return fmax(a->flops / a->m->matrix, bytes / a->m->bandwidth)
         + pieces * a->m->follow;
}

double tiling_seconds(const TileAsk *a, const Tiling *t, double *bytes)
{
    const double n = t->tiles, wide = 4. / a->element;
    const double z = a->batch * a->tokens * a->result;
    const double again = 2 * n - 1;     /* a sum is read and written */
    bool tokens = t->way == TILE_TOKENS, columns = t->way == TILE_COLUMNS;
    double x = a->values * (columns ? n : 1), w = a->weight * (tokens ? n : 1);
    double dx = a->values * (columns ? wide * (again + 1) + 1 : 1);
    double dw = a->weight * (tokens ? wide * again : 1);
    double forward = x + w + z, seconds = product_seconds(a, forward, 2 * n);

    *bytes = forward;
    if (!a->backward)
        return seconds;
    if (t->way != TILE_WHOLE) {         /* made again */
        *bytes += forward;
        seconds += product_seconds(a, forward, n);
    }
    *bytes += z + w + dx + x + z + dw;
    return seconds + product_seconds(a, z + w + dx, 2 * n)
         + product_seconds(a, x + z + dw, n);
}

/* ---- the choice ---- */

static double all_bytes(const TileAsk *a)
{
    return a->batch * a->tokens * a->result;
}

/* Of what a call says, or at most so much and a quarter of all. */
static bool fits(const TileAsk *a, const Tiling *t)
{
    if (a->memory)
        return t->bytes <= (double)a->memory;
    return t->bytes <= (double)TILE_BYTES && t->tiles >= TILES_LEAST;
}

/* As many tokens as fit, one where none is asked for. */
static Tiling cut_tokens(const TileAsk *a)
{
    double most = a->memory ? (double)a->memory : (double)TILE_BYTES;
    double n = fmin(floor(most / a->result), a->tokens);

    if (!a->memory)
        n = fmax(fmin(n, ceil(a->batch * a->tokens / TILES_LEAST)), 1);
    return (Tiling){ n < 1 ? TILE_WHOLE : TILE_TOKENS, (int64_t)n,
                     a->batch * ceil(a->tokens / n), n * a->result };
}

/* The widest that fit. */
static Tiling cut_columns(const TileAsk *a)
{
    int32_t wide;

    for (int at = 0; a->columns && at < COLUMN_WIDTHS
                     && (wide = column_width(a->columns, at)) > 0; at++) {
        Tiling t = { TILE_COLUMNS, wide, ceil((double)a->columns / wide),
                     all_bytes(a) * wide / a->columns };
        if (fits(a, &t))
            return t;
    }
    return (Tiling){ 0 };
}

Tiling choose_tiling(Ctx *c, const TileAsk *a)
{
    const Tiling whole = { TILE_WHOLE, 0, 1, all_bytes(a) };
    double moved[2], seconds[2];

    if (a->whole && (!a->memory || fits(a, &whole)))
        return whole;
    Tiling tokens = cut_tokens(a), columns = cut_columns(a);
    if (tokens.way == TILE_WHOLE && columns.way == TILE_WHOLE)
        fail(c, 0, "memory = %lld: of a product that is read by rows a token "
             "takes %.0f bytes, and %d columns of all %.0f",
             (long long)a->memory, a->result, STRIP, a->columns
             ? all_bytes(a) * STRIP / a->columns : all_bytes(a));
    if (tokens.way == TILE_WHOLE || columns.way == TILE_WHOLE)
        return tokens.way == TILE_WHOLE ? columns : tokens;
    seconds[0] = tiling_seconds(a, &tokens, &moved[0]);
    seconds[1] = tiling_seconds(a, &columns, &moved[1]);
    bool less = seconds[1] < seconds[0]
             || (!(seconds[0] < seconds[1]) && moved[1] < moved[0]);
    return less ? columns : tokens;
}
