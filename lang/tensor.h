/* tensor.h -- what the files lang/tensor*.c and files.c share. */
#ifndef FLIN_TENSOR_H
#define FLIN_TENSOR_H

#include "lang.h"

/* Every element in row-major order of the shape, wherever it lies:
 *   for (Walk w = walk(L, t); w.left; walk_next(&w)) ... element w.at ...
 * The elements count as work, and a walk over many can be interrupted. */
typedef struct Walk {
    lua_State *L;
    const Tensor *t;
    int64_t i[TENSOR_RANK], at, left;
} Walk;
Walk walk(lua_State *L, const Tensor *t);
void walk_next(Walk *w);

/* n things of `each` elements, in pieces between which there may be an
 * interrupt:
 *   for (Span s = span(L, n, 1); span_next(&s); )
 *       for (int64_t i = s.from; i < s.to; i++) ...                        */
typedef struct Span {
    lua_State *L;
    int64_t from, to, end, piece;
} Span;
/* What a random number and an entry of a Lua table count as, in elements. */
enum { DRAW_COST = 4, ENTRY_COST = 16 };
Span span(lua_State *L, int64_t n, int64_t each);
bool span_next(Span *s);

/* All shapes pass here, of tensors and of views: the product of the sizes, none
 * of which counts as less than 1, is at most COUNT_MAX, so that no count,
 * stride or number of bytes overflows. */
enum { COUNT_LOG = 44 };
#define COUNT_MAX ((int64_t)1 << COUNT_LOG)
void tensor_bounded(lua_State *L, const Tensor *t);

/* For view_get and view_set, whose `at` counts from the store's start. */
View tensor_view(const Tensor *t);

/* The tensor at arg, to be written to; what has been saved of it for v:backward
 * will not do any more. */
static inline const Tensor *tensor_writable(lua_State *L, int arg)
{
    const Tensor *t = tensor_check(L, arg);

    t->store->writes++;
    return t;
}

/* Pushes a tensor without memory, which is to be so many bytes. */
Tensor *tensor_push_bare(lua_State *L, DType d, int rank,
                         const int64_t *shape, size_t *bytes);
/* Pushes another tensor on t's store, to be narrowed or turned. */
Tensor *tensor_alias(lua_State *L, const Tensor *t);
/* Pushes a row-major copy. */
Tensor *tensor_copy(lua_State *L, const Tensor *t, DType d);
bool tensor_contiguous(const Tensor *t);

/* Reads sizes (numbers, or one table of them) from `arg` on; returns how many
 * and sets *next to the first argument after them. One may be -1 where `open`
 * is not NULL: it counts as 1, and *open says which it is (-1: none). A Lua
 * error names `what`. */
int tensor_sizes(lua_State *L, int arg, const char *what,
                 int64_t shape[TENSOR_RANK], int *next, int *open);

/* tensor_index.c: pushes the metatable; methods on top go into it below. */
void tensor_meta(lua_State *L);
void tensor_fields(lua_State *L);
int tensor_collect(lua_State *L);       /* __gc (tensor.c) */

/* Each adds to the table on top of the stack: methods, or the metatable's
 * + - * / and unary minus. */
void tensor_methods(lua_State *L);      /* tensor_view.c */
void tensor_reductions(lua_State *L);   /* tensor_math.c */
void tensor_arithmetic(lua_State *L);
void tensor_ops_open(lua_State *L);    /* tensor_ops.c */
void make_open(lua_State *L);           /* tensor_make.c: flin.zeros, ... */
void host_open(lua_State *L);           /* tensor_host.c: flin.host */
void files_open(lua_State *L);          /* files.c: flin.load, flin.save */
void tensors_open(lua_State *L);        /* open.c: all of these */

#endif
