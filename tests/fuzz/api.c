/* api.c -- flin.h with any arguments: calls of a host that errs. What fails
 * says so, and nothing is read or written but what the arguments say is there:
 * each buffer is as large as its tensor's shape and strides claim, to the byte,
 * where memory could hold that; where none could, the call must not look.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <lauxlib.h>
#include <lualib.h>

#include "counted.h"
#include "lang/flin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { VARIANTS = 8, KERNELS = 4, ARGS = 24, BLOCKS = 256, ROOM = 1 << 16,
       EACH = 16, RENEW = 500 };
#define TOO_FAR ((__int128)1 << 49)

/* The input and what follows from it, and what one call has been given, to be
 * freed behind it. */
typedef struct Case {
    const uint8_t *at, *end;
    uint64_t more;
    void *block[BLOCKS];
    int nblocks, spoilt;                /* which tensor is; -1: none */
    flin_Error e;
    flin_Bind in[ARGS], s0[ARGS], s1[ARGS], dx[ARGS], ds[ARGS], df[ARGS];
    flin_Call call;
    flin_Grad grad;
} Case;

/* What lives from one call to the next. */
typedef struct Host {
    flin_State *s, *attached;
    lua_State *L;
    flin_Variant *v[VARIANTS];
    flin_Kernel *k[KERNELS];
    flin_Saved saved;
    size_t room;                        /* of saved.data */
    int cases;
} Host;

static Host host;
static uint64_t calls, failures;

static const char script[] =
    "local flin = require 'flin'\n"
    "return flin.variant {\n"
    "  input = { k = 't k', v = 't v', g = '', c = 'k' },\n"
    "  state = { S = 'k v', n = '' },\n"
    "  step = function (x, s)\n"
    "    local S = x.g * s.S + flin.outer(x.k * x.c, x.v)\n"
    "    return { S = S, n = s.n + flin.sum(x.k) }, flin.dot(x.k, S)\n"
    "  end }\n";
static const char quadratic[] =
    "return require 'flin'.variant { name = 'near', mode = 'quadratic',\n"
    "  mask = function (i, j) return i < j and 0 or 1 / (1 + i - j) end }\n";

/* ---- choices ---- */

/* Of the input, and behind its end of a generator that has seen all of it. */
static unsigned byte(Case *c)
{
    unsigned x = c->at < c->end ? *c->at++ : 0;

    c->more = (c->more + x) * 6364136223846793005u + 1442695040888963407u;
    return c->at < c->end ? x : (unsigned)(c->more >> 56);
}

static int pick(Case *c, int n)
{
    return (int)(byte(c) % (unsigned)n);
}

static bool rarely(Case *c)
{
    return byte(c) % 16 == 15;
}

static int64_t odd_number(Case *c)
{
    static const int64_t some[] = {
        0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 63, 64, 65, 128, 255, 256, 257,
        1000, 65535, 65536, 65537, 1 << 20, 1 << 21, INT32_MAX, (int64_t)1
        << 31, (int64_t)1 << 32, (int64_t)1 << 40, (int64_t)1 << 44,
        (int64_t)1 << 46, (int64_t)1 << 48, (int64_t)1 << 61, (int64_t)1 << 62,
        INT64_MAX
    };
    int64_t x = some[pick(c, sizeof some / sizeof *some)];

    return byte(c) % 4 ? x : -x - (x == INT64_MAX);
}

static const char *odd_text(Case *c)
{
    static char lengthy[5000];
    static const char *const some[] = {
        NULL, "", "gla", "linear", "nope", "a/b", "x.lua", "/", "/dev/null",
        "return 3\n", "error {}\n", script, quadratic, "return ...\n",
        "return (...):map { q = function (q) return 2 * q end }\n",
        "\033Lua\n", "k", "q", "S", "t", "cpu", "cuda", "interpreter", lengthy
    };

    memset(lengthy, 'k', sizeof lengthy - 1);
    return some[pick(c, sizeof some / sizeof *some)];
}

/* ---- memory ---- */

/* Of this very size, aligned as malloc aligns or to 256. */
static char *make_block(Case *c, size_t n, bool aligned)
{
    char *p = aligned ? aligned_alloc(256, (n + 255) / 256 * 256) : malloc(n);

    if (c->nblocks == BLOCKS || !p)
        abort();
    memset(p, 0, n);
    c->block[c->nblocks++] = p;
    return p;
}

static void free_blocks(Case *c)
{
    while (c->nblocks)
        free(c->block[--c->nblocks]);
}

static int size_of(flin_DType d)
{
    return d == FLIN_F64 ? 8 : d == FLIN_F32 ? 4 : 2;
}

static bool is_packed(const flin_Tensor *t)
{
    for (int i = 0; i < t->rank; i++)
        if (t->stride[i])
            return false;
    return true;
}

/* Gives it the memory that it claims; none where that is more than is to be
 * had here, unless it is more than there can be. */
static void give(Case *c, flin_Tensor *t)
{
    __int128 low = 0, high = 0, step = 1, all = 1;
    int size = size_of(t->dtype);
    bool packed, empty = false, wrong = t->rank < 0 || t->rank > 8;

    packed = !wrong && is_packed(t);
    for (int i = wrong ? 0 : t->rank; i-- > 0;) {
        __int128 n = t->shape[i], far = (n - 1) * (packed ? step
                                                  : t->stride[i]);
        wrong = wrong || n < 0;
        empty = empty || n == 0;
        all = all > TOO_FAR ? all : all * (n ? n : 1);
        step = step > TOO_FAR ? step : step * n;
        low += n > 0 && far < 0 ? far : 0;
        high += n > 0 && far > 0 ? far : 0;
    }
    if (wrong || all > TOO_FAR || high - low > TOO_FAR)
        t->data = make_block(c, 1, false);
    else if (empty)
        t->data = byte(c) % 2 ? make_block(c, 1, false) : NULL;
    else if (high - low >= ROOM / size)
        t->data = NULL;
    else
        t->data = make_block(c, (size_t)(high - low + 1) * (size_t)size, false)
                - low * size;
    if (t->data && rarely(c) && rarely(c))
        t->data = byte(c) % 2 ? NULL : (char *)t->data + 1;
}

/* ---- tensors ---- */

typedef struct Sizes { int64_t B, T, H, N, axis[4]; } Sizes;

static Sizes some_sizes(Case *c)
{
    static const int64_t T[] = { 1, 5, 17, 0, 40, 1 };
    Sizes s = { .B = 1 + pick(c, 2), .T = T[pick(c, 6)], .H = 1 + pick(c, 2) };

    if (rarely(c))
        s.B = 0;
    for (int i = 0; i < 4; i++)
        s.axis[i] = rarely(c) && rarely(c) ? 1 + pick(c, 9) : 4;
    s.N = s.B;
    return s;
}

static int64_t axis_size(const flin_Variant *v, const Sizes *s,
                         const char *axis)
{
    int64_t fixed = flin_axis_size(v, axis);

    return fixed > 0 ? fixed : s->axis[axis[0] & 3];
}

/* The tensor as it would be right. */
static flin_Tensor right_tensor(const flin_Variant *v, const flin_Arg *a,
                                const Sizes *s)
{
    flin_Tensor t = { .dtype = FLIN_F32 };
    char axes[256], *rest = axes, *axis;
    bool timed = !strncmp(a->axes, "t", 1)
              && (a->axes[1] == ' ' || !a->axes[1]);

    snprintf(axes, sizeof axes, "%s", a->axes + (timed ? 1 : 0));
    if (timed) {
        t.shape[t.rank++] = s->B;
        t.shape[t.rank++] = s->T;
    } else if (a->role == FLIN_STATE) {
        t.shape[t.rank++] = s->N;
    }
    t.shape[t.rank++] = s->H;
    while ((axis = strtok_r(rest, " ", &rest)) != NULL && t.rank < 8)
        t.shape[t.rank++] = axis_size(v, s, axis);
    return t;
}

/* Strides that a host may have: gaps, an axis turned, one that repeats. */
static void set_strides(Case *c, flin_Tensor *t)
{
    int64_t step = 1;

    for (int i = t->rank; i-- > 0; step *= t->shape[i] ? t->shape[i] : 1)
        t->stride[i] = step;
    if (t->rank && byte(c) % 2)
        t->stride[pick(c, t->rank)] *= 1 - pick(c, 4);
    if (t->rank && byte(c) % 4 == 0) {
        int i = pick(c, t->rank), k = pick(c, t->rank);
        int64_t was = t->stride[i];
        t->stride[i] = t->stride[k] * t->shape[k];
        t->stride[k] = was;
    }
}

static void spoil(Case *c, flin_Tensor *t)
{
    int i = pick(c, t->rank > 0 && t->rank < 8 ? t->rank : 8);

    switch (pick(c, 6)) {
    case 0: t->dtype = (flin_DType)(pick(c, 12) - 6); break;
    case 1: t->rank = (int)odd_number(c); break;
    case 2: t->shape[i] = odd_number(c); break;
    case 3: t->stride[i] = odd_number(c); break;
    case 4: t->shape[i] = odd_number(c); t->stride[i] = odd_number(c); break;
    case 5: t->rank += 1 - pick(c, 3); break;
    }
}

static flin_Tensor any_tensor(Case *c, const flin_Variant *v,
                              const flin_Arg *a, const Sizes *s)
{
    flin_Tensor t = right_tensor(v, a, s);

    if (byte(c) % 4 == 0)
        t.dtype = (flin_DType)pick(c, 4);
    if (byte(c) % 4 == 0)
        set_strides(c, &t);
    if (c->spoilt-- == 0)
        spoil(c, &t);
    give(c, &t);
    return t;
}

/* ---- lists ---- */

static void add_bind(Case *c, flin_Bind *to, int *n, const char *name,
                     flin_Tensor t)
{
    bool odd = rarely(c) && rarely(c);

    if (*n < ARGS && !(rarely(c) && rarely(c)))
        to[(*n)++] = (flin_Bind){ odd ? odd_text(c) : name, t };
}

/* A copy of its very length; a count that does not fit it only where no variant
 * has so many. */
static const flin_Bind *give_list(Case *c, const flin_Bind *list, int *n)
{
    flin_Bind *copy = (flin_Bind *)make_block(c, (size_t)*n * sizeof *list,
                                              false);

    memcpy(copy, list, (size_t)*n * sizeof *list);
    if (rarely(c) && byte(c) % 4 == 0) {
        static const int odd[] = { -1, INT_MIN, INT_MAX, 0, 1000 };
        int i = pick(c, 6);
        *n = i < 5 ? odd[i] : *n;
        return i == 5 || byte(c) % 2 ? NULL : copy;
    }
    return *n ? copy : NULL;
}

static void give_sequences(Case *c, Sizes *s)
{
    int64_t n = 1 + pick(c, 3), at = 0;
    int64_t *ends = (int64_t *)make_block(c, (size_t)(n + 1) * 8, false);

    for (int64_t i = 1; i <= n; i++)
        ends[i] = at = i == n ? s->T : at + pick(c, 8);
    if (rarely(c))
        ends[pick(c, (int)n + 1)] = odd_number(c);
    c->call.cu_seqlens = ends;
    c->call.nseq = s->N = n;
    s->B = 1;
    if (!rarely(c))
        return;
    switch (pick(c, 4)) {
    case 0: c->call.nseq = -1 - pick(c, 3); break;
    case 1: c->call.nseq = INT64_MAX - pick(c, 3); break;
    case 2: c->call.cu_seqlens = NULL; break;
    case 3: c->call.cu_seqlens_device = ends; break;
    }
}

static void give_saved(Case *c)
{
    flin_Saved *s = &host.saved;

    if (!s->data || rarely(c)) {
        free(s->data);
        host.room = (size_t)(1 + pick(c, 64)) * 1024;
        *s = (flin_Saved){ .data = aligned_alloc(256, host.room) };
        memset(s->data, 0, host.room);
        s->bytes = host.room;
    }
    if (rarely(c))
        memset(s->data, (int)byte(c), host.room);
    if (rarely(c))
        s->place = byte(c) % 2 ? 0 : 77;
    if (rarely(c))
        s->call ^= byte(c);
    if (rarely(c))
        s->bytes = host.room / (size_t)(1 + pick(c, 4));
    c->call.saved = s;
}

static void give_workspace(Case *c)
{
    size_t n = (size_t)pick(c, 256) * 1024;

    c->call.workspace = make_block(c, n + 1, true);
    c->call.workspace_size = n;
    if (rarely(c))
        c->call.workspace = (char *)c->call.workspace + 8;
    if (rarely(c))
        c->call.workspace = NULL;
}

/* ---- calls ---- */

static void odd_fields(Case *c)
{
    flin_Call *k = &c->call;

    switch (pick(c, 5)) {
    case 0: k->size = (size_t)pick(c, (int)sizeof *k + 1); break;
    case 1: k->chunk = (int)odd_number(c); break;
    case 2: k->threads = -pick(c, 4) * 1000; break;
    case 3: k->backend = odd_text(c); break;
    case 4: c->grad.size = (size_t)pick(c, (int)sizeof c->grad + 1); break;
    }
}

static void fill_lists(Case *c, const flin_Variant *v, const Sizes *s)
{
    int nin = 0, n0 = 0, n1 = 0, ndx = 0, nds = 0, ndf = 0;
    flin_Arg a;

    for (int i = 0; i < flin_args(v) && flin_arg(v, i, &a); i++) {
        if (a.role == FLIN_INPUT) {
            add_bind(c, c->in, &nin, a.name, any_tensor(c, v, &a, s));
            if (byte(c) % 2)
                add_bind(c, c->dx, &ndx, a.name, any_tensor(c, v, &a, s));
        } else if (a.role == FLIN_OUTPUT) {
            c->call.y = any_tensor(c, v, &a, s);
            c->grad.dy = any_tensor(c, v, &a, s);
        } else {
            if (byte(c) % 2)
                add_bind(c, c->s0, &n0, a.name, any_tensor(c, v, &a, s));
            if (byte(c) % 2)
                add_bind(c, c->s1, &n1, a.name, n0 && byte(c) % 2
                         ? c->s0[n0 - 1].tensor : any_tensor(c, v, &a, s));
            if (byte(c) % 4 == 0)
                add_bind(c, c->ds, &nds, a.name, any_tensor(c, v, &a, s));
            if (byte(c) % 4 == 0)
                add_bind(c, c->df, &ndf, a.name, any_tensor(c, v, &a, s));
        }
    }
    c->call.input = give_list(c, c->in, &nin);
    c->call.initial = give_list(c, c->s0, &n0);
    c->call.final = give_list(c, c->s1, &n1);
    c->grad.dinput = give_list(c, c->dx, &ndx);
    c->grad.dinitial = give_list(c, c->ds, &nds);
    c->grad.dfinal = give_list(c, c->df, &ndf);
    c->call.ninputs = nin;
    c->call.ninitial = n0;
    c->call.nfinal = n1;
    c->grad.ndinput = ndx;
    c->grad.ndinitial = nds;
    c->grad.ndfinal = ndf;
}

static void any_call(Case *c, const flin_Variant *v)
{
    Sizes s = some_sizes(c);

    c->spoilt = byte(c) % 2 ? pick(c, 12) : -1;
    c->call = (flin_Call){ .size = sizeof c->call, .threads = 1 };
    c->grad = (flin_Grad){ .size = sizeof c->grad };
    if (byte(c) % 4 == 0)
        c->call.chunk = 16;
    if (byte(c) % 4 == 0)
        give_sequences(c, &s);
    fill_lists(c, v, &s);
    if (byte(c) % 4 == 0)
        give_saved(c);
    if (byte(c) % 8 == 0)
        give_workspace(c);
    if (byte(c) % 8 == 0)
        odd_fields(c);
    if (rarely(c) && c->call.y.data)    /* a result on an argument */
        c->call.y = c->in[0].tensor;
}

/* ---- what must hold ---- */

/* A function has failed, or not, and has said so. */
static void judge(bool ok, const flin_Error *e)
{
    calls++;
    failures += !ok;
    if (!e)
        return;
    if (ok != (e->code == FLIN_OK) || (!ok && !*e->message)
        || (!ok && e->code == FLIN_ERROR_INTERNAL)) {
        fprintf(stderr, "code %d: %s\n", e->code, e->message);
        abort();
    }
}

static flin_Error *errors(Case *c)
{
    memset(&c->e, 0x5a, sizeof c->e);
    return rarely(c) ? NULL : &c->e;
}

static void keep(flin_Variant **v, flin_Variant *made)
{
    if (!made)
        return;
    flin_release(*v);
    *v = made;
}

static void load_any(Case *c)
{
    flin_Error *e = errors(c);
    flin_State *s = rarely(c) ? NULL : host.s;
    flin_Variant **to = &host.v[pick(c, VARIANTS)], *made = NULL;

    switch (pick(c, 6)) {
    case 0: made = flin_load(s, odd_text(c), e); break;
    case 1: made = flin_load_string(s, odd_text(c), odd_text(c), e); break;
    case 2: made = flin_load_file(s, odd_text(c), e); break;
    case 3: made = flin_stdlib(s, byte(c) % 2 ? odd_text(c)
                               : flin_stdlib_name(s, pick(c, 40)), e); break;
    case 4: made = flin_derive(rarely(c) ? NULL : *to, odd_text(c),
                               odd_text(c), e); break;
    case 5: made = flin_to_variant(byte(c) % 4 ? host.attached : s, rarely(c)
                                   ? NULL : host.L, (int)odd_number(c), e);
            judge(made != NULL, e);
            flin_release(made);
            return;
    }
    judge(made != NULL, e);
    keep(to, made);
}

static void ask_any(Case *c, flin_Variant *v)
{
    flin_Arg a;

    calls += 6;
    flin_name(v);
    flin_note(v);
    flin_args(v);
    flin_arg(v, (int)odd_number(c), rarely(c) ? NULL : &a);
    flin_axis_size(v, odd_text(c));
    flin_stdlib_name(rarely(c) ? NULL : host.s, (int)odd_number(c));
}

static void open_any(Case *c)
{
    flin_Options o = { .size = sizeof o,
        .instructions = (uint64_t)pick(c, 256) * 40000,
        .memory = (size_t)pick(c, 256) << 14, .nodes = byte(c) * 4,
        .trusted = 0 };
    flin_Error *e = errors(c);
    flin_State *s = byte(c) % 4 ? flin_open(&o, e)
                  : flin_attach(byte(c) % 2 ? host.L : NULL, &o, e);

    judge(s != NULL, e);
    if (s) {
        e = errors(c);
        judge(flin_stdlib(s, "gla", e) != NULL, e);
    }
    flin_close(s);
}

static void call_any(Case *c, flin_Variant *v)
{
    const flin_Call *call = rarely(c) ? NULL : &c->call;
    const flin_Grad *grad = rarely(c) ? NULL : &c->grad;
    flin_Error *e = errors(c);
    flin_Tensor t;
    int code = 0;

    switch (pick(c, 9)) {
    case 0: case 1: code = flin_forward(v, call, e); break;
    case 2: code = flin_reference(v, call, e); break;
    case 3: code = flin_step(v, call, e); break;
    case 4: code = flin_backward(v, call, grad, e); break;
    case 5: code = flin_reference_backward(v, call, grad, e); break;
    case 6: code = flin_shape(v, call, pick(c, 12) - 1, rarely(c) ? NULL : &t,
                              e); break;
    case 7: code = flin_saved(v, call, e) < 0; judge(!code, e); return;
    case 8: code = flin_seconds(v, byte(c) % 2, call, e) < 0; judge(!code, e);
            return;
    }
    judge(code == FLIN_OK, e);
    if (e && e->code != code)
        abort();
}

static void run_any(Case *c, flin_Kernel *k)
{
    const flin_Call *call = rarely(c) ? NULL : &c->call;
    flin_Error *e = errors(c);

    flin_workspace(k, call);
    flin_kernel_saved(k, call);
    flin_kernel_note(k);
    flin_retain(k);
    judge(!flin_run(k, call, byte(c) % 2 ? &c->grad : NULL, e), e);
    flin_free(k);
    calls += 5;
}

static void prepare_any(Case *c, flin_Variant *v)
{
    flin_Kernel **to = &host.k[pick(c, KERNELS)];
    flin_Error *e = errors(c);
    flin_Kernel *k = flin_prepare(v, (flin_Mode)(rarely(c) ? odd_number(c)
                                                : pick(c, 5)),
                                  rarely(c) ? NULL : &c->call, e);

    judge(k != NULL, e);
    if (k) {
        flin_free(*to);
        *to = k;
    }
}

/* ---- a host ---- */

static void close_host(void)
{
    for (int i = 0; i < VARIANTS; i++)
        flin_release(host.v[i]);
    flin_close(host.s);
    flin_close(host.attached);
    for (int i = 0; i < KERNELS; i++)
        flin_free(host.k[i]);           /* they live on */
    if (host.L)
        lua_close(host.L);
    free(host.saved.data);
    memset(&host, 0, sizeof host);
}

static void open_host(void)
{
    static const char *const names[] = { "linear", "gla", "gated_deltanet",
                                         "mamba2", "mlstm", "deltaproduct" };

    host.s = flin_open(NULL, NULL);
    host.L = luaL_newstate();
    luaL_openlibs(host.L);
    host.attached = flin_attach(host.L, NULL, NULL);
    if (luaL_dostring(host.L, "return require 'flin'.stdlib.gla, 3, {}"))
        abort();
    for (int i = 0; i < 6; i++)
        host.v[i] = flin_stdlib(host.s, names[i], NULL);
    host.v[6] = flin_load_string(host.s, script, NULL, NULL);
    host.v[7] = flin_load_string(host.s, quadratic, NULL, NULL);
    for (int i = 0; i < VARIANTS; i++)
        if (!host.v[i])
            abort();
}

static void report(void)
{
    close_host();
    fprintf(stderr, "api: %llu calls, %llu failed as they should\n",
            (unsigned long long)calls, (unsigned long long)failures);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static Case c;
    static bool begun;

    if (!begun)
        atexit(report);
    begun = true;
    if (host.cases++ == RENEW)
        close_host();
    if (!host.s)
        open_host();
    c.at = data;
    c.end = data + n;
    c.more = 0;
    for (int i = 0; i < EACH; i++) {
        int what = pick(&c, 32);
        flin_Variant *v = host.v[pick(&c, VARIANTS)];
        any_call(&c, v);
        v = rarely(&c) ? NULL : v;
        if (what == 0)
            load_any(&c);
        else if (what < 3)
            ask_any(&c, v);
        else if (what == 3 && rarely(&c))
            open_any(&c);
        else if (what == 4)             /* it takes its time: plans anew */
            prepare_any(&c, v);
        else if (what < 12)
            run_any(&c, rarely(&c) ? NULL : host.k[pick(&c, KERNELS)]);
        else
            call_any(&c, v);
        free_blocks(&c);
    }
    stop_when_enough(calls, report);
    return 0;
}
