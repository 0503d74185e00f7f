/* nvrtc.c -- finds NVRTC, compiles, and reads what ptxas has to say. */
#include "nvrtc.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "signals.h"

typedef struct Program Program;         /* NVRTC's own */

enum Entry { VERSION, CREATE, COMPILE, DESTROY, CUBIN_SIZE, CUBIN, LOG_SIZE,
             LOG, ERROR_TEXT, NENTRIES };
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

static const char *const soname[] = {
    "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so",
};
enum { NSONAMES = sizeof soname / sizeof *soname };

/* ISO C has no cast from an object's to a function's address. */
#define ENTRY(n, type, which, f) \
    type *f; memcpy(&f, &(n)->fn[which], sizeof f)

static bool take(Nvrtc *n, void *lib, const char *path)
{
    for (int i = 0; i < NENTRIES; i++)
        if (!(n->fn[i] = dlsym(lib, entry_name[i])))
            return false;
    ENTRY(n, VersionFn, VERSION, version);
    if (version(&n->major, &n->minor) != 0)
        return false;
    snprintf(n->path, sizeof n->path, "%s", path);
    return true;
}

static bool try_name(Nvrtc *n, const char *path, int flags)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
    return lib && take(n, lib, path);
}

/* The last match first: the newest, where versions are in the name. */
static bool try_glob(Nvrtc *n, const char *root, const char *pattern)
{
    char full[512];
    glob_t g;
    bool found = false;
    if (!root)
        return false;
    snprintf(full, sizeof full, "%s%s", root, pattern);
    if (glob(full, 0, NULL, &g) != 0)
        return false;
    for (size_t i = g.gl_pathc; i-- > 0 && !found; )
        found = try_name(n, g.gl_pathv[i], 0);
    globfree(&g);
    return found;
}

static bool try_wheels(Nvrtc *n)
{
    static const char *const tail[] = {
        "/lib/python3*/site-packages/nvidia/cu*/lib/libnvrtc.so.*",
        "/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
        "/lib/python3*/dist-packages/nvidia/cu*/lib/libnvrtc.so.*",
        "/lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.*",
    };
    char local[256];
    const char *home = getenv("HOME");
    snprintf(local, sizeof local, "%s/.local", home ? home : "");
    const char *const root[] = {
        getenv("VIRTUAL_ENV"), getenv("CONDA_PREFIX"), local, "/usr/local",
        "/usr",
    };
    for (size_t r = 0; r < sizeof root / sizeof *root; r++)
        for (size_t t = 0; t < sizeof tail / sizeof *tail; t++)
            if (try_glob(n, root[r], tail[t]))
                return true;
    return false;
}

static bool find(Nvrtc *n)
{
    for (int i = 0; i < NSONAMES; i++)
        if (try_name(n, soname[i], RTLD_NOLOAD))
            return true;
    if (try_wheels(n))
        return true;
    for (int i = 0; i < NSONAMES; i++)
        if (try_name(n, soname[i], 0))
            return true;
    return try_glob(n, getenv("CUDA_PATH"), "/lib*/libnvrtc.so.*")
        || try_glob(n, "/usr/local", "/cuda*/lib64/libnvrtc.so.*")
        || try_glob(n, "/usr/local", "/cuda*/lib/libnvrtc.so.*");
}

bool nvrtc_open(Ctx *c, Nvrtc *n)
{
    memset(n, 0, sizeof *n);
    if (find(n))
        return true;
    memset(&c->err, 0, sizeof c->err);
    c->err.code = ERR_DEVICE;
    snprintf(c->err.message, sizeof c->err.message,
             "NVRTC, CUDA's run-time compiler, was not found");
    snprintf(c->err.help, sizeof c->err.help,
             "install nvidia-cuda-nvrtc (Python) or the CUDA toolkit, or set"
             " CUDA_PATH to it");
    return false;
}

/* ---- compiling ---- */

const char *const nvrtc_options[] = {
    "--std=c++17", "--ptxas-options=-v", "--no-source-include",
    "--device-as-default-execution-space", NULL
};

/* Shared with the thread that compiles, freed by the last of the two. */
typedef struct Job {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done, left;                    /* left: nobody waits any more */
    Nvrtc n;
    char *source, arch[64];
    Program *program;
    int result;
} Job;

static void job_free(Job *j)
{
    ENTRY(&j->n, DestroyFn, DESTROY, destroy);
    if (j->program)
        destroy(&j->program);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->ended);
    free(j->source);
    free(j);
}

static void run_job(Job *j)
{
    enum { MOST = 16 };
    const char *text[MOST], *name[MOST], *option[MOST] = { j->arch };
    int n = 0, options = 1;
    for (; nvrtc_options[options - 1]; options++)
        option[options] = nvrtc_options[options - 1];
    for (; n < MOST && cuda_headers[n].name; n++) {
        text[n] = cuda_headers[n].text;
        name[n] = cuda_headers[n].name;
    }
    ENTRY(&j->n, CreateFn, CREATE, create);
    ENTRY(&j->n, CompileFn, COMPILE, compile);
    j->result = create(&j->program, j->source, "kernel.cu", n, text, name);
    if (j->result == 0)
        j->result = compile(j->program, options, option);
}

static void *compile_thread(void *ud)
{
    Job *j = ud;
    run_job(j);
    pthread_mutex_lock(&j->lock);
    bool left = j->left;
    j->done = true;
    pthread_cond_signal(&j->ended);
    pthread_mutex_unlock(&j->lock);
    if (left)
        job_free(j);
    return NULL;
}

static Job *job_new(Ctx *c, const Nvrtc *n, const char *source,
                    const char *arch)
{
    Job *j = calloc(1, sizeof *j);
    char *text = j ? strdup(source) : NULL;
    if (!text) {
        free(j);
        fail_code(c, ERR_MEMORY, "out of memory");
    }
    j->n = *n;
    j->source = text;
    snprintf(j->arch, sizeof j->arch, "--gpu-architecture=%s", arch);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->ended, NULL);
    return j;
}

/* 0, or why there is no thread. */
static int job_start(Job *j)
{
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, (size_t)8 << 20);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    int err = pthread_create(&thread, &attr, compile_thread, j);
    pthread_attr_destroy(&attr);
    return err;
}

/* Waits, asking every 20 ms whether to go on; false: not to. At first more
 * often: that is when NVRTC takes the signals. */
static bool job_wait(Ctx *c, Job *j, const Signals *s)
{
    enum { MS = 1000000, OFTEN = 100 };
    bool stop = false;
    pthread_mutex_lock(&j->lock);
    for (int turn = 0; !j->done && !stop; turn++) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += turn < OFTEN ? MS : 20 * MS;
        t.tv_sec += t.tv_nsec / (1000 * MS);
        t.tv_nsec %= 1000 * MS;
        pthread_cond_timedwait(&j->ended, &j->lock, &t);
        signals_pass(s);
        stop = !j->done && c->interrupted && c->interrupted(c->interrupt_ud);
    }
    j->left = stop;
    pthread_mutex_unlock(&j->lock);
    return !stop;
}

/* The number before `what` on the line, -1 if it is not there. */
static int number_before(const char *line, const char *end, const char *what)
{
    const char *p = strstr(line, what);
    if (!p || p >= end)
        return -1;
    while (p > line && p[-1] == ' ')
        p--;
    while (p > line && p[-1] >= '0' && p[-1] <= '9')
        p--;
    return atoi(p);
}

static void raise_to(int *x, int y)
{
    if (y > *x)
        *x = y;
}

static void read_line(PtxasInfo *info, const char *line, const char *end)
{
    raise_to(&info->stack, number_before(line, end, " bytes stack frame"));
    raise_to(&info->spill_stores,
             number_before(line, end, " bytes spill stores"));
    raise_to(&info->spill_loads,
             number_before(line, end, " bytes spill loads"));
    raise_to(&info->registers, number_before(line, end, " registers"));
    const char *note = strstr(line, "C75");
    if (note && note < end) {
        int code = atoi(note + 1);
        if (code >= 7510 && code <= 7519)
            info->serialised = code;
    }
}

static PtxasInfo read_log(const char *log)
{
    PtxasInfo info = { 0 };
    for (const char *p = log; *p; ) {
        const char *end = strchr(p, '\n');
        if (!end)
            end = p + strlen(p);
        read_line(&info, p, end);
        p = *end ? end + 1 : end;
    }
    return info;
}

static char *get_log(Ctx *c, const Nvrtc *n, Program *p)
{
    ENTRY(n, SizeFn, LOG_SIZE, log_size);
    ENTRY(n, GetFn, LOG, get_log_);
    size_t size = 0;
    if (!p || log_size(p, &size) != 0)
        size = 0;
    char *log = ctx_alloc(c, size + 1);
    if (size)
        get_log_(p, log);
    return log;
}

typedef struct Fetch { const Nvrtc *n; Program *p; Cubin *out; } Fetch;

static void fetch(Ctx *c, void *ud)
{
    Fetch *f = ud;
    ENTRY(f->n, SizeFn, CUBIN_SIZE, cubin_size);
    ENTRY(f->n, GetFn, CUBIN, get_cubin);
    f->out = ctx_alloc(c, sizeof *f->out);
    f->out->log = get_log(c, f->n, f->p);
    f->out->info = read_log(f->out->log);
    if (f->p && cubin_size(f->p, &f->out->size) == 0 && f->out->size) {
        f->out->bytes = ctx_alloc(c, f->out->size);
        get_cubin(f->p, (char *)f->out->bytes);
    }
}

Cubin *nvrtc_compile(Ctx *c, const Nvrtc *n, const char *source,
                     const char *arch)
{
    Job *j = job_new(c, n, source, arch);
    Signals s;
    signals_hold(&s, n->fn[COMPILE]);
    int err = job_start(j);
    bool done = !err && job_wait(c, j, &s);
    signals_end(&s);
    if (err) {
        job_free(j);
        fail_code(c, ERR_MEMORY, "no thread for the CUDA compiler: %s",
                  strerror(err));
    }
    if (!done)
        fail_code(c, ERR_INTERRUPT, "interrupted");
    /* the program is NVRTC's memory: freed whether or not ours runs out */
    Fetch f = { .n = n, .p = j->program };
    int result = j->result;
    bool ok = ctx_protect(c, fetch, &f);
    job_free(j);
    if (!ok)
        ctx_rethrow(c);
    ENTRY(n, TextFn, ERROR_TEXT, error_text);
    if (result != 0)
        fail_code(c, ERR_DEVICE, "the CUDA compiler refused a generated"
                  " kernel for %s: %s\n%s", arch, error_text(result),
                  f.out->log);
    if (f.out->info.serialised)
        fail_code(c, ERR_DEVICE, "ptxas serialised the wgmma of a generated"
                  " kernel (C%d)\n%s", f.out->info.serialised, f.out->log);
    return f.out;
}
