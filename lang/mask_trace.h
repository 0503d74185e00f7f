/* mask_trace.h -- what mask.c and mask_args.c share. */
#ifndef FLIN_MASK_TRACE_H
#define FLIN_MASK_TRACE_H

#include "../compiler/mask.h"
#include "lang.h"

enum { MAX_CHOICES = 64 };

/* What a mask without an `input` table has been seen to read. */
typedef struct MaskRead { char name[48]; bool token; } MaskRead;

/* A mask's function under way; lives in the trace's context. */
typedef struct MaskTrace {
    Tracer tracer;                      /* of the mask's own graph */
    Mask *mask;
    Graph *args;                        /* its inputs: the step, if any */
    int owner;                          /* on the stack: whose memory this is */
    int own;                            /* of args: how many are the mask's, or
                                           q, k and v; a transition's are behind
                                           these */
    bool open;                          /* there is no `input` table */
    bool quadratic;                     /* it need not factor */
    int64_t tokens;                     /* that v:step keeps, where all pairs
                                           are taken; 0: as the mask says */
    Mask *above;                        /* the diagonal (mask_above) */
    int score;                          /* on the stack: what is made of a
                                           pair's score; or 0 */
    MaskRead read[MAX_INPUTS];
    int nreads;
    Region at;                          /* of the path so far */
    bool choice[MAX_CHOICES];
    int nchoices, at_choice;
    Gates gates;                        /* of this path, too */
    int first_line, last_line;          /* of the function */
} MaskTrace;

/* Declares q, k, v and the `input` table of the definition at `def` (0: none)
 * in t->args. */
void mask_declare(lua_State *L, MaskTrace *t, int def);
/* Writes the step of a mask with the definition's transition at `piece`. */
void mask_transition(lua_State *L, MaskTrace *t, int piece, int owner,
                     Tracer *step);
/* Tells the mask what domains say of the sums that were read. */
void mask_declare_signs(MaskTrace *t);
/* Declares what was read, where there was no such table. */
void mask_declare_read(lua_State *L, MaskTrace *t);

/* Lua error where nothing depends on an input. */
void mask_check_read(lua_State *L, MaskTrace *t);

/* Each pushes a table p: of symbols; of made-up numbers (mask_draw); of the
 * numbers in the table at index `given`, whose largest cumulative sum, of those
 * that have been read, the result holds as long as p lives. */
void mask_push_symbols(lua_State *L, MaskTrace *t, int owner);
void mask_push_numbers(lua_State *L, MaskTrace *t, unsigned draw);
const double *mask_push_given(lua_State *L, int given, int n);

/* The number of the function at fn, for i, j and the table on top. */
double mask_plain(lua_State *L, int fn, int64_t i, int64_t j);
/* Lua error where the function at fn, run on numbers, is not its trace;
 * `score`: it is that of scores. */
void mask_compare(lua_State *L, MaskTrace *t, int fn, bool score);

#endif
