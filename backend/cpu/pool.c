/* pool.c -- threads that wait for work. A forked child finds its parent's
 * threads gone, and starts its own. */
#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

enum { MAX_THREADS = 256 };

typedef struct Start { Pool *p; int worker; unsigned turn; } Start;

struct Pool {
    Memory mem;
    atomic_int refs;
    pthread_mutex_t busy;               /* held by the one who runs it */
    pthread_mutex_t lock;
    pthread_cond_t start, end;
    pthread_t thread[MAX_THREADS];
    Start at[MAX_THREADS];              /* what each is started with */
    int nthreads;
    pid_t pid;
    unsigned turn;                      /* counts the jobs */
    int wanted, running;
    bool quit;
    void (*f)(void *ud, int worker);
    void *ud;
};

static void *thread_main(void *arg)
{
    Start s = *(Start *)arg;
    Pool *p = s.p;
    sigset_t all;

    sigfillset(&all);                   /* signals are for the host's threads */
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->quit && p->turn == s.turn)
            pthread_cond_wait(&p->start, &p->lock);
        if (p->quit)
            break;
        s.turn = p->turn;
        if (s.worker >= p->wanted)
            continue;
        pthread_mutex_unlock(&p->lock);
        p->f(p->ud, s.worker);
        pthread_mutex_lock(&p->lock);
        if (--p->running == 0)
            pthread_cond_signal(&p->end);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

Pool *pool_new(const Memory *mem)
{
    Pool *p = mem_new(mem, sizeof *p);

    if (!p)
        return NULL;
    p->mem = *mem;
    atomic_init(&p->refs, 1);
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->end, NULL);
    p->pid = getpid();
    return p;
}

Pool *pool_retain(Pool *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

/* Threads 1 .. n - 1, as far as they can be had. */
static void start_threads(Pool *p, int n)
{
    if (p->pid != getpid()) {
        p->pid = getpid();
        p->nthreads = 0;
        pthread_mutex_init(&p->lock, NULL);
        pthread_cond_init(&p->start, NULL);
        pthread_cond_init(&p->end, NULL);
    }
    while (p->nthreads + 1 < n && p->nthreads < MAX_THREADS) {
        Start *s = &p->at[p->nthreads];
        *s = (Start){ p, p->nthreads + 1, p->turn };
        if (pthread_create(&p->thread[p->nthreads], NULL, thread_main, s))
            return;
        p->nthreads++;
    }
}

void pool_run(Pool *p, int n, void (*f)(void *ud, int worker), void *ud)
{
    if (n <= 1 || pthread_mutex_trylock(&p->busy)) {
        f(ud, 0);
        return;
    }
    start_threads(p, n);
    if (n > p->nthreads + 1)
        n = p->nthreads + 1;
    pthread_mutex_lock(&p->lock);
    p->f = f;
    p->ud = ud;
    p->wanted = n;
    p->running = n - 1;
    p->turn++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
    f(ud, 0);
    pthread_mutex_lock(&p->lock);
    while (p->running)
        pthread_cond_wait(&p->end, &p->lock);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->busy);
}

void pool_release(Pool *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    if (p->pid == getpid()) {
        pthread_mutex_lock(&p->lock);
        p->quit = true;
        pthread_cond_broadcast(&p->start);
        pthread_mutex_unlock(&p->lock);
        for (int i = 0; i < p->nthreads; i++)
            pthread_join(p->thread[i], NULL);
    }
    Memory mem = p->mem;
    mem_free(&mem, p, sizeof *p);
}

void pool_share(Ctx *c, Pool *p, int n, void (*f)(void *ud, int worker),
                void *ud)
{
    if (c->parallel && n > 1)
        c->parallel(c->parallel_ud, n, f, ud);
    else if (p)
        pool_run(p, n, f, ud);
    else
        f(ud, 0);
}

int pool_processors(void)
{
    int n = cores();

    return n > MAX_THREADS ? MAX_THREADS : n;
}
