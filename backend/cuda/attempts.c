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

/* What has a schedule was found its registers there: the same in every attempt,
 * but that products which were kept under way are waited for in the second. */
static bool has_attempt(const CudaModule *m, int attempt)
{
    bool any = false;
    for (int i = 0; i < m->nkernels; i++) {
        const CudaKernel *k = &m->kernel[i];
        bool scheduled = k->walk == CUDA_SCHEDULED || k->walk == CUDA_WALKED;
        any |= scheduled ? attempt == 1 && k->schedule && k->schedule->ordered
             : k->walk != CUDA_SUM;
    }
    return any;
}

const char *attempt_text(Ctx *c, Attempts *r, int attempt, int program)
{
    Printing p = { r, attempt };
    if (attempt && !has_attempt(r->m[0], attempt))
        return NULL;
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

bool attempts_compile(Ctx *c, Wanted *w, const Nvrtc *nvrtc, const char *arch,
                      Error *why)
{
    const char **text = ctx_alloc(c, (size_t)(w->n * CUDA_ATTEMPTS)
                                     * sizeof *text);
    for (int attempt = 0; attempt < CUDA_ATTEMPTS; attempt++)
        for (int i = 0; i < w->n; i++)
            text[attempt * w->n + i] = new_text(c, w->attempts, attempt,
                                                w->program[i]);
    w->cubin = nvrtc_compile_if(c, nvrtc, &(Sources){ w->n, CUDA_ATTEMPTS,
                                text }, arch, why);
    return w->cubin;
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
    Wanted w = { r, program, n, NULL };
    if (!attempts_compile(c, &w, nvrtc, arch, &r->why))
        ctx_raise(c, &r->why);
    *cubin = w.cubin;
    for (int i = 0; i < n; i++)
        program[i] = (*cubin)[i].taken;
    return attempts_join(r, program);
}
