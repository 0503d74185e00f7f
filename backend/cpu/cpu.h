/* cpu.h -- runs plans on this machine: the tile machine.
 *
 * A kernel of a plan becomes a **tile program**: a list of instructions over
 * tiles of float32 that lie in a worker's arena. Workers take (sequence,
 * head) pairs, or chunks of them for a TOKEN kernel, and walk the chunks. The
 * bits do not depend on how many threads there are.
 */
#ifndef FLIN_CPU_H
#define FLIN_CPU_H

#include "../../compiler/plan.h"
#include "pool.h"

typedef struct CpuProgram CpuProgram;

/* What a run moved between memory and tiles, in bytes: one entry a kernel of
 * the plan, the caller's arrays (either may be NULL). `once` is what moves
 * once a sequence and head: states and values without a token; `chunks` all
 * else. */
typedef struct CpuStats { int64_t *chunks, *once; } CpuStats;

/* Compiles a plan whose axes have sizes. The program lives as long as c and
 * refers to p. isa: "avx512", "avx2", "plain", or NULL for the best. pool:
 * whose threads run it; NULL: its own. */
CpuProgram *cpu_compile(Ctx *c, const Plan *p, const char *isa, Pool *pool);

/* Gives back its share of the pool. */
void cpu_free(CpuProgram *p);

/* Runs it. Fails when the call lacks an argument, on an interrupt and when
 * memory is out. Several threads may run one program at a time. */
void cpu_execute(Ctx *c, CpuProgram *p, const Call *call, CpuStats *stats);

/* Bytes of Call.workspace that it takes. */
int64_t cpu_workspace(const CpuProgram *p, const Call *call);

/* Bytes of Call.kept: of all that kernels store for one another. */
int64_t cpu_kept(const CpuProgram *p, const Call *call);

/* Both, for a single run. */
void cpu_run(Ctx *c, const Plan *p, const Call *call, CpuStats *stats);

/* The name of the vector routines that this machine uses. */
const char *cpu_isa(void);

#endif
