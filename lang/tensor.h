/* tensor.h -- what the files lang/tensor*.c and files.c share. */
#ifndef FLIN_TENSOR_H
#define FLIN_TENSOR_H

#include "lang.h"

/* Every element in row-major order of the shape, wherever it lies:
 *   for (Walk w = walk(t); w.left; walk_next(&w)) ... element w.at ...   */
typedef struct Walk {
    const Tensor *t;
    int64_t i[TENSOR_RANK], at, left;
} Walk;
Walk walk(const Tensor *t);
void walk_next(Walk *w);

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
 * and sets *next to the first argument after them. A Lua error names `what`. */
int tensor_sizes(lua_State *L, int arg, const char *what,
                 int64_t shape[TENSOR_RANK], int *next);

/* Each adds to the table on top of the stack: methods, or the metatable's
 * + - * / and unary minus. */
void tensor_methods(lua_State *L);      /* tensor_view.c */
void tensor_reductions(lua_State *L);   /* tensor_math.c */
void tensor_arithmetic(lua_State *L);
void tensor_ops_open(lua_State *L);    /* tensor_ops.c */
void make_open(lua_State *L);           /* tensor_make.c: flin.zeros, ... */
void host_open(lua_State *L);           /* tensor_host.c: flin.host */
void files_open(lua_State *L);          /* files.c: flin.load, flin.save */

#endif
