/* domain.c -- domains.def as functions, and the first entry that breaks one. */
#include "domain.h"

#include <math.h>
#include <string.h>

#define DOMAIN(name, from, value, of, breaks, wanted, unit, help) \
    static double draw_##name(double x) { return value; } \
    static bool broken_##name(double x) { return breaks; } \
    static int32_t scan_##name(const float *p, int64_t step, int32_t n) \
    { \
        for (int32_t i = 0; i < n; i++) { \
            double x = p[i * step]; \
            if (breaks) \
                return i; \
        } \
        return -1; \
    }
#include "domains.def"
#undef DOMAIN

enum { NORMAL, UNIFORM, ENTRY = 0, ROW };
#define DOMAIN(name, from, value, of, breaks, wanted, unit, help) \
    { #name, from == UNIFORM, draw_##name, of == ROW, broken_##name, \
      scan_##name, #breaks, wanted, unit, help },
const Domain domains[DOMAINS] = {
#include "domains.def"
};

const Domain *domain_named(const char *name)
{
    for (int i = 0; i < DOMAINS; i++)
        if (!*name || !strcmp(domains[i].name, name))
            return &domains[i];
    return NULL;
}

bool domain_within(const Domain *d, double least, double most)
{
    return d && !d->row
        && (isinf(least) || d->broken(nextafter(least, -INFINITY)))
        && (isinf(most) || d->broken(nextafter(most, INFINITY)));
}

/* ---- tensors ---- */

int64_t probe_entries(const Probe *p)
{
    int64_t n = 1;

    for (int d = 0; d < p->rank; d++)
        n *= p->n[d];
    return n;
}

int64_t probe_rows(const Probe *p)
{
    return p->tokens * p->batch * p->v.heads;
}

Spot probe_spot(const Probe *p, uint64_t first)
{
    int64_t each = p->domain->row ? 1 : probe_entries(p);
    int64_t row = (int64_t)first / each, at = (int64_t)first % each;
    Spot s = { .head = row % p->v.heads };

    row /= p->v.heads;
    s.batch = row % p->batch;
    s.token = row / p->batch;
    s.at = s.token * p->v.st + s.batch * p->v.sb + s.head * p->v.sh;
    for (int d = p->rank - 1; d >= 0 && !p->domain->row; d--) {
        s.entry[d] = (int32_t)(at % p->n[d]);
        s.at += s.entry[d] * p->v.sd[d];
        at /= p->n[d];
    }
    return s;
}

static double squares(const Probe *p, int d, int64_t at)
{
    const float *x32 = p->v.dtype == F32 ? p->v.data : NULL;
    double sum = 0;

    if (d == p->rank) {
        double x = view_get(&p->v, at);
        return x * x;
    }
    for (int32_t i = 0; x32 && d == p->rank - 1 && i < p->n[d]; i++) {
        double x = x32[at + i * p->v.sd[d]];
        sum += x * x;
    }
    for (int32_t i = 0; !(x32 && d == p->rank - 1) && i < p->n[d]; i++)
        sum += squares(p, d + 1, at + i * p->v.sd[d]);
    return sum;
}

/* The first entry of those from dimension d on; -1: none. */
static int64_t first_broken(const Probe *p, int d, int64_t at)
{
    if (d == p->rank) {
        double x = view_get(&p->v, at);
        return p->domain->broken(x) || (p->limit && x >= p->limit) ? 0 : -1;
    }
    if (d == p->rank - 1 && p->v.dtype == F32)  /* as below, but quick */
        return p->domain->scan((const float *)p->v.data + at, p->v.sd[d],
                               p->n[d]);
    for (int32_t i = 0; i < p->n[d]; i++) {
        int64_t n = 1, found = first_broken(p, d + 1, at + i * p->v.sd[d]);
        for (int e = d + 1; e < p->rank; e++)
            n *= p->n[e];
        if (found >= 0)
            return i * n + found;
    }
    return -1;
}

void probe_host(Ctx *c, Probe *p)
{
    enum { BETWEEN_POLLS = 1024 };
    int64_t each = p->domain->row ? 1 : probe_entries(p);

    p->first = NONE;
    for (int64_t r = 0; r < probe_rows(p); r++) {
        int64_t at = probe_spot(p, (uint64_t)(r * each)).at, found = -1;
        if (r % BETWEEN_POLLS == 0)
            ctx_poll(c);
        if (p->domain->row)
            found = p->domain->broken(squares(p, 0, at)) ? 0 : -1;
        else
            found = first_broken(p, 0, at);
        if (found < 0)
            continue;
        p->first = (uint64_t)(r * each + found);
        return;
    }
}
