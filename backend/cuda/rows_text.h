/* rows_text.h -- a kernel over rows as it is printed: what the files
 * backend/cuda/rows_*.c share of it.
 */
#ifndef FLIN_CUDA_ROWS_TEXT_H
#define FLIN_CUDA_ROWS_TEXT_H

#include "rows_emit.h"

typedef struct Text {
    Ctx *c;
    Buf *b;
    const Rows *p;
    const RowsCall *call;
    const Graph *g;
    RowsShape shape;
    const char *index[NAXES];           /* where an entry is looked at */
    const char *entry;                  /* of a lane's */
    bool packed;                        /* sequences have ends; else one is a
                                           batch entry */
    bool leaves;                        /* blocks for what is left of each */
    bool back;                          /* the loop goes from late tokens to
                                           early ones */
    uint8_t *computed;                  /* declared already: of what no token
                                           changes */
    const uint8_t *live;                /* of the loop */
    int ahead;                          /* tokens that are read before their
                                           iteration */
    bool all;                           /* these are all of a piece */
    int near;                           /* an argument whose rows lie in the
                                           block's memory, too; -1: none */
} Text;

#define PUT(t, ...) buf_printf((t)->b, __VA_ARGS__)

/* ---- values, and where tensors have them (rows_text.c) ---- */

bool text_has_lanes(const Text *t, Ref r);
/* Axes that are unrolled. */
AxisSet text_registers(const Text *t, Ref r);
/* Numbers that a lane has of it. */
int64_t text_live(const Text *t, Ref r);
/* The place of its entry, where the axes are at t->index. */
char *text_place(const Text *t, Ref r);
/* Where entry `at` of the row is on the axis. */
char *text_along(const Text *t, int ax, const char *at);
/* A loop over n of an index. */
void text_open_one(const Text *t, const char *index, int n);
/* Loops over axes; of rows, over the entries of a lane. */
void text_open(const Text *t, Ref r, AxisSet s);
void text_close(const Text *t, AxisSet s);

/* Moves a row of the argument, or what stands for it in registers: `act` is
 * load or store, `where` where the row begins, `left` how many there are. */
typedef struct Moving {
    const char *act, *where, *left, *name;
    int arg;
    const View *v;
    const uint8_t *order;
    int rank;
    Ref r;                              /* of its axes */
} Moving;

/* Each of a lane's entries has all numbers of the one axis that is unrolled
 * behind it, and all of these lie next to each other in pieces of 16 bytes: how
 * many; else 0. */
int text_block(const Text *t, const View *v, const uint8_t *order, int rank,
               Ref r);
const char *text_type(DType d);
/* "BF16, 4, true"; "a.arg[0].p, place, step, left" */
char *text_kind(const Text *t, const Moving *m);
char *text_places(const Text *t, const Moving *m);
/* Is no lane's entry beyond the row's end? */
bool text_exact(const Text *t);
/* Of a lane's entries that are the row's, or of the one number; of a row that
 * is on, "left". */
const char *text_entries(const Text *t, Ref r);
char *text_left(const Text *t, Ref r, const char *on);
/* Where the token's row of an argument begins. */
char *text_token(const Text *t, int arg, const char *token);

/* ---- the body (rows_emit.c) ---- */

/* A node's numbers; its entry; its declaration; zeros. */
char *text_node(const Text *t, Ref r);
char *text_operand(const Text *t, Ref r);
void text_declare(const Text *t, Ref r);
void text_clear(const Text *t, const char *name, Ref r);
void text_move(const Text *t, const Moving *m);
/* What a state of the graph is in the loop, where it is carried. */
char *text_carried(const Text *t, int j);
/* Where a state of the sequence `s` begins. */
char *text_state(const Text *t, int arg);
/* Marks what r needs. */
void text_mark(const Graph *g, uint8_t *live, Ref r);
/* The live nodes: those that no token changes, or the others. */
void text_nodes(Text *t, const uint8_t *live, bool timed, const char *on);
/* y, where the row is `on`. */
void text_result(const Text *t, const char *on);
/* Gradients: before the loop; in it, where `own`, `live` and on_0 say which
 * token counts. Sums of what no token changes: before, and behind the loop. */
void text_pending(const Text *t);
void text_gradients(Text *t);
void text_sums(Text *t, bool begin);
/* Of a kernel's text, whose body goes to `body`; all of it, the includes of
 * `header` before it. */
Text text_begin(Ctx *c, Buf *body, const Rows *p, const RowsCall *call);
char *text_end(const Text *t, const char *header);

/* In the first kernel of rows whose states are carried: the product of what the
 * block reads; back, in the last one: x's gradient (rows_product.c). */
void product_emit(const Text *t, bool serial, bool back);
/* The weight is asked for, which the latter reads. */
void product_begin_back(const Text *t);

/* ---- iterations of the loop over tokens (rows_ahead.c) ---- */

/* In the loop, where the row of the token in sequence begins: a number of its
 * own, which goes on with the token. rotation_begin: before the loop, at the
 * token. */
char *rotation_place(const Text *t, int arg);
void rotation_begin(const Text *t, int arg, const char *token);
void turn_next(const Text *t, int arg);

/* How many tokens are read ahead of their iteration. */
void ahead_find(Text *t);
/* Before the loop, whose first token is `begin`: what its first iteration moves
 * on to. Then, the loop at token t, that. */
void ahead_begin(const Text *t);
/* The same of input i alone, or of all but that one. */
void ahead_begin_of(const Text *t, int i, bool others);
void ahead_move(const Text *t);
/* Input i, or (nin) the result's gradient, `depth` tokens before, as numbers;
 * where it is not `on`, zeros. What lies in no batch entry has been read as
 * zeros. */
void ahead_take(const Text *t, int i, int depth, const char *name, Ref r,
                const char *on);

#endif
