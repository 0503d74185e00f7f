/* parts_call.h -- calls of a variant that is run as several others, one after
 * another: masks of both directions (ways.c), sums over pairs of tokens
 * (scores_call.c). What a layer's call has (layer_run.h) is theirs, too.
 */
#ifndef FLIN_PARTS_CALL_H
#define FLIN_PARTS_CALL_H

#include "layer_gpu.h"

/* The program of a variant, of so many parts, one for all sizes; and a call,
 * forward or backward (k->d). */
typedef struct PartsCall {
    LayerProgram *(*program)(Ctx *c, Variant *v);
    void (*run)(Lay *k);
} PartsCall;

/* Makes v's program, of the steps' variants (NULL: there is no such part),
 * unless it has one. */
LayerProgram *parts_program(Ctx *c, Variant *v, Graph *const *step, int n);

/* As LayerRuns has them. */
void parts_prepare(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                   const Bound *b);
void parts_release(Variant *v);
int64_t parts_workspace(Ctx *c, const PartsCall *how, Variant *v,
                        const Args *a, const Bound *b, const Adjoint *d);
void parts_forward(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                   const Bound *b);
void parts_backward(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                    const Bound *b, const Adjoint *d);
int64_t parts_saved(Ctx *c, const PartsCall *how, Variant *v, const Args *a,
                    const Bound *b);
int64_t parts_run_saved(Ctx *c, const PartsCall *how, Variant *v,
                        const Args *a, const Bound *b, Stored room);
uint64_t parts_mark(const Variant *v, const Args *a, const Bound *b);
const PlanEntry *parts_plan(Ctx *c, Variant *v, const Args *a, const Bound *b);

/* The call of part `at`, without its arguments yet: s->args.in, s->d. */
Sub *parts_begin(Lay *k, int at, Mode mode);
/* Binds these. */
void parts_bind(Lay *k, Sub *s);

/* ---- tensors ---- */

Array array_of(const Given *g);
void place_given(Given *g, const Array *v);
/* Room for the same in one piece. */
Array room_like(Lay *k, const Array *v, DType d);
/* An argument, y, as the call has them now. */
Given given_input(const Lay *k, int i);
Given given_y(const Lay *k);
/* Of a tensor with tokens and heads, which heads of the call may share: room
 * for the same with all heads; it itself, or a copy with all of them; and from
 * there to where heads share one, summed over these. add: to what it holds. */
Given all_heads(Lay *k, const Given *g, DType d, Array *own);
Given spread_heads(Lay *k, const Given *g, Array *own);
void gather_heads(Lay *k, const Given *to, const Array *own, bool add);

#endif
