/* compile.c -- what becomes of a plan's programs: each found in the cache, or
 * compiled, side by side, by the attempt that is cheapest with what it spills;
 * loaded, checked and kept.
 */
#include "build.h"
#include "attempts.h"

#include <stdlib.h>
#include <string.h>

/* ---- entries of the cache: a program's cubin each ---- */

/* In its place where the program spills and another attempt was better. */
static const char passed_over[] = "passed over";

/* What was found of all programs of a build together: that they are right, or
 * in which way they are wrong. What judges them is a part of the key. */
static const char judged[] = "judged 2", right[] = "right";

static const char *hex_of(Ctx *c, const CacheKey *key)
{
    Buf hex = { .ctx = c };
    for (int i = 0; i < DIGEST; i++)
        buf_printf(&hex, "%02x", key->digest[i]);
    return hex.s;
}

/* What all cubins of this machine depend on, but their sources: compiler,
 * target, options, headers. */
static const char *common_key(Ctx *c, const Nvrtc *n, const char *arch)
{
    enum { OTHERS = 24 };               /* options, and what goes before */
    const char *text[MOST_HEADERS + OTHERS];
    int k = 0;
    text[k++] = ctx_format(c, "NVRTC %d.%d", n->major, n->minor);
    text[k++] = arch;
    text[k++] = "what spills is dealt again";
    for (int i = 0; nvrtc_options[i]; i++)
        text[k++] = nvrtc_options[i];
    for (int i = 0; cuda_headers[i].name; i++)
        text[k++] = cuda_headers[i].text;
    CacheKey key = cache_key(text, k);
    return hex_of(c, &key);
}

static CacheKey key_of(const char *common, const char *source)
{
    const char *const text[] = { common, source };
    return cache_key(text, 2);
}

/* ---- modules ---- */

void modules_unload(Modules *m, const Driver *d)
{
    for (int i = 0; i < m->n; i++) {
        if (d && m->module[i])
            module_unload(d, m->module[i]);
        m->module[i] = NULL;
    }
}

typedef struct Loading {
    Gpu *gpu;
    const unsigned char *bytes;
    Module *module;                     /* NULL: the driver does not take it, */
    Error *why;                         /* for this */
} Loading;

static void load(Ctx *c, void *ud)
{
    Loading *l = ud;
    l->module = module_load_if(c, gpu_enter(c, l->gpu), l->bytes, l->why);
}

/* What the cache has for the text; NULL: nothing, or what the driver does not
 * take. Entries were checked before they came there. */
static Module *find_module(Ctx *c, Gpu *g, const CacheKey *key, bool *passed)
{
    size_t size = 0;
    unsigned char *bytes = cache_get(gpu_cache(g), key, &size);
    Error why;
    Loading l = { .gpu = g, .bytes = bytes, .why = &why };
    *passed = bytes && size == sizeof passed_over
           && !memcmp(bytes, passed_over, size);
    bool ok = !bytes || *passed || ctx_protect(c, load, &l);
    free(bytes);
    if (!ok)
        ctx_rethrow(c);
    return l.module;
}

/* ---- programs of one source ---- */

/* What was wished for and is not taken yet, the oldest first; bytes: NULL until
 * it is compiled. */
typedef struct Wished {
    CacheKey key;
    char *source;
    unsigned char *bytes;
    size_t size;
    PtxasInfo info;
} Wished;
enum { MOST_WISHES = 64 };
typedef struct Wishes {
    int n;
    Wished of[MOST_WISHES];
} Wishes;

static void drop_wish(Wishes *w, int i)
{
    free(w->of[i].source);
    free(w->of[i].bytes);
    w->n--;
    memmove(w->of + i, w->of + i + 1, (size_t)(w->n - i) * sizeof *w->of);
}

static void end_wishes(const Driver *d, void *p)
{
    Wishes *w = p;

    (void)d;
    while (w->n)
        drop_wish(w, w->n - 1);
    free(w);
}

static int find_wish(const Wishes *w, const CacheKey *key)
{
    int i = w ? w->n - 1 : -1;

    while (i >= 0 && memcmp(&w->of[i].key, key, sizeof *key))
        i--;
    return i;
}

typedef struct Wishing {
    Gpu *gpu;
    const char *source;
    CacheKey key;
    Wished taken;
    Cubin *copied;
    bool pending;                       /* it is not compiled yet */
} Wishing;

static void wish_locked(Ctx *c, void *ud)
{
    Wishing *x = ud;
    Wishes *w = gpu_own(x->gpu, OWN_WISHES);
    size_t size, length = strlen(x->source) + 1;

    if (find_wish(w, &x->key) >= 0)
        return;
    unsigned char *there = cache_get(gpu_cache(x->gpu), &x->key, &size);
    free(there);
    if (there)
        return;
    if (!w && !(w = calloc(1, sizeof *w)))
        fail_code(c, ERR_MEMORY, "out of memory");
    gpu_give(x->gpu, OWN_WISHES, w, end_wishes);
    if (w->n == MOST_WISHES)
        drop_wish(w, 0);
    Wished one = { .key = x->key, .source = malloc(length) };
    if (!one.source)
        fail_code(c, ERR_MEMORY, "out of memory");
    memcpy(one.source, x->source, length);
    w->of[w->n++] = one;
}

void build_wish(Ctx *c, Gpu *g, const char *source)
{
    gpu_enter(c, g);
    const Nvrtc *n = gpu_compiler(c, g);
    Wishing x = { .gpu = g, .source = source,
                  .key = key_of(common_key(c, n, gpu_arch(g)), source) };
    gpu_locked(c, g, wish_locked, &x);
}

/* What is wished for and not compiled yet, which goes along with what is; and
 * texts behind these that are nobody's wish. */
enum { MOST_MORE = 16 };
typedef struct Pending {
    Gpu *gpu;
    int n;
    CacheKey key[MOST_WISHES];
    const char *text[MOST_WISHES + MOST_MORE];
    Along along;
} Pending;

static void list_locked(Ctx *c, void *ud)
{
    Pending *p = ud;
    const Wishes *w = gpu_own(p->gpu, OWN_WISHES);

    for (int i = 0; w && i < w->n; i++)
        if (!w->of[i].bytes) {
            p->key[p->n] = w->of[i].key;
            p->text[p->n++] = ctx_string(c, w->of[i].source);
        }
    p->along = (Along){ .n = p->n, .text = p->text };
}

/* One that does not compile says why when it is wanted, by itself. */
static void give_locked(Ctx *c, void *ud)
{
    const Pending *p = ud;
    Wishes *w = gpu_own(p->gpu, OWN_WISHES);

    (void)c;
    for (int i = 0; i < p->n; i++) {
        const Cubin *b = p->along.cubin ? &p->along.cubin[i] : NULL;
        int at = find_wish(w, &p->key[i]);
        if (at < 0 || w->of[at].bytes)
            continue;
        Wished *one = &w->of[at];
        one->bytes = b && b->bytes ? malloc(b->size) : NULL;
        one->size = b ? b->size : 0;
        one->info = b ? b->info : (PtxasInfo){ 0 };
        if (one->bytes)
            memcpy(one->bytes, b->bytes, one->size);
        else
            drop_wish(w, at);
    }
}

void build_wished(Ctx *c, Gpu *g)
{
    Pending p = { .gpu = g };
    Error why;

    gpu_enter(c, g);
    gpu_locked(c, g, list_locked, &p);
    if (p.along.n > 1)
        p.along.cubin = nvrtc_compile_if(c, gpu_compiler(c, g), &(Sources){
            p.along.n, 1, p.text, p.along.n }, gpu_arch(g), &why);
    if (p.along.n)
        gpu_locked(c, g, give_locked, &p);
}

static void take_locked(Ctx *c, void *ud)
{
    Wishing *x = ud;
    Wishes *w = gpu_own(x->gpu, OWN_WISHES);
    int i = find_wish(w, &x->key);

    (void)c;
    x->pending = i >= 0 && !w->of[i].bytes;
    if (i < 0 || x->pending)
        return;
    x->taken = w->of[i];
    w->of[i].bytes = NULL;
    w->of[i].source = NULL;
    drop_wish(w, i);
}

/* In the context; and then it is nobody's wish any more. */
static void copy_locked(Ctx *c, void *ud)
{
    Wishing *x = ud;
    Wishes *w = gpu_own(x->gpu, OWN_WISHES);
    int i = find_wish(w, &x->key);

    if (i < 0 || !w->of[i].bytes)
        return;
    const Wished *one = &w->of[i];
    x->copied = ctx_alloc(c, sizeof *x->copied);
    *x->copied = (Cubin){ .bytes = memcpy(ctx_alloc(c, one->size), one->bytes,
                                          one->size),
                          .size = one->size, .log = ctx_string(c, ""),
                          .info = one->info };
    drop_wish(w, i);
}

/* What was compiled because it was wished for; NULL: nothing. */
static Module *take_wished(Ctx *c, Gpu *g, const CacheKey *key)
{
    Wishing x = { .gpu = g, .key = *key };
    gpu_locked(c, g, take_locked, &x);
    if (x.pending) {
        build_wished(c, g);
        gpu_locked(c, g, take_locked, &x);
    }
    Error why;
    Loading l = { .gpu = g, .bytes = x.taken.bytes, .why = &why };
    bool ok = !l.bytes || ctx_protect(c, load, &l);
    if (ok && l.module)
        cache_put(gpu_cache(g), key, l.bytes, x.taken.size);
    free(x.taken.bytes);
    free(x.taken.source);
    if (!ok)
        ctx_rethrow(c);
    return l.module;
}

Module *build_module_if(Ctx *c, Gpu *g, const char *source, Error *why)
{
    gpu_enter(c, g);
    const Nvrtc *n = gpu_compiler(c, g);
    CacheKey key = key_of(common_key(c, n, gpu_arch(g)), source);
    bool passed;
    Module *m = take_wished(c, g, &key);
    if (!m)
        m = find_module(c, g, &key, &passed);
    if (m)
        return m;
    const Cubin *b = nvrtc_compile_if(c, n, &(Sources){ 1, 1, &source, 0 },
                                      gpu_arch(g), why);
    if (b)
        m = module_load_if(c, gpu_enter(c, g), b->bytes, why);
    if (m)
        cache_put(gpu_cache(g), &key, b->bytes, b->size);
    return m;
}

Module *build_module(Ctx *c, Gpu *g, const char *source)
{
    Error why;
    Module *m = build_module_if(c, g, source, &why);
    if (!m)
        ctx_raise(c, &why);
    return m;
}

/* ---- a build ---- */

typedef struct Compiling {
    Gpu *gpu;
    const Compile *wish;
    CudaOptions o;
    Attempts attempts;
    const char *common;                 /* to all keys */
    double printing;                    /* seconds */
    CacheKey verdict;
    bool known;                         /* the cache has it */
    int *attempt;                       /* of each program */
    int *missing, n;                    /* programs that must be compiled */
    Cubin *cubin;                       /* one each of those */
    bool fits;                          /* printed, compiled, loaded, run */
    Error *why;                         /* or what does not */
} Compiling;

static CudaModule *print(Ctx *own, void *ud, int attempt, Error *why)
{
    const Compiling *k = ud;
    CudaOptions o = k->o;
    o.attempt = attempt;
    return cuda_tiles_if(own, k->wish->plan, &o, why);
}

/* An attempt's text that was not passed over is the program's, or nobody knows.
 */
static bool find_program(Ctx *c, Compiling *k, int program)
{
    bool passed = true;
    for (int attempt = 0; attempt < CUDA_ATTEMPTS && passed; attempt++) {
        const char *text = attempt_text(c, &k->attempts, attempt, program);
        if (!text)
            continue;
        CacheKey key = key_of(k->common, text);
        k->attempt[program] = attempt;
        k->wish->b->modules.module[program] = find_module(c, k->gpu, &key,
                                                    &passed);
    }
    return k->wish->b->modules.module[program];
}

/* Prints the programs, and looks for what was found of them; false: nothing is
 * printed. */
static bool find_verdict(Ctx *c, Compiling *k)
{
    Build *b = k->wish->b;
    const Build *before = k->wish->own;
    size_t size = 0;
    gpu_enter(c, k->gpu);
    k->common = common_key(c, gpu_compiler(c, k->gpu), gpu_arch(k->gpu));
    double begin = clock_now();
    const char *first = attempt_text(c, &k->attempts, 0, 0);
    k->printing = clock_now() - begin;
    if (!first) {
        *k->why = k->attempts.why;
        return false;
    }
    CacheKey text = cache_key((const char *const *)
                              k->attempts.programs[0].source,
                              k->attempts.programs[0].n);
    b->text = hex_of(b->ctx, &text);
    const char *const all[] = { k->common, judged, b->text,
                                before ? before->text : "" };
    k->verdict = cache_key(all, sizeof all / sizeof *all);
    unsigned char *found = cache_get(gpu_cache(k->gpu), &k->verdict, &size);
    k->known = found;
    if (found && (size != sizeof right || memcmp(found, right, size)))
        b->wrong = ctx_format(b->ctx, "%.*s", (int)size, (char *)found);
    free(found);
    return true;
}

static void find_programs(Ctx *c, Compiling *k)
{
    Ctx *own = k->wish->b->ctx;
    size_t n = (size_t)k->attempts.programs[0].n;
    k->wish->b->modules.module = ctx_alloc(own, n * sizeof(Module *));
    k->wish->b->modules.n = (int)n;
    k->attempt = ctx_alloc(c, n * sizeof *k->attempt);
    k->missing = ctx_alloc(c, n * sizeof *k->missing);
    for (int i = 0; i < (int)n; i++)
        if (!find_program(c, k, i))
            k->missing[k->n++] = i;
}

/* ---- all of it ---- */

static const Cubin *ready(Ctx *c, void *ud, const char *text)
{
    const Compiling *k = ud;
    Wishing x = { .gpu = k->gpu, .key = key_of(k->common, text) };
    gpu_locked(c, k->gpu, copy_locked, &x);
    return x.copied;
}

/* Where cores would have nothing to do, what large programs are dealt to if
 * they spill, before that is known. */
static void add_dealt(Ctx *c, Compiling *k, Pending *p)
{
    const double little = .25;          /* seconds that printing takes */
    int spare = nvrtc_cores() - k->n - p->n;
    size_t longest = 0;
    for (int i = 0; i < k->n; i++) {
        size_t n = strlen(attempt_text(c, &k->attempts, 0, k->missing[i]));
        longest = n > longest ? n : longest;
    }
    spare = spare > MOST_MORE ? MOST_MORE : spare;
    for (int t = 1; t < CUDA_ATTEMPTS && k->printing < little; t++)
        for (int i = 0; i < k->n && spare > 0; i++) {
            int program = k->missing[i];
            if (2 * strlen(attempt_text(c, &k->attempts, 0, program)) < longest)
                continue;
            const char *text = attempt_dealt(c, &k->attempts, t, program);
            if (!text)
                continue;
            p->text[p->along.n++] = text;
            spare--;
        }
}

static bool compile_missing(Ctx *c, Compiling *k)
{
    Pending p = { .gpu = k->gpu };
    Wanted w = { .attempts = &k->attempts, .program = k->missing, .n = k->n,
                 .along = &p.along, .ready = ready, .ud = k };
    if (!k->n)
        return true;
    gpu_locked(c, k->gpu, list_locked, &p);
    add_dealt(c, k, &p);
    if (!attempts_compile(c, &w, gpu_compiler(c, k->gpu), gpu_arch(k->gpu),
                          k->why))
        return false;
    gpu_locked(c, k->gpu, give_locked, &p);
    k->cubin = w.cubin;
    return true;
}

static bool load_missing(Ctx *c, Compiling *k)
{
    for (int i = 0; i < k->n; i++) {
        Module *m = module_load_if(c, gpu_enter(c, k->gpu),
                                   k->cubin[i].bytes, k->why);
        if (!m)
            return false;
        k->wish->b->modules.module[k->missing[i]] = m;
        k->attempt[k->missing[i]] = k->cubin[i].taken;
    }
    return true;
}

static bool find_functions(Ctx *c, Build *b, const int *of, Error *why)
{
    b->f = ctx_alloc(b->ctx, (size_t)b->m->nkernels * sizeof *b->f);
    for (int i = 0; i < b->m->nkernels; i++) {
        const CudaKernel *k = &b->m->kernel[i];
        b->f[i] = module_function_if(c, gpu_driver(b->modules.gpu),
                                     b->modules.module[of[i]], k->name,
                                     k->shared, why);
        if (!b->f[i])
            return false;
    }
    return true;
}

static void publish(Ctx *c, Compiling *k, int i)
{
    const Cache *to = gpu_cache(k->gpu);
    for (int attempt = 0; attempt <= k->cubin[i].taken; attempt++) {
        const char *text = attempt_text(c, &k->attempts, attempt,
                                        k->missing[i]);
        if (!text)
            continue;
        CacheKey key = key_of(k->common, text);
        if (attempt < k->cubin[i].taken)
            cache_put(to, &key, passed_over, sizeof passed_over);
        else
            cache_put(to, &key, k->cubin[i].bytes, k->cubin[i].size);
    }
}

/* What is not right is not published; false: it does not run. */
static bool judge(Ctx *c, Compiling *k)
{
    Build *b = k->wish->b;
    const char *wrong = NULL;
    if (!k->wish->check(c, k->wish->ud, &wrong, k->why))
        return false;
    if (wrong)
        b->wrong = ctx_string(b->ctx, wrong);
    for (int i = 0; i < k->n && !wrong; i++)
        publish(c, k, i);
    cache_put(gpu_cache(k->gpu), &k->verdict, wrong ? wrong : right,
              wrong ? strlen(wrong) : sizeof right);
    return true;
}

static void make(Ctx *c, void *ud)
{
    Compiling *k = ud;
    k->fits = find_verdict(c, k);
    if (!k->fits || k->wish->b->wrong)
        return;
    find_programs(c, k);
    k->fits = compile_missing(c, k) && load_missing(c, k);
    if (!k->fits)
        return;
    k->wish->b->m = attempts_join(&k->attempts, k->attempt);
    k->fits = find_functions(c, k->wish->b, k->attempts.programs[0].of, k->why)
           && ((!k->n && k->known) || judge(c, k));
}

bool build_compile(Ctx *c, Gpu *g, const Compile *wish, Error *why)
{
    Build *b = wish->b;
    Compiling k = { .gpu = g, .wish = wish, .o = b->o, .why = why };
    k.attempts = (Attempts){ .ctx = b->ctx, .print = print, .ud = &k };
    b->modules.gpu = g;
    bool ok = ctx_protect(c, make, &k);
    if (!ok || !k.fits || b->wrong)
        modules_unload(&b->modules, gpu_driver(g));
    if (!ok)
        ctx_rethrow(c);
    return k.fits;
}
