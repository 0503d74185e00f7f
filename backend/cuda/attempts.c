/* attempts.c -- a source cut into programs, and each as the attempt that it
 * needs. */
#include "attempts.h"

#include "../../compiler/schedule/schedule.h"

#include <string.h>

/* Text that a core compiles in a second or two: kernels of less go together.
 * The same on any machine, as are the cubins. */
enum { PROGRAM_TEXT = 16000 };

static char *program_text(Ctx *c, const CudaModule *m, int from, int to)
{
    const char *start = m->kernel[from].head;
    size_t head = start ? strlen(start) : m->kernel[0].text;
    size_t at = m->kernel[from].text, own = m->kernel[to - 1].end - at;
    char *s = ctx_alloc(c, head + own + 1);
    memcpy(s, start ? start : m->source, head);
    memcpy(s + head, m->source + at, own);
    return s;
}

/* Whether kernel `to` goes with those from `from` on; as in `like`, if there
 * is one. */
static bool goes_along(const CudaModule *m, const CudaPrograms *like,
                       int from, int to)
{
    return like ? like->of[to] == like->of[from]
         : m->kernel[to].head == m->kernel[from].head
        && m->kernel[to].end - m->kernel[from].text <= PROGRAM_TEXT;
}

static CudaPrograms cut(Ctx *c, const CudaModule *m, const CudaPrograms *like)
{
    size_t n = (size_t)m->nkernels;
    CudaPrograms p = { .source = ctx_alloc(c, n * sizeof *p.source),
                       .of = ctx_alloc(c, n * sizeof *p.of) };
    for (int from = 0, to; from < m->nkernels; from = to) {
        for (to = from; to == from || (to < m->nkernels
             && goes_along(m, like, from, to)); )
            p.of[to++] = p.n;
        p.source[p.n++] = program_text(c, m, from, to);
    }
    return p;
}

typedef struct Printing { Attempts *r; int attempt; } Printing;

static void print(Ctx *own, void *ud)
{
    Printing *p = ud;
    Attempts *r = p->r;
    CudaModule *m = r->print(own, r->ud, p->attempt, &r->why);
    const CudaModule *first = p->attempt ? r->m[0] : m;
    r->refused[p->attempt] = !m || m->nkernels != first->nkernels
        || m->kept != first->kept;
    if (r->refused[p->attempt])
        return;
    r->programs[p->attempt] = cut(own, m, p->attempt ? &r->programs[0] : NULL);
    r->m[p->attempt] = m;
}

static bool is_of(const Attempts *r, int kernel, int program)
{
    return r->programs[0].of[kernel] == program;
}

static bool is_scheduled(const CudaKernel *k)
{
    return k->schedule && !k->schedule->tokens.threads
        && (k->walk == CUDA_SCHEDULED || k->walk == CUDA_WALKED);
}

/* Whether the program's kernels are dealt to roles: they are dealt otherwise
 * where what they spill is seen to be dear, which takes a while. */
static bool is_dealt(const Attempts *r, int program)
{
    const CudaModule *m = r->m[0];
    bool any = false;
    for (int i = 0; i < m->nkernels; i++)
        any |= is_of(r, i, program) && is_scheduled(&m->kernel[i]);
    return any;
}

/* Whether products are under way in it while others wait: ptxas may say that it
 * serialises them. */
static bool may_wait(const Attempts *r, int program)
{
    const CudaModule *m = r->m[0];
    bool any = false;
    for (int i = 0; i < m->nkernels; i++)
        any |= is_of(r, i, program) && is_scheduled(&m->kernel[i])
            && m->kernel[i].schedule->ordered;
    return any;
}

const char *attempt_text(Ctx *c, Attempts *r, int attempt, int program)
{
    Printing p = { r, attempt };
    if (!r->m[attempt] && !r->refused[attempt])
        ctx_within(c, r->ctx, print, &p);
    return r->m[attempt] ? r->programs[attempt].source[program] : NULL;
}

/* NULL, too, where it is the same of an attempt before. */
static const char *new_text(Ctx *c, Attempts *r, int attempt, int program)
{
    const char *s = attempt_text(c, r, attempt, program);
    for (int i = 0; i < attempt && s; i++) {
        const char *before = attempt_text(c, r, i, program);
        if (before && !strcmp(before, s))
            return NULL;
    }
    return s;
}

static int texts_along(const Wanted *w)
{
    return w->along ? w->along->n : 0;
}

/* Of all attempts; of programs that are dealt to roles the first alone, but of
 * ordered ones where such are refused. What goes along is behind them. */
static const char **texts(Ctx *c, const Wanted *w, bool refused)
{
    Attempts *r = w->attempts;
    int count = w->n + texts_along(w);
    size_t n = (size_t)(count * CUDA_ATTEMPTS);
    const char **text = ctx_alloc(c, n * sizeof *text);
    for (int i = w->n; i < count; i++)
        text[i] = w->along->text[i - w->n];
    for (int i = 0; i < w->n; i++) {
        text[i] = attempt_text(c, r, 0, w->program[i]);
        bool more = !is_dealt(r, w->program[i])
                 || (refused && may_wait(r, w->program[i]));
        for (int t = 1; t < CUDA_ATTEMPTS && more; t++)
            text[t * count + i] = new_text(c, r, t, w->program[i]);
    }
    return text;
}

const char *attempt_dealt(Ctx *c, Attempts *r, int attempt, int program)
{
    return is_dealt(r, program) ? new_text(c, r, attempt, program) : NULL;
}

/* Of what went along, or from before. */
static const Cubin *find_ready(Ctx *c, const Wanted *w, const char *text)
{
    const Along *a = w->along;
    for (int i = 0; a && a->cubin && i < a->n; i++)
        if (a->cubin[i].bytes && !strcmp(a->text[i], text))
            return &a->cubin[i];
    return w->ready ? w->ready(c, w->ud, text) : NULL;
}

static int spilled(const Cubin *b)
{
    return b->info.spill_stores + b->info.spill_loads;
}

/* Cycles that the program is predicted to take for a chunk, and bytes that it
 * spills. */
static double cycles_of(const Attempts *r, int program, const Cubin *b)
{
    const double each = 7;
    const CudaModule *m = r->m[b->taken];
    double all = each * spilled(b);
    for (int i = 0; i < m->nkernels; i++)
        all += is_of(r, i, program) ? m->kernel[i].alone : 0;
    return all;
}

/* Whether the program spills so much that another is to be tried. What walks
 * spill is mostly beside their chain: gated_oja's 752 bytes are dear (2.11 ms
 * of 96 heads forward, 1.54 without) and rebased's 1308 (1.06, .86), but not
 * retnet's 268 (.27, .47), nor lightning's 200 (.26, .41). Of kernels of all
 * chunks rwkv7's 132 are (1.70 ms, 1.57), comba's 368 (both ways 2.37, 2.21).
 */
static bool is_dear(const Attempts *r, int program, const Cubin *b)
{
    enum { CHUNKS = 64, WALKS = 400 };
    const CudaModule *m = r->m[b->taken];
    bool walks = false;
    for (int i = 0; i < m->nkernels; i++)
        walks |= is_of(r, i, program) && m->kernel[i].walk == CUDA_WALKED;
    return is_dealt(r, program)
        && spilled(b) >= (walks ? WALKS : CHUNKS);
}

static void take_cheaper(Wanted *w, int i, const Cubin *b, int attempt)
{
    Cubin own = *b, *before = &w->cubin[i];
    int program = w->program[i];
    own.taken = attempt;
    if (cycles_of(w->attempts, program, &own)
        < cycles_of(w->attempts, program, before))
        *before = own;
}

/* Programs that are dear, dealt otherwise; what does not compile so stays. */
static void deal_again(Ctx *c, Wanted *w, const Nvrtc *nvrtc, const char *arch,
                       int attempt)
{
    Attempts *r = w->attempts;
    const char **text = ctx_alloc(c, (size_t)w->n * sizeof *text);
    int *at = ctx_alloc(c, (size_t)w->n * sizeof *at), n = 0;
    Error why;
    for (int i = 0; i < w->n; i++) {
        const char *s = is_dear(r, w->program[i], &w->cubin[i])
                      ? new_text(c, r, attempt, w->program[i]) : NULL;
        const Cubin *there = s ? find_ready(c, w, s) : NULL;
        if (there) {
            take_cheaper(w, i, there, attempt);
        } else if (s) {
            text[n] = s;
            at[n++] = i;
        }
    }
    Cubin *b = n ? nvrtc_compile_if(c, nvrtc, &(Sources){ n, 1, text, n }, arch,
                                    &why) : NULL;
    for (int i = 0; i < n; i++)
        if (b[i].bytes)
            take_cheaper(w, at[i], &b[i], attempt);
}

/* As attempts_compile, of what is not there yet, by the first texts. */
static bool compile_new(Ctx *c, Wanted *w, const Nvrtc *nvrtc,
                        const char *arch, Error *why)
{
    int along = texts_along(w);
    bool ordered = false;
    for (int i = 0; i < w->n; i++)
        ordered |= may_wait(w->attempts, w->program[i]);
    for (int again = 0; again < 1 + ordered && !w->cubin; again++)
        w->cubin = nvrtc_compile_if(c, nvrtc, &(Sources){ w->n + along,
                                    CUDA_ATTEMPTS, texts(c, w, again), along },
                                    arch, why);
    if (along && w->cubin)
        w->along->cubin = w->cubin + w->n;
    return w->cubin;
}

/* Of programs without roles what spills has other texts to try. */
bool attempts_compile(Ctx *c, Wanted *w, const Nvrtc *nvrtc, const char *arch,
                      Error *why)
{
    Attempts *r = w->attempts;
    Cubin *all = ctx_alloc(c, (size_t)w->n * sizeof *all);
    int *program = ctx_alloc(c, (size_t)w->n * sizeof *program);
    int *at = ctx_alloc(c, (size_t)w->n * sizeof *at);
    Wanted rest = *w;
    rest.n = 0;
    rest.program = program;
    for (int i = 0; i < w->n; i++) {
        int own = w->program[i];
        const Cubin *b = find_ready(c, w, attempt_text(c, r, 0, own));
        if (b && (is_dealt(r, own) || !spilled(b))) {
            all[i] = *b;
            continue;
        }
        at[rest.n] = i;
        program[rest.n++] = own;
    }
    if (rest.n && !compile_new(c, &rest, nvrtc, arch, why))
        return false;
    for (int i = 0; i < rest.n; i++)
        all[at[i]] = rest.cubin[i];
    w->cubin = all;
    for (int t = 1; t < CUDA_ATTEMPTS; t++)
        deal_again(c, w, nvrtc, arch, t);
    return true;
}

CudaModule *attempts_join(const Attempts *r, const int *attempt)
{
    CudaModule *m = ctx_alloc(r->ctx, sizeof *m);
    size_t n = (size_t)r->m[0]->nkernels;
    *m = *r->m[0];
    m->kernel = ctx_alloc(r->ctx, n * sizeof *m->kernel);
    for (int i = 0; i < m->nkernels; i++) {
        CudaKernel *k = &m->kernel[i];
        *k = r->m[attempt[r->programs[0].of[i]]]->kernel[i];
        k->text = r->m[0]->kernel[i].text;      /* where m->source has it */
        k->end = r->m[0]->kernel[i].end;
    }
    return m;
}

CudaModule *attempts_compile_all(Ctx *c, Attempts *r, const Nvrtc *nvrtc,
                              const char *arch, Cubin **cubin)
{
    if (!attempt_text(c, r, 0, 0))
        ctx_raise(c, &r->why);
    int n = r->programs[0].n;
    int *program = ctx_alloc(c, (size_t)n * sizeof *program);
    for (int i = 0; i < n; i++)
        program[i] = i;
    Wanted w = { .attempts = r, .program = program, .n = n };
    if (!attempts_compile(c, &w, nvrtc, arch, &r->why))
        ctx_raise(c, &r->why);
    *cubin = w.cubin;
    for (int i = 0; i < n; i++)
        program[i] = (*cubin)[i].taken;
    return attempts_join(r, program);
}
