/* api.h -- what the files behind flin.h share: api.c has states, api_load.c
 * variants, api_call.c calls, api_kernel.c kernels.
 */
#ifndef FLIN_API_PARTS_H
#define FLIN_API_PARTS_H

#include "bind.h"
#include "flin.h"
#include "sandbox.h"

struct flin_State {
    lua_State *L;                       /* its own, or a thread of a host's */
    flin_Options o;
    Guard *guard;
    flin_Variant *variants;
    int thread;                         /* attached: keeps L alive */
    bool attached;
};

/* ref keeps the userdata alive; the texts of axes are those of flin_arg's
 * arguments. */
struct flin_Variant {
    flin_State *s;
    flin_Variant *next;
    Variant *v;
    int ref, nargs;
    int said;                           /* ref of its latest report */
    char axes[][TENSOR_RANK * 24];
};

/* ---- errors and hooks (api.c) ---- */

/* Both return the code. */
int set_error(flin_Error *e, int code, const char *message);
int take_error(flin_Error *e, const Error *from, const char *text);
/* False where p is NULL, with an error that names it: "the flin_State". */
bool not_null(const void *p, const char *what, flin_Error *e);
/* What flin says once: to the host of the flin_State `ud`. */
void host_say(void *ud, const char *line);
/* A context with the state's hooks; NULL when memory is out. */
Ctx *host_ctx(flin_State *s);
/* Calls f(L) with what lies on top of the stack, `nargs` values; false, with
 * the error taken, if it fails. L is the state's, or a thread of its Lua. */
bool api_protect(flin_State *s, lua_State *L, lua_CFunction f, int nargs,
                 int nresults, flin_Error *e);
/* A struct that begins with its size: what an older caller does not know is 0.
 * Nothing of NULL; false, and its size alone, where no version has had that. */
bool take_struct(void *to, size_t size, const void *from);

/* ---- calls (api_call.c) ---- */

/* A call of the host and what it is bound to. `sizes` looks at no data: an
 * argument is given if it has a rank. */
typedef struct HostCall {
    flin_Call call;
    flin_Grad grad;
    bool sizes, device;                 /* device: so are all tensors */
    bool joint;                         /* forward, by the plans of both
                                           passes */
    Args args;
    Bound bound;
    Given result[MAX_RESULTS], *final;  /* of calls that run forwards */
    Adjoint *adjoint;                   /* of calls that run backwards */
} HostCall;

/* Zeroed but for the structs, of which grad may be NULL. In c. */
HostCall *host_call(Ctx *c, Mode mode, const flin_Call *call,
                    const flin_Grad *grad);
/* Checks and binds arguments and results. */
void host_bind(Ctx *c, const Graph *step, HostCall *h);
void host_run(Ctx *c, Variant *v, HostCall *h);
/* Where the call has what the forward pass leaves for the backward one. */
Stored host_stored(Ctx *c, Variant *v, const HostCall *h);

bool runs_backwards(Mode m);

/* ---- where tensors lie (api_memory.c) ---- */

/* What one tensor takes at most, and how far apart its elements may lie. */
#define TENSOR_BYTES ((int64_t)1 << 48)

/* Completes the strides of a tensor whose shape and dtype are known: those of
 * the host, or row-major. Fails where no memory can hold it. */
void place_tensor(Ctx *c, const char *what, const char *name,
                  const flin_Tensor *t, Given *g);
/* Fails where results of a call that is bound overlap anything. */
void check_overlaps(Ctx *c, const Graph *g, const HostCall *h);

/* Bytes of a variant's handle. */
static inline size_t handle_size(int nargs)
{
    flin_Variant *v = NULL;

    return sizeof *v + (size_t)nargs * sizeof v->axes[0];
}

#endif
