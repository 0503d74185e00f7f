/* rank_empty.h -- what a token's empty rows hold: of three ranks that are four
 * rows the last. */
#ifndef FLIN_RANK_EMPTY_H
#define FLIN_RANK_EMPTY_H

#include "../ir.h"

/* Of each node, by rows and by columns, what is known. Zero to begin with, but
 * for the graph, which may grow. fails: a number is not finite there, and would
 * spoil what it is multiplied with. */
typedef struct Empty {
    const Graph *g;
    struct EmptyRow *row[2];
    uint32_t len[2];
    bool fails;
} Empty;

/* Whether node r is zero in empty rows, or in empty columns. Memory has none of
 * them: what is loaded is. */
bool is_empty_zero(Empty *e, Ref r, bool cols);

#endif
