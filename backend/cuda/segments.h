/* segments.h -- few long sequences, cut in segments that run side by side.
 *
 * Where the plan has a transition (compiler/transition.h) and the price says
 * so, a call becomes: what each segment leaves of a state that begins as zero,
 * and its transition; each segment's start from these; then the plan's own
 * walk, to which segments are sequences. Back: the walk of the adjoint from
 * zero, each segment's start by the transposed transitions, the walk again.
 * Segments are whole chunks.
 *
 * What segments leave by themselves is made by walks that do no more, and find
 * what the plan's kernels before them have kept for the walk (build_ends);
 * where there are none from schedules, by a plan of the states alone
 * (plan_ends), and the adjoint's by its walk as it is.
 */
#ifndef FLIN_CUDA_SEGMENTS_H
#define FLIN_CUDA_SEGMENTS_H

#include "../../compiler/transition.h"
#include "build.h"

/* Of a program: how its calls may be cut. One thread at a time. */
typedef struct Cutting {
    const char *why;                    /* they may not; else NULL */
    Transition t;
    int adjoint;                        /* the state's; -1: the plan is not
                                           joint */
    int moved;                          /* the state that shows the transition
                                           (plan_ends); -1: none does */
    const Plan *walked;                 /* plan_moved, of walks for ends */
    Builds ends;                        /* of plan_ends */
    uint64_t counted;                   /* the call that was counted last, */
    int count;                          /* and its segments */
    Module *module;                     /* carry.cuh's; NULL: not yet there */
    Function *begin, *end, *unit, *carry, *moves;
    CudaKernel carrying;
} Cutting;

void cutting_find(Ctx *c, const Plan *p, Cutting *to);
void cutting_free(Gpu *g, Cutting *cut);

/* A call as it is cut. */
typedef struct Segments {
    Cutting *cut;
    const Plan *p;
    const Call *whole;                  /* as it came */
    int n;                              /* of a sequence; 1: it is not cut */
    Call call;                          /* of segments; addresses of states
                                           are none yet, but not NULL where
                                           there are to be some */
    const Build *walks;                 /* for ends alone; NULL: none */
    const Build *ends;                  /* of the way forward, by plan_ends;
                                           NULL: the call has none, or `walks`
                                           has */
} Segments;

/* Says how many segments each sequence is cut in. */
#define SEGMENTS_VARIABLE "FLIN_SEGMENTS"
/* Of vectors so many segments' numbers are under way at a time, where they are
 * carried on. */
enum { CARRIED_AT_ONCE = 16 };

/* What is cut: states of so many rows, by a plan that goes both ways or not.
 * lean: there are walks for ends alone. diagonal: none is for transitions. */
typedef struct Cuts { int rows; bool joint, lean, diagonal; } Cuts;

/* How many segments each of the call's sequences is best cut in: 1 where that
 * costs more than it saves; or what FLIN_SEGMENTS says. */
int segments_count(const Call *call, int chunk, const Cuts *k,
                   int processors);

/* The share of their time that walks of vectors take, of so many heads and
 * chunks each, where they are cut as is best: 1 where they are not. It is not
 * told of matrices, whose prices were measured of calls that are cut. */
double segments_gain(Ctx *c, const Graph *g, int64_t heads, int64_t chunks,
                     bool joint, int processors);

/* Seconds that the call is predicted to take, in as many segments as pay by
 * their prices; of one in parts (Call.in_parts) all of these. 0: that is not
 * known. */
double segments_seconds(Ctx *c, Builds *all, Cutting *cut, const Call *call);
/* Cuts the call, or says that it is as it was (n == 1, call the same). Compiles
 * what cutting takes. */
Segments segments_of(Ctx *c, Builds *all, Cutting *cut, const Call *call);

/* Whether the call, which these kernels keep for, may run in two parts
 * (Call.part): it is not cut, and there are walks for ends alone, which are
 * compiled. */
bool segments_may_begin(Ctx *c, Builds *all, Segments *s, const Build *b);
/* Whether the call's part has the kernel. */
bool segments_have(const Segments *s, const Build *b, int kernel);
/* Of a call in segments there are several tables of sequences: all of them, and
 * those of which it is asked what they leave by themselves, forward and back,
 * and their transitions. Others have no tokens there: nobody follows the last,
 * and the first follows nobody. */
typedef enum SegmentTable { OF_ALL, OF_OWN, OF_TRANSITIONS, OF_BACK,
                            SEGMENT_TABLES } SegmentTable;
/* Tokens of the call's sequence i. */
int64_t segments_length(const Segments *s, SegmentTable t, int64_t i);

/* Bytes that the way forward leaves for the way back, behind the kernels' own
 * (`stored`); bytes of workspace. */
int64_t segments_kept(const Segments *s);
int64_t segments_bytes(const Segments *s);
/* Launches beside so many kernels' own, at most. */
int segments_launches(const Segments *s, int kernels);

/* What a run of a cut call does, in order. */
typedef struct Steps {
    Ctx *ctx;                           /* launches live there */
    const Driver *d;
    DevicePtr seq, workspace, at;       /* of tables of sequences; of kernels;
                                           of what segments take */
    int64_t stored;                     /* bytes of Call.kept before theirs */
    Launch **launch;
    int n;
    bool begun;                         /* the way forward */
    DeviceRows zeros;                   /* `to` and `width`, to be filled before
                                           each run; width 0: none */
} Steps;
/* Gives the call's states their places. */
void segments_place(Segments *s, Steps *to);
/* What goes before this kernel, and behind all of them. */
void segments_before(Ctx *c, const Segments *s, Steps *to, const Build *b,
                     int kernel);
void segments_after(const Segments *s, Steps *to);
/* What goes behind the kernels of a call that is begun. */
void segments_begin(Ctx *c, const Segments *s, Steps *to);

#endif
