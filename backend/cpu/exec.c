/* exec.c -- runs a compiled plan: kernel after kernel, each shared out among
 * the workers.
 */
#include "tile.h"

#include <stdatomic.h>
#include <string.h>

enum {
    GROUP = 8,                          /* chunks a TOKEN item takes */
    TEAM = 8,                           /* heads an item takes, at most */
    TEAM_BYTES = 1 << 19                /* of the tiles they keep */
};

/* A run. An item is some heads of a sequence; of a TOKEN kernel, some chunks
 * of those. The heads go through the chunks together, since a token's heads
 * lie side by side in memory. */
typedef struct Run {
    const CpuProgram *p;
    const Call *call;
    Ctx *c;
    int64_t *first_chunk;               /* nseq + 1: chunks before */
    int64_t *first_item;                /* the same, of items a head */
    float *stored;
    char *memory;                       /* the workers' */
    size_t each;                        /* bytes of one */
    int kernel, threads, team;          /* team: heads an item */
    _Atomic int64_t next;
    _Atomic int64_t chunk_bytes, once_bytes;
    atomic_bool stop;
} Run;

/* ---- the mode of the processor ---- */

/* Results too small to be normal become zero. Returns the mode before. */
static unsigned flush_on(void)
{
#ifdef __x86_64__
    unsigned mode = __builtin_ia32_stmxcsr();

    __builtin_ia32_ldmxcsr(mode | 0x8040);
    return mode;
#else
    return 0;
#endif
}

static void flush_restore(unsigned mode)
{
#ifdef __x86_64__
    __builtin_ia32_ldmxcsr(mode);
#else
    (void)mode;
#endif
}

/* ---- a chunk, an item ---- */

static void end_chunk(Work *w)
{
    const TileKernel *k = w->k;

    for (int i = 0; i < k->ncarry; i++)
        if (k->carry[i].copied)
            run_list(w, &k->carry[i].copy, 1);
    for (int i = 0; i < k->ncarry; i++) {
        const Carry *c = &k->carry[i];
        float *t = w->tile[c->slot];
        if (c->wide >= 0) {
            narrow_state(w, c, t);
            continue;
        }
        w->tile[c->slot] = w->tile[c->next];
        w->tile[c->next] = t;
    }
}

static void run_chunk(Run *r, Work *w, int64_t m)
{
    int64_t left = w->seq->len - m * w->p->chunk;
    int64_t at = r->first_chunk[w->iseq] * r->call->heads
               + w->head * (r->first_chunk[w->iseq + 1]
                            - r->first_chunk[w->iseq]) + m;

    w->n = left < w->p->chunk ? (int)left : w->p->chunk;
    w->token = w->seq->start + m * w->p->chunk;
    w->stored = r->stored + at * w->p->stored_floats;
    run_list(w, w->k->body.in, w->k->body.n);
    end_chunk(w);
}

static int teams(const Run *r)
{
    return (r->call->heads + r->team - 1) / r->team;
}

/* Items before a sequence's. */
static int64_t items_before(const Run *r, int64_t seq)
{
    return (r->p->kernel[r->kernel].kind == K_TOKEN ? r->first_item[seq]
                                                    : seq) * teams(r);
}

/* Of all kernels and items: what has been taken, and `part` of an item. */
static double done(const Run *r, int64_t taken, double part)
{
    int64_t items = items_before(r, r->call->nseq);
    double here = ((double)(taken < items ? taken : items) - 1 + part)
        / (double)items;

    return (r->kernel + (here < 0 ? 0 : here)) / r->p->plan->nkernels;
}

/* The host's wish is asked for by the thread that called. */
static bool stopped(Run *r, int worker, int64_t m, double part)
{
    const Call *call = r->call;

    if (worker == 0 && (r->p->chunk > 1 || m % 64 == 0)) {
        r->c->done = done(r, atomic_load(&r->next), part);
        ctx_progress(r->c);
        if ((r->c->interrupted && r->c->interrupted(r->c->interrupt_ud))
            || (call->interrupted && call->interrupted(call->interrupt_ud)))
            atomic_store(&r->stop, true);
    }
    return atomic_load_explicit(&r->stop, memory_order_relaxed);
}

/* What each head of an item keeps to itself. */
typedef struct Team {
    int first, n;
    float **tile[TEAM];
    double *wide[TEAM];
} Team;

static void take_head(Work *w, const Team *t, int i)
{
    w->head = t->first + i;
    w->tile = t->tile[i];
    w->wide = t->wide[i];
}

static void start_head(Work *w)
{
    const TileKernel *k = w->k;

    w->n = w->p->chunk;
    run_list(w, k->pre.in, k->pre.n);
    for (int i = 0; i < k->ncarry; i++)
        load_state(w, &k->carry[i], w->tile[k->carry[i].slot]);
}

/* token: that leaves them, where each one's are kept; else -1. */
static void store_states(Work *w, int64_t token)
{
    const TileKernel *k = w->k;

    for (int i = 0; i < k->ncarry; i++)
        store_state(w, &k->carry[i], w->tile[k->carry[i].slot], token);
}

static int64_t take_bytes(Work *w)
{
    int64_t bytes = w->bytes;

    w->bytes = 0;
    return bytes;
}

/* Chunks [from, to), backwards for a REVERSE kernel. */
static void run_item(Run *r, Work *w, const Team *t, int worker, int64_t from,
                     int64_t to)
{
    bool back = w->k->kind == K_REVERSE;

    for (int h = 0; h < t->n; h++) {
        take_head(w, t, h);
        start_head(w);
    }
    atomic_fetch_add(&r->once_bytes, take_bytes(w));
    for (int64_t m = from; m < to && !stopped(r, worker, m, (double)(m - from)
                                              / (double)(to - from)); m++)
        for (int h = 0; h < t->n; h++) {
            take_head(w, t, h);
            run_chunk(r, w, back ? to - 1 - m + from : m);
            if (r->call->each)
                store_states(w, m);
        }
    atomic_fetch_add(&r->chunk_bytes, take_bytes(w));
    for (int h = 0; h < t->n && !r->call->each; h++) {
        take_head(w, t, h);
        store_states(w, -1);
    }
    atomic_fetch_add(&r->once_bytes, take_bytes(w));
}

static int64_t find_seq(const Run *r, int64_t item)
{
    int64_t lo = 0, hi = r->call->nseq;

    while (hi - lo > 1) {
        int64_t mid = lo + (hi - lo) / 2;
        if (items_before(r, mid) <= item)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

static void start_item(Run *r, Work *w, Team *t, int worker, int64_t item)
{
    const TileKernel *k = w->k;
    int64_t chunks, per_team, part;
    int left;

    w->iseq = find_seq(r, item);
    w->seq = &r->call->seq[w->iseq];
    chunks = r->first_chunk[w->iseq + 1] - r->first_chunk[w->iseq];
    item -= items_before(r, w->iseq);
    per_team = k->kind == K_TOKEN ? (chunks + GROUP - 1) / GROUP : 1;
    t->first = (int)(item / per_team) * r->team;
    left = r->call->heads - t->first;
    t->n = left < r->team ? left : r->team;
    part = item % per_team;
    if (k->kind != K_TOKEN)
        run_item(r, w, t, worker, 0, chunks);
    else
        run_item(r, w, t, worker, part * GROUP,
                 (part + 1) * GROUP < chunks ? (part + 1) * GROUP : chunks);
}

/* ---- workers ---- */

static size_t round64(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t kept_bytes(const TileKernel *k)
{
    return round64((size_t)k->kept * sizeof(float));
}

static size_t tiles_bytes(const TileKernel *k)
{
    return round64((size_t)(k->floats - k->kept + TILE_SLACK)
                   * sizeof(float));
}

static size_t scratch_bytes(const TileKernel *k)
{
    return round64((size_t)(k->scratch + TILE_SLACK) * sizeof(float));
}

static size_t wide_bytes(const TileKernel *k)
{
    return round64((size_t)k->nwide * sizeof(double));
}

static size_t slot_bytes(const TileKernel *k)
{
    return round64((size_t)k->nslots * sizeof(float *));
}

/* What each head of an item takes. */
static size_t head_bytes(const TileKernel *k)
{
    return kept_bytes(k) + wide_bytes(k) + slot_bytes(k);
}

static size_t worker_bytes(const CpuProgram *p, int team)
{
    size_t most = 0;

    for (int i = 0; i < p->plan->nkernels; i++) {
        const TileKernel *k = &p->kernel[i];
        size_t n = tiles_bytes(k) + scratch_bytes(k)
                 + (size_t)team * head_bytes(k);
        most = n > most ? n : most;
    }
    return most;
}

/* The heads' tiles: their own for what is kept, the rest in turn. */
static void lay_out(const Run *r, Work *w, Team *t, char *at)
{
    const TileKernel *k = w->k;
    float *tiles = (float *)at - k->kept;

    w->tiles = tiles;
    w->scratch = (float *)(at += tiles_bytes(k));
    at += scratch_bytes(k);
    for (int h = 0; h < r->team; h++) {
        float *kept = (float *)at;
        t->wide[h] = (double *)(at += kept_bytes(k));
        t->tile[h] = (float **)(at += wide_bytes(k));
        at += slot_bytes(k);
        for (int s = 0; s < k->nslots; s++)
            t->tile[h][s] = (k->slot[s].pinned ? kept : tiles)
                          + k->slot[s].at;
    }
}

static void work(void *ud, int worker)
{
    Run *r = ud;
    int64_t items = items_before(r, r->call->nseq), item;
    Work w = { .p = r->p, .k = &r->p->kernel[r->kernel], .call = r->call };
    Team team = { .n = 0 };
    unsigned mode = flush_on();

    lay_out(r, &w, &team, r->memory + (size_t)worker * r->each);
    while ((item = atomic_fetch_add(&r->next, 1)) < items
           && !atomic_load(&r->stop))
        start_item(r, &w, &team, worker, item);
    flush_restore(mode);
}

/* Few tokens are done before another thread has woken up. */
static int choose_threads(const Run *r, int64_t chunks)
{
    double flops = 0;
    int n = r->call->threads > 0 ? r->call->threads : pool_processors();

    for (int i = 0; i < r->p->plan->nkernels; i++)
        flops += r->p->plan->kernel[i].flops;
    flops *= (double)chunks * r->call->heads;
    return flops < 4e5 ? 1 : n < 256 ? n : 256;
}

static int64_t rounds(int64_t items, int threads)
{
    return (items + threads - 1) / threads;
}

/* As many heads together as keep all threads as busy as single ones would. */
static int choose_team(const Run *r, int threads)
{
    int64_t heads = r->call->heads, nseq = r->call->nseq;
    size_t most = 1;
    int n = heads < TEAM ? (int)heads : TEAM;

    for (int i = 0; i < r->p->plan->nkernels; i++)
        if (head_bytes(&r->p->kernel[i]) > most)
            most = head_bytes(&r->p->kernel[i]);
    if (r->p->chunk == 1)
        return 1;
    while (n > 1 && ((size_t)n * most > TEAM_BYTES
                     || rounds(nseq * rounds(heads, n), threads) * n
                        > rounds(nseq * heads, threads)))
        n--;
    return n < 1 ? 1 : n;
}

static void count_chunks(Run *r)
{
    int64_t n = r->call->nseq, chunk = r->p->chunk;

    r->first_chunk[0] = r->first_item[0] = 0;
    for (int64_t s = 0; s < n; s++) {
        int64_t chunks = (r->call->seq[s].len + chunk - 1) / chunk;
        r->first_chunk[s + 1] = r->first_chunk[s] + chunks;
        r->first_item[s + 1] = r->first_item[s] + (chunks + GROUP - 1) / GROUP;
    }
}

/* Where the parts of a run lie in its one block of memory. */
typedef struct Room { size_t first_item, workers, stored, all; } Room;

static int64_t all_chunks(const CpuProgram *p, const Call *call)
{
    int64_t chunks = 0;

    for (int64_t s = 0; s < call->nseq; s++)
        chunks += (call->seq[s].len + p->chunk - 1) / p->chunk;
    return chunks;
}

int64_t cpu_kept(const CpuProgram *p, const Call *call)
{
    int64_t most = INT64_MAX / 4, bytes;    /* more than there can be */

    if (__builtin_mul_overflow(all_chunks(p, call) * call->heads,
                               p->stored_floats * (int64_t)sizeof(float),
                               &bytes) || bytes > most)
        return most;
    return bytes;
}

static Room find_room(Run *r)
{
    int64_t chunks = all_chunks(r->p, r->call);
    size_t table = round64((size_t)(r->call->nseq + 1) * sizeof(int64_t));
    Room room = { .first_item = table, .workers = 2 * table };

    r->threads = choose_threads(r, chunks);
    r->team = choose_team(r, r->threads);
    r->each = worker_bytes(r->p, r->team);
    room.stored = room.workers + r->each * (size_t)r->threads;
    room.all = room.stored + 64
             + (r->call->kept ? 0 : round64((size_t)cpu_kept(r->p, r->call)));
    return room;
}

int64_t cpu_workspace(const CpuProgram *p, const Call *call)
{
    return (int64_t)find_room(&(Run){ .p = p, .call = call }).all;
}

static void share_out(Run *r, int64_t items)
{
    int n = r->threads < items ? r->threads : (int)items;

    pool_share(r->c, r->p->pool, n, work, r);
}

static int end_kernel(const CpuProgram *p, const Call *call)
{
    return call->to ? call->to : p->plan->nkernels;
}

static void tell_time(const Run *r, double start)
{
    const Plan *p = r->p->plan;
    Ctx *c = r->c;
    KernelTime t = { p, r->call, r->kernel, p->kernel[r->kernel].name,
                     clock_now() - start,
                     (double)(r->chunk_bytes + r->once_bytes), 0 };

    if (c->timed)
        c->timed(c->timed_ud, &t);
}

static void run_kernels(Run *r, const Room *room, char *at, CpuStats *stats)
{
    at += (64 - (uintptr_t)at % 64) % 64;
    r->first_chunk = (int64_t *)at;
    r->first_item = (int64_t *)(at + room->first_item);
    r->memory = at + room->workers;
    r->stored = r->call->kept ? r->call->kept : (float *)(at + room->stored);
    count_chunks(r);
    for (r->kernel = r->call->from; r->kernel < end_kernel(r->p, r->call);
         r->kernel++) {
        double start = clock_now();
        r->next = r->chunk_bytes = r->once_bytes = 0;
        share_out(r, items_before(r, r->call->nseq));
        tell_time(r, start);
        if (stats && stats->chunks)
            stats->chunks[r->kernel] = r->chunk_bytes;
        if (stats && stats->once)
            stats->once[r->kernel] = r->once_bytes;
    }
}

static void check_call(Ctx *c, const CpuProgram *p, const Call *call)
{
    const Graph *g = p->plan->g;

    for (int i = 0; i < g->nin; i++) {
        const View *v = &call->in[i];
        if (!p->loads[i] || p->loads[i] > end_kernel(p, call))
            continue;
        if (!v->data)
            fail(c, g->in[i].line, "input '%s' is absent", g->in[i].name);
        if (v->heads <= 0 || call->heads % v->heads)
            fail(c, g->in[i].line, "input '%s' has %d heads, which do not "
                 "divide %d", g->in[i].name, v->heads, call->heads);
    }
}

void cpu_execute(Ctx *c, CpuProgram *p, const Call *call, CpuStats *stats)
{
    Run r = { .p = p, .call = call_twins(c, p->plan->g, call, true), .c = c };

    check_call(c, p, call);
    Room room = find_room(&r);
    void *own = NULL;
    if (!call->workspace) {
        ctx_count(c, room.all);
        own = mem_raw(&c->mem, room.all);
        if (!own) {
            ctx_uncount(c, room.all);
            fail_code(c, ERR_MEMORY, "out of memory");
        }
    }
    if (call->workspace && call->workspace_size < (int64_t)room.all)
        fail(c, 0, "the workspace has %lld bytes, but this call takes %zu",
             (long long)call->workspace_size, room.all);
    run_kernels(&r, &room, own ? own : call->workspace, stats);
    if (own)
        ctx_uncount(c, room.all);
    mem_free(&c->mem, own, room.all);
    if (atomic_load(&r.stop))
        fail_code(c, ERR_INTERRUPT, "interrupted");
    call_join(p->plan->g, r.call);
}

typedef struct Single {
    CpuProgram *p;
    const Call *call;
    CpuStats *stats;
} Single;

static void execute_single(Ctx *c, void *ud)
{
    Single *s = ud;

    cpu_execute(c, s->p, s->call, s->stats);
}

void cpu_run(Ctx *c, const Plan *p, const Call *call, CpuStats *stats)
{
    Single s = { cpu_compile(c, p, NULL, NULL), call, stats };
    bool ok = ctx_protect(c, execute_single, &s);

    cpu_free(s.p);
    if (!ok)
        ctx_rethrow(c);
}
