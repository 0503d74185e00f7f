/* partition.h -- a graph cut into kernels, moving the fewest bytes in the
 * least time. */
#ifndef FLIN_PARTITION_H
#define FLIN_PARTITION_H

#include "choose.h"
#include "machine.h"
#include "plan.h"

typedef struct PartitionInfo {
    Answer answer;
    int ncolumns;
    double bytes, unfused_bytes;        /* per chunk and head */
    double held;                        /* on chip, by the larger pass as one
                                           kernel that recomputes nothing */
    double seconds;                     /* predicted, per chunk and head */
} PartitionInfo;

/* A chunk size that was weighed. */
typedef struct Weighed {
    int chunk, kernels;
    double seconds;                     /* a token and head; INFINITY: none */
    double held;                        /* bytes on chip of the largest pass,
                                           were it one kernel; 0: unknown */
} Weighed;
enum { CHUNKS_WEIGHED = 4 };

/* chunk.c: the chunk size that is predicted to be fastest for a step's chunk
 * form, with its gradient if joint; 64 where there is no chunk form. Takes
 * some milliseconds. */
int best_chunk(Ctx *c, const Graph *step, const int32_t size[NAXES],
               bool joint, const Machine *m, Weighed weighed[CHUNKS_WEIGHED]);

/* QUICK: good enough to compare with; FULL: proved best where that pays. */
typedef enum Effort { QUICK, FULL } Effort;

/* The plan of a graph (a joint one, or a forward one alone) for a machine;
 * NULL where no kernels of it can hold the parts: *why says which. The second
 * fails then; its info may be NULL. Deterministic. */
Plan *partition_if(Graph *g, const Machine *m, Effort e, PartitionInfo *info,
                   Error *why);
Plan *partition(Graph *g, const Machine *m, Effort e, PartitionInfo *info);

#endif
