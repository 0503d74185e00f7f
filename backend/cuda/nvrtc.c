/* nvrtc.c -- finds NVRTC, compiles, and reads what ptxas has to say. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "library.h"
#include "signals.h"

typedef struct Program Program;         /* NVRTC's own */

enum Entry { VERSION, CREATE, COMPILE, DESTROY, CUBIN_SIZE, CUBIN, LOG_SIZE,
             LOG, ERROR_TEXT, NENTRIES, FLOW = NENTRIES };
static const char *const entry_name[NENTRIES] = {
    "nvrtcVersion", "nvrtcCreateProgram", "nvrtcCompileProgram",
    "nvrtcDestroyProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN",
    "nvrtcGetProgramLogSize", "nvrtcGetProgramLog", "nvrtcGetErrorString",
};

typedef int VersionFn(int *major, int *minor);
typedef int CreateFn(Program **p, const char *source, const char *name,
                     int nheaders, const char *const *headers,
                     const char *const *header_names);
typedef int CompileFn(Program *p, int noptions, const char *const *options);
typedef int DestroyFn(Program **p);
typedef int SizeFn(Program *p, size_t *size);
typedef int GetFn(Program *p, char *to);
typedef const char *TextFn(int result);
typedef int FlowFn(Program *p, int (*f)(void *ud, void *reserved), void *ud);

/* ISO C has no cast from an object's to a function's address. */
#define ENTRY(n, type, which, f) \
    type *f; memcpy(&f, &(n)->fn[which], sizeof f)

static bool take(void *ud, void *lib, const char *path)
{
    Nvrtc *n = ud;
    for (int i = 0; i < NENTRIES; i++)
        if (!(n->fn[i] = dlsym(lib, entry_name[i])))
            return false;
    n->fn[FLOW] = dlsym(lib, "nvrtcSetFlowCallback");    /* since CUDA 12.8 */
    ENTRY(n, VersionFn, VERSION, version);
    if (version(&n->major, &n->minor) != 0)
        return false;
    snprintf(n->path, sizeof n->path, "%s", path);
    return true;
}

bool nvrtc_open(Ctx *c, Nvrtc *n)
{
    static const char *const soname[] = { "libnvrtc.so.13", "libnvrtc.so.12",
                                          "libnvrtc.so", NULL };
    memset(n, 0, sizeof *n);
    if (library_find(&(Library){ "libnvrtc", "cuda_nvrtc", soname }, take, n))
        return true;
    memset(&c->err, 0, sizeof c->err);
    c->err.code = ERR_DEVICE;
    snprintf(c->err.message, sizeof c->err.message,
             "NVRTC, CUDA's run-time compiler, was not found");
    snprintf(c->err.help, sizeof c->err.help,
             "pip install nvidia-cuda-nvrtc-cu12, or the CUDA toolkit; where "
             "it lies elsewhere, set CUDA_PATH to it");
    return false;
}

/* ---- compiling ---- */

/* NVRTC's cache would hide what ptxas says, which attempts are chosen by. Not
 * --split-compile: NVRTC 13.0 breaks the heap where such a one is stopped.
 * Quotients to 2 units in the last place: exact ones are 20 instructions. */
const char *const nvrtc_options[] = {
    "--std=c++17", "--ptxas-options=-v", "--no-source-include",
    "--device-as-default-execution-space", "--prec-div=false", "--no-cache",
    NULL
};

const char nvrtc_unfused[] = "// each product is rounded\n";

/* One of a program's tries, in the order of their programs' tries. */
typedef struct Work {
    struct Job *job;
    char *source;                       /* NULL: there is no such try */
    size_t length;
    bool begun, ended;
    atomic_bool dropped;                /* another is taken already */
    Program *program;
    int result, spilled;
    char *log;
    PtxasInfo info;
} Work;

/* Shared with the threads that compile, freed by the last that leaves. */
typedef struct Job {
    pthread_mutex_t lock;
    pthread_cond_t ended, more;
    Nvrtc n;
    char arch[64];
    atomic_bool left;                   /* nobody waits any more */
    int count, tries, cores, holders, busy;
    sigset_t mask;                      /* of who waits */
    Work work[];                        /* try * count + program */
} Job;

/* NVRTC must not be unloaded, nor its destructors run at the process's end,
 * while a thread is in it. */
static struct Inside {
    pthread_mutex_t lock;
    pthread_cond_t fewer;
    _Atomic(pid_t) pid;                 /* a forked child has no such threads */
    int threads;
    int behind;                         /* those of jobs that are left */
    atomic_bool ending;                 /* the process; nobody goes in */
    atomic_bool warm;                   /* something has been compiled */
} inside = { .lock = PTHREAD_MUTEX_INITIALIZER,
             .fewer = PTHREAD_COND_INITIALIZER };

/* False: the process ends, and nobody came in. */
static bool count(int threads, int behind)
{
    pthread_mutex_lock(&inside.lock);
    if (inside.pid != getpid())
        inside.threads = inside.behind = 0;
    inside.pid = getpid();
    bool ok = threads <= 0 || !inside.ending;
    inside.threads += ok ? threads : 0;
    inside.behind += behind;
    pthread_cond_broadcast(&inside.fewer);
    pthread_mutex_unlock(&inside.lock);
    return ok;
}

static void wait_until_none(const int *threads)
{
    if (inside.pid != getpid())
        return;
    pthread_mutex_lock(&inside.lock);
    while (*threads > 0)
        pthread_cond_wait(&inside.fewer, &inside.lock);
    pthread_mutex_unlock(&inside.lock);
}

void nvrtc_settle(void)
{
    wait_until_none(&inside.behind);
}

static void at_exit(void)
{
    inside.ending = true;
    wait_until_none(&inside.threads);
}

/* NVRTC registers for the end, too, during its first compilation: the last to
 * do so is the first to be called. */
static void before_nvrtc(void)
{
    if (!inside.warm)
        atexit(at_exit);
}

static void job_free(Job *j)
{
    ENTRY(&j->n, DestroyFn, DESTROY, destroy);
    bool in = count(1, 0);
    for (int i = 0; i < j->count * j->tries; i++) {
        if (in && j->work[i].program)
            destroy(&j->work[i].program);
        free(j->work[i].source);
        free(j->work[i].log);
    }
    if (in)
        count(-1, 0);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->ended);
    pthread_cond_destroy(&j->more);
    free(j);
}

/* NVRTC asks now and then: 1 ends the compilation. */
static int is_left(void *ud, void *reserved)
{
    const Work *w = ud;
    (void)reserved;
    return w->dropped || w->job->left || inside.ending;
}

/* Locked, and not afterwards. */
static void job_leave(Job *j)
{
    bool last = --j->holders == 0;
    pthread_mutex_unlock(&j->lock);
    if (last) {
        signals_leave();
        job_free(j);
    }
}

/* To be freed; NULL: memory is out. */
static char *get_log(const Nvrtc *n, Program *p)
{
    ENTRY(n, SizeFn, LOG_SIZE, log_size);
    ENTRY(n, GetFn, LOG, get_log_);
    size_t size = 0;
    if (!p || log_size(p, &size) != 0)
        size = 0;
    char *log = calloc(1, size + 1);
    if (size && log)
        get_log_(p, log);
    return log;
}

/* ---- tries ---- */

/* The first try whose outcome is still wanted; NULL: the program is decided,
 * by one that spills nothing or does not compile, or after the last. */
static Work *wanted(Job *j, int program)
{
    for (int t = 0; t < j->tries; t++) {
        Work *w = &j->work[t * j->count + program];
        if (w->source && !w->ended)
            return w;
        if (w->source && !w->spilled)
            return NULL;
    }
    return NULL;
}

static bool all_decided(Job *j)
{
    for (int i = 0; i < j->count; i++)
        if (wanted(j, i))
            return false;
    return true;
}

/* The one that is taken: of those that spill least the first. */
static const Work *taken(Job *j, int program)
{
    const Work *best = &j->work[program];
    pthread_mutex_lock(&j->lock);
    for (int t = 1; t < j->tries; t++) {
        const Work *w = &j->work[t * j->count + program];
        if (best->spilled && w->ended && w->spilled < best->spilled)
            best = w;
    }
    pthread_mutex_unlock(&j->lock);
    return best;
}

static void take_longer(Work **most, Work *w)
{
    if (w && w->source && !w->begun
        && (!*most || w->length > (*most)->length))
        *most = w;
}

/* Whether all would wait for a second try of it. */
static bool may_be_last(const Job *j, int program)
{
    size_t most = 0;
    for (int i = 0; i < j->count; i++)
        if (j->work[i].length > most)
            most = j->work[i].length;
    return 2 * j->work[program].length > most;
}

/* The longest of what is wanted and not begun; or else, while half of the
 * cores have nothing to do and NVRTC can be stopped, of the next tries of
 * programs that are not decided and are long: side by side, compilations slow
 * each other down. NULL: nothing as yet. */
static Work *next_work(Job *j)
{
    Work *next = NULL;
    for (int i = 0; i < j->count; i++)
        take_longer(&next, wanted(j, i));
    bool idle = 2 * (j->busy + 1) <= j->cores && j->n.fn[FLOW];
    for (int t = 1; t < j->tries && !next && idle; t++)
        for (int i = 0; i < j->count; i++)
            if (wanted(j, i) && may_be_last(j, i))
                take_longer(&next, &j->work[t * j->count + i]);
    return next;
}

/* Locked. Later tries than the one that decides are not wanted any more. */
static void end_work(Job *j, Work *w)
{
    int program = (int)(w - j->work) % j->count;
    bool first = w - j->work < j->count;
    bool bad = w->result != 0 || w->info.serialised;
    w->ended = true;
    w->spilled = first && w->result != 0 ? 0 : bad ? INT_MAX
               : w->info.spill_stores + w->info.spill_loads;
    for (int t = 1; t < j->tries && !wanted(j, program); t++)
        j->work[t * j->count + program].dropped = true;
    pthread_cond_signal(&j->ended);
    pthread_cond_broadcast(&j->more);
}

static void do_work(Job *j, Work *w)
{
    enum { OPTIONS = 16, INVALID_OPTION = 5 };  /* NVRTC's own number */
    const char *text[MOST_HEADERS], *name[MOST_HEADERS];
    const char *option[OPTIONS] = { j->arch };
    int n = 0, options = 1;
    if (!strncmp(w->source, nvrtc_unfused, strlen(nvrtc_unfused)))
        option[options++] = "--fmad=false";
    for (int i = 0; nvrtc_options[i]; i++)
        option[options++] = nvrtc_options[i];
    for (; cuda_headers[n].name; n++) {
        text[n] = cuda_headers[n].text;
        name[n] = cuda_headers[n].name;
    }
    ENTRY(&j->n, CreateFn, CREATE, create);
    ENTRY(&j->n, CompileFn, COMPILE, compile);
    ENTRY(&j->n, FlowFn, FLOW, on_flow);
    w->result = create(&w->program, w->source, "kernel.cu", n, text, name);
    if (w->result == 0 && on_flow)
        on_flow(w->program, is_left, w);
    if (w->result == 0)
        w->result = compile(w->program, options, option);
    if (w->result == INVALID_OPTION)    /* the last: older ones have no cache */
        w->result = compile(w->program, options - 1, option);
    w->log = get_log(&j->n, w->program);
    w->info = ptxas_info(w->log ? w->log : "");
}

static void *compile_thread(void *ud)
{
    Job *j = ud;
    pthread_mutex_lock(&j->lock);
    while (!j->left) {
        Work *w = next_work(j);
        if (!w) {
            pthread_cond_wait(&j->more, &j->lock);
            continue;
        }
        w->begun = true;
        j->busy++;
        pthread_mutex_unlock(&j->lock);
        bool in = count(1, 0);
        if (in) {
            do_work(j, w);
            count(-1, 0);       /* a host may exit while it has the lock */
        }
        signals_restore();
        pthread_mutex_lock(&j->lock);
        j->busy--;
        if (in)
            end_work(j, w);
    }
    job_leave(j);
    count(0, -1);
    return NULL;
}

static Job *job_new(Ctx *c, const Nvrtc *n, const Sources *s,
                    const char *arch)
{
    int all = s->count * s->tries;
    Job *j = calloc(1, sizeof *j + (size_t)all * sizeof *j->work);
    if (!j)
        fail_code(c, ERR_MEMORY, "out of memory");
    j->n = *n;
    j->holders = 1;
    j->count = s->count;
    j->tries = s->tries;
    snprintf(j->arch, sizeof j->arch, "--gpu-architecture=%s", arch);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->ended, NULL);
    pthread_cond_init(&j->more, NULL);
    for (int i = 0; i < all; i++) {
        Work *w = &j->work[i];
        w->job = j;
        if (s->text[i] && !(w->source = strdup(s->text[i]))) {
            job_free(j);
            fail_code(c, ERR_MEMORY, "out of memory");
        }
        w->length = w->source ? strlen(w->source) : 0;
    }
    return j;
}

int nvrtc_cores(void)
{
    enum { MOST = 16 };
    int n = cores();
    return n > MOST ? MOST : n;
}

/* Threads, as many as there are cores for; 0, or why there is none. */
static int job_start(Job *j)
{
    int err = 0;
    pthread_attr_t attr;
    pthread_t thread;
    j->cores = nvrtc_cores();
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)8 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    before_nvrtc();
    pthread_mutex_lock(&j->lock);
    for (int i = 0; i < j->cores && i < j->count * j->tries && !err; i++) {
        err = pthread_create(&thread, &attr, compile_thread, j);
        j->holders += !err;
    }
    pthread_attr_destroy(&attr);
    bool alone = j->holders == 1;
    pthread_mutex_unlock(&j->lock);
    return alone ? err : 0;
}

/* Waits, asking every 20 ms whether to go on; false: not to. At first more
 * often: that is when NVRTC takes the signals. Threads end by themselves
 * then: some may be in NVRTC still, at what is not wanted any more. */
static bool job_wait(Ctx *c, Job *j)
{
    enum { MS = 1000000, OFTEN = 100 };
    bool stopped = false, all;
    pthread_mutex_lock(&j->lock);
    for (int round = 0; !(all = all_decided(j)) && !stopped; round++) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += round < OFTEN ? MS : 20 * MS;
        t.tv_sec += t.tv_nsec / (1000 * MS);
        t.tv_nsec %= 1000 * MS;
        pthread_cond_timedwait(&j->ended, &j->lock, &t);
        signals_pass(&j->mask);
        before_nvrtc();
        stopped = !all_decided(j) && c->interrupted
               && c->interrupted(c->interrupt_ud);
    }
    before_nvrtc();
    inside.warm = inside.warm || all;
    j->left = true;
    count(0, j->holders - 1);
    pthread_cond_broadcast(&j->more);
    pthread_mutex_unlock(&j->lock);
    return all;
}

typedef struct Fetch { Job *j; Cubin *out; } Fetch;

static void fetch(Ctx *c, void *ud)
{
    Fetch *f = ud;
    ENTRY(&f->j->n, SizeFn, CUBIN_SIZE, cubin_size);
    ENTRY(&f->j->n, GetFn, CUBIN, get_cubin);
    f->out = ctx_alloc(c, (size_t)f->j->count * sizeof *f->out);
    for (int i = 0; i < f->j->count; i++) {
        const Work *w = taken(f->j, i);
        Cubin *b = &f->out[i];
        b->result = w->result;
        b->log = ctx_string(c, w->log ? w->log : "");
        b->info = w->info;
        b->taken = (int)(w - f->j->work) / f->j->count;
        if (!w->log)
            fail_code(c, ERR_MEMORY, "out of memory");
        if (w->program && cubin_size(w->program, &b->size) == 0 && b->size) {
            b->bytes = ctx_alloc(c, b->size);
            get_cubin(w->program, (char *)b->bytes);
        }
    }
}

static bool is_taken(const Cubin *b)
{
    return !b->result && !b->info.serialised;
}

static void say_why(Ctx *c, const Nvrtc *n, const Cubin *b, const char *arch,
                    Error *why)
{
    ENTRY(n, TextFn, ERROR_TEXT, error_text);
    if (b->result != 0)
        error_set(c, why, 0, NULL, "the CUDA compiler refused a generated"
                  " kernel for %s: %s\n%s", arch, error_text(b->result),
                  b->log);
    else
        error_set(c, why, 0, NULL, "ptxas serialised the wgmma of a generated"
                  " kernel (C%d)\n%s", b->info.serialised, b->log);
    why->code = ERR_DEVICE;
}

Cubin *nvrtc_compile_if(Ctx *c, const Nvrtc *n, const Sources *s,
                        const char *arch, Error *why)
{
    Job *j = job_new(c, n, s, arch);
    Fetch f = { .j = j };
    signals_hold(&j->mask, n->fn[COMPILE]);
    int err = job_start(j);
    bool done = !err && job_wait(c, j) && !inside.ending;
    signals_end(&j->mask);
    /* the programs are NVRTC's memory: freed whether or not ours runs out */
    bool ok = !done || ctx_protect(c, fetch, &f);
    pthread_mutex_lock(&j->lock);
    job_leave(j);
    if (err)
        fail_code(c, ERR_MEMORY, "no thread for the CUDA compiler: %s",
                  strerror(err));
    if (!done)
        fail_code(c, ERR_INTERRUPT, "interrupted");
    if (!ok)
        ctx_rethrow(c);
    for (int i = 0; i < s->count; i++) {
        if (is_taken(&f.out[i]))
            continue;
        if (i >= s->count - s->along) {
            f.out[i].bytes = NULL;
            continue;
        }
        say_why(c, n, &f.out[i], arch, why);
        return NULL;
    }
    return f.out;
}

Cubin *nvrtc_compile_all(Ctx *c, const Nvrtc *n, const Sources *s,
                         const char *arch)
{
    Error why;
    Cubin *b = nvrtc_compile_if(c, n, s, arch, &why);
    if (!b)
        ctx_raise(c, &why);
    return b;
}

Cubin *nvrtc_compile(Ctx *c, const Nvrtc *n, const char *source,
                     const char *arch)
{
    return nvrtc_compile_all(c, n, &(Sources){ 1, 1, &source, 0 }, arch);
}
