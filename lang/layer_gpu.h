/* layer_gpu.h -- a layer's call on the device. */
#ifndef FLIN_LAYER_GPU_H
#define FLIN_LAYER_GPU_H

#include "layer_run.h"

enum { ROOM_ALIGN = 256 };

/* Whatever the memory that a call takes depends on, and its kernels. */
uint64_t layer_call_hash(const Lay *k);

/* Runs f(k), all of it queued on the call's stream, in the call's workspace
 * or the stream's. What it takes is found by a first run that computes nothing
 * (k->dry: by this alone). */
void gpu_layer(Lay *k, void (*f)(Lay *k));

/* A value's place in that memory (layer_arena.c), and its end. */
void *arena_room(Lay *k, int64_t bytes, bool keep);
void arena_drop(Lay *k, void *at);

/* Programs over rows that do not wait for one another run side by side, as one
 * kernel (layer_beside.c): each is held until something else is queued, and so
 * is the memory that is dropped meanwhile. held_call: where the next one's call
 * is to be. run_held: before all else that is queued, and at the end. */
struct RowsCall *held_call(Lay *k);
void hold_rows(Lay *k, const LayerPart *part, struct Rows *p,
               const struct RowsCall *call);
void run_held(Lay *k);
/* Is it kept from being dropped now? */
bool hold_place(Lay *k, void *at);

/* What it takes; bytes of the workspace. */
LayerRoom gpu_layer_room(Lay *k, void (*f)(Lay *k));
int64_t gpu_layer_bytes(Lay *k, void (*f)(Lay *k));

/* Wishes for the kernels beside those of plans that it takes (build_wish). */
void gpu_layer_wish(Lay *k, void (*f)(Lay *k));

/* The same, counted anew. */
LayerRoom gpu_layer_count(Lay *k, void (*f)(Lay *k));

/* A graph's copy with the sizes of a call, to which tensors may be added. */
Graph *copy_sized(Ctx *c, const Graph *step, const int32_t *size);
/* The call on copies of the host's tensors; d: backward, or NULL. */
void gpu_stage(Ctx *c, Variant *v, const Args *a, const Bound *b,
               const Adjoint *d);

/* f(k) where it runs: host tensors go to a GPU that is named, and results
 * back. */
void layer_there(Lay *k, void (*f)(Lay *k));

/* Queues the ends of blocks of `width` tokens of the call's sequences, which
 * the device alone knows: N + T / width + 1 of them, in the call's room `to`.
 * Some blocks are empty. */
void gpu_block_ends(Lay *k, void *to, int64_t width);

void gpu_layer_release(Variant *v, LayerProgram *p);

#endif
