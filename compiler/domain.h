/* domain.h -- the domains that inputs declare, and whether tensors keep to
 * them.
 */
#ifndef FLIN_DOMAIN_H
#define FLIN_DOMAIN_H

#include "call.h"

typedef struct Domain {
    const char *name;
    bool uniform;                       /* drawn from [0, 1), else normal */
    double (*draw)(double x);           /* a value of it, of such a number */
    bool row;                           /* of the sum of squares of a row */
    bool (*broken)(double x);
    int32_t (*scan)(const float *p, int64_t step, int32_t n);  /* the first of
                                           these that is; -1: none */
    const char *text;                   /* `broken` as C text of x */
    const char *wanted, *unit, *help;   /* "" if there is none */
} Domain;

enum { DOMAINS = 7 };
extern const Domain domains[DOMAINS];
/* "" is the first; NULL: there is none of that name. */
const Domain *domain_named(const char *name);
/* Whether d (NULL: none) is a range of numbers from `least` to `most`, or of
 * some of these. */
bool domain_within(const Domain *d, double least, double most);

/* A tensor to be looked at: entries behind token, batch entry and head. What
 * has no tokens has one, what has no batch entries one. */
typedef struct Probe {
    const char *name;
    const Domain *domain;
    View v;
    int64_t tokens, batch;
    int rank;
    int32_t n[8];
    uint8_t order[8];                   /* their axes */
    int32_t limit;                      /* of an index: it is below; 0: any */
    uint64_t first;                     /* result: the first entry (or row)
                                           that breaks it; or NONE */
} Probe;
#define NONE UINT64_MAX

/* Where that is: `first` counts entries (rows: of one) within heads within
 * batch entries within tokens. */
typedef struct Spot {
    int64_t token, batch, head, at;     /* at: in elements of the view */
    int32_t entry[8];
} Spot;
Spot probe_spot(const Probe *p, uint64_t first);
/* Entries of a row, rows of a tensor. */
int64_t probe_entries(const Probe *p);
int64_t probe_rows(const Probe *p);

/* Sets `first`, of a tensor in the host's memory. */
void probe_host(Ctx *c, Probe *p);

#endif
