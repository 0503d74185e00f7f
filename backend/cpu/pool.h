/* pool.h -- threads that wait for work. */
#ifndef FLIN_CPU_POOL_H
#define FLIN_CPU_POOL_H

#include "../../compiler/base.h"

typedef struct Pool Pool;

/* NULL when memory is out. No thread is started yet. Counted, by any thread
 * but its own; the last to release it ends its threads. */
Pool *pool_new(const Memory *mem);
Pool *pool_retain(Pool *p);
void pool_release(Pool *p);             /* NULL is allowed */

/* Calls f(ud, 0) here and f(ud, 1 .. n - 1) on other threads, and returns
 * when all have ended. Fewer calls are made if threads are not to be had, or
 * while another thread runs this pool: f must share its work out itself. */
void pool_run(Pool *p, int n, void (*f)(void *ud, int worker), void *ud);

/* The same, by the host's threads where it lends them. */
void pool_share(Ctx *c, Pool *p, int n, void (*f)(void *ud, int worker),
                void *ud);

/* How many processors there are. */
int pool_processors(void);

#endif
