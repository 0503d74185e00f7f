/* build.h -- a plan's kernels for one set of types, compiled and checked. */
#ifndef FLIN_CUDA_BUILD_H
#define FLIN_CUDA_BUILD_H

#include "gpu.h"

/* A source's programs as the driver has them. */
typedef struct Modules {
    Gpu *gpu;
    int n;
    Module **module;                    /* NULL: not loaded */
} Modules;

/* The kernels of a plan. m is NULL where there are none for such options, or
 * they are wrong: then that says in which way. */
typedef struct Build {
    struct Build *next;
    CudaOptions o;
    Ctx *ctx;
    CudaModule *m;
    Modules modules;
    Function **f;
    const char *text;                   /* the digest of its programs' */
    const char *wrong;                  /* "gets y wrong (by 0.5)", or NULL */
    bool uncompiled;                    /* the compiler did not take it */
} Build;

/* What kernels would take: known before they are compiled. m.kernel is NULL
 * where there are none; there is no text. */
typedef struct Priced {
    struct Priced *next;
    CudaOptions o;
    Ctx *ctx;
    CudaModule m;
} Priced;

/* All that a plan has become so far. One thread at a time may add. */
typedef struct Builds {
    Gpu *gpu;
    const Plan *plan;
    Build *first;
    Priced *priced;
    bool said;                          /* that others stand in for some */
    bool said_refused;                  /* that some did not compile */
} Builds;

/* The kernels for the call, compiled if they are new. Where all that there are
 * have been found wrong the first has no m, and build_fault says in which way;
 * the second fails then (ERR_INTERNAL). */
const Build *build_for_if(Ctx *c, Builds *all, const Call *call);
const Build *build_for(Ctx *c, Builds *all, const Call *call);
const char *build_fault(Ctx *c, const Builds *all, const Build *b);

/* Kernels of walks alone, for what their states end as, beside the build's
 * own. NULL: there are none from schedules. */
const Build *build_ends(Ctx *c, Builds *all, const Build *b);
/* Whether a call of these types may have such. */
bool build_may_have_ends(Ctx *c, const Builds *all, const Call *call);

/* The modules whose kernels a call would launch, as they are priced before they
 * are compiled: `ends`, of walks alone, may be NULL. False: there is no price.
 */
typedef struct Modelled { const CudaModule *own, *ends; } Modelled;
bool build_modelled(Ctx *c, Builds *all, const Call *call, Modelled *to);

/* Compiles all that calls of these types may need, whatever their shapes. */
void build_all(Ctx *c, Builds *all, const Call *call);

void builds_free(Builds *all);

/* ---- compile.c ---- */

/* Prints the plan as b->o says, and gives b its kernels: from the cache, or
 * compiled, loaded, judged by `check`, which sets what is wrong, and only then
 * published. The judgement on all of them together is kept, too: kernels
 * from the cache that have not been judged so are, and what was found wrong is
 * not compiled again (b->wrong). A program that spills registers is printed
 * again, with other room, a few times; what spills least is taken. False, and
 * *why: it is not printed (ERR_USER, ERR_LIMIT), or NVRTC, ptxas or the driver
 * do not take it (ERR_DEVICE), which `check` answers, too. */
typedef bool CheckFn(Ctx *c, void *ud, const char **wrong, Error *why);
typedef struct Compile {
    Build *b;
    const Plan *plan;
    CheckFn *check;
    void *ud;
    const Build *own;                   /* of walks for ends: what goes before
                                           them; or NULL */
} Compile;
bool build_compile(Ctx *c, Gpu *g, const Compile *wish, Error *why);

void modules_unload(Modules *m, const Driver *d);

/* A source of kernels that need no check, as one module. */
Module *build_module(Ctx *c, Gpu *g, const char *source);
/* NULL, and *why, where it does not compile as it should. */
Module *build_module_if(Ctx *c, Gpu *g, const char *source, Error *why);
/* A source that one of these will be asked for: it is compiled beside the next
 * build's, or beside all that were wished for since, where one of them is asked
 * for before or build_wished says so. */
void build_wish(Ctx *c, Gpu *g, const char *source);
void build_wished(Ctx *c, Gpu *g);

/* verify.c: runs the kernels on a small call, then those of `ends`, if that is
 * not NULL, for what they make anew, and holds the results against the
 * interpreter. Sets what is wrong, or NULL; false, and *why: they do not run.
 */
bool build_verify(Ctx *c, Gpu *g, const Build *b, const Build *ends,
                  const Plan *p, const char **wrong, Error *why);

#endif
