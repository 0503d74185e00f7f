/* lt.c -- cuBLASLt by dlopen: products, what it says of each kept by shape.
 *
 * Its matrices lie column by column: c = a b is computed as c^T = b^T a^T.
 */
#include "dense.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

/* The library's structs. */
typedef struct LtAlgo { uint64_t data[8]; } LtAlgo;
typedef struct LtChoice {
    LtAlgo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} LtChoice;

enum { BEST_PLACE = 256,                /* a multiple of, as addresses are */
       ANSWERS = 8 };                   /* that it is asked for */

enum Entry {
#define ENTRY(name, symbol, args) ENTRY_##name,
#include "lt.def"
#undef ENTRY
    NENTRIES
};

#define ENTRY(name, symbol, args) typedef int name##_fn args;
#include "lt.def"
#undef ENTRY

static const char *const entry_name[NENTRIES] = {
#define ENTRY(name, symbol, args) symbol,
#include "lt.def"
#undef ENTRY
};

/* ISO C has no cast from an object's to a function's address. */
#define CALL(lt, name, f) \
    name##_fn *f; memcpy(&f, &(lt)->fn[ENTRY_##name], sizeof f)

/* What a product is known by. */
typedef struct Shape {
    int64_t m, n, k, batch, ld[4], apart[4], room;
    int32_t type, result, transposed_a, transposed_b, add, plus, place[4];
} Shape;

/* Of c^T: its first factor is b^T. Layouts: of the factors, of c, and, where
 * that is another, of what they are added to. */
typedef struct Known {
    struct Known *next;
    Shape shape;
    void *desc, *layout[4];
    LtAlgo algo;
    int64_t room;                       /* that this takes */
    bool has;
} Known;

struct Lt {
    void *fn[NENTRIES];
    void *handle;
    Known *known;
    int units;
    char name[32];
};

static bool take(void *ud, void *lib, const char *path)
{
    Lt *lt = ud;
    (void)path;
    for (int i = 0; i < NENTRIES; i++)
        if (!(lt->fn[i] = dlsym(lib, entry_name[i])))
            return false;
    CALL(lt, CREATE, create);
    return create(&lt->handle) == 0;
}

Lt *lt_open(int units)
{
    static const char *const soname[] = { "libcublasLt.so.13",
                                          "libcublasLt.so.12", NULL };
    typedef size_t VersionFn(void);
    VersionFn *version;
    Lt *lt = calloc(1, sizeof *lt);
    if (!lt || !library_find(&(Library){ "libcublasLt", "cublas", soname },
                             take, lt)) {
        free(lt);
        return NULL;
    }
    lt->units = units;
    memcpy(&version, &lt->fn[ENTRY_VERSION], sizeof version);
    size_t v = version();
    snprintf(lt->name, sizeof lt->name, "cuBLASLt %d.%d",
             (int)(v / 10000),
             (int)(v / 100 % 100));
    return lt;
}

static void known_free(Lt *lt, Known *k)
{
    CALL(lt, DESC_END, end_desc);
    CALL(lt, LAYOUT_END, end_layout);
    if (k->desc)
        end_desc(k->desc);
    for (int i = 0; i < 4; i++)
        if (k->layout[i])
            end_layout(k->layout[i]);
    free(k);
}

void lt_close(Lt *lt)
{
    if (!lt)
        return;
    for (Known *k = lt->known, *next; k; k = next) {
        next = k->next;
        known_free(lt, k);
    }
    CALL(lt, DESTROY, destroy);
    destroy(lt->handle);
    free(lt);
}

const char *lt_name(const Lt *lt)
{
    return lt->name;
}

/* ---- what is known of a shape ---- */

/* The multiple of two that an address is. */
static int32_t place_of(DevicePtr p)
{
    int32_t n = 1;
    while (n < BEST_PLACE && p % (2 * (DevicePtr)n) == 0)
        n *= 2;
    return n;
}

/* A row or a column alone may lie anyhow. */
static Shape shape_of(const DenseProduct *p)
{
    Shape s;
    memset(&s, 0, sizeof s);
    s.m = p->m;
    s.n = p->n;
    s.k = p->k;
    s.batch = p->batch;
    s.transposed_b = !(p->bcs == 1 || p->n == 1);
    s.transposed_a = !(p->acs == 1 || p->k == 1);
    s.ld[0] = s.transposed_b ? p->bcs : p->brs;
    s.ld[1] = s.transposed_a ? p->acs : p->ars;
    s.ld[2] = p->crs;
    s.ld[3] = p->plus ? p->prs : 0;
    const int64_t least[] = { s.transposed_b ? p->k : p->n,
                              s.transposed_a ? p->m : p->k, p->n, p->n },
                  rows[] = { s.transposed_b ? p->n : p->k,
                             s.transposed_a ? p->k : p->m, p->m, p->m };
    for (int i = 0; i < 3 + (p->plus != 0); i++)
        s.ld[i] = rows[i] == 1 && s.ld[i] < least[i] ? least[i] : s.ld[i];
    s.apart[0] = p->batch > 1 ? p->bbs : 0;
    s.apart[1] = p->batch > 1 ? p->abs : 0;
    s.apart[2] = p->batch > 1 ? p->cbs : 0;
    s.apart[3] = p->plus && p->batch > 1 ? p->pbs : 0;
    s.type = (int32_t)p->type;
    s.result = (int32_t)p->result;
    s.add = p->add;
    s.plus = p->plus != 0;
    s.room = DENSE_WORKSPACE;
    s.place[0] = place_of(p->b);
    s.place[1] = place_of(p->a);
    s.place[2] = place_of(p->c);
    s.place[3] = place_of(p->plus);
    return s;
}

/* What the strides say must be what the library can be told: rows none of which
 * begins before another ends, as all do of a tensor that is the same for each
 * token. */
static bool is_plain(const DenseProduct *p, const Shape *s)
{
    return (p->bcs == 1 || p->brs == 1 || p->n == 1)
        && (p->acs == 1 || p->ars == 1 || p->k == 1)
        && s->ld[0] >= (s->transposed_b ? p->k : p->n)
        && s->ld[1] >= (s->transposed_a ? p->m : p->k)
        && s->ld[2] >= p->n && (!p->plus || s->ld[3] >= p->n);
}

static int type_of(DType d)
{
    enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
    return d == F32 ? R_32F : d == F16 ? R_16F : R_16BF;
}

static bool make_layout(Lt *lt, Known *k, int i, DType d, int64_t rows,
                        int64_t cols)
{
    enum { BATCH = 5, APART = 6 };
    const Shape *s = &k->shape;
    int32_t batch = (int32_t)s->batch;
    CALL(lt, LAYOUT, create);
    CALL(lt, LAYOUT_SET, set);
    return create(&k->layout[i], type_of(d), (uint64_t)rows, (uint64_t)cols,
                  s->ld[i]) == 0
        && set(k->layout[i], BATCH, &batch, sizeof batch) == 0
        && set(k->layout[i], APART, &s->apart[i], sizeof s->apart[i]) == 0;
}

static bool make_desc(Lt *lt, Known *k)
{
    enum { COMPUTE_32F = 68, TRANSPOSE_A = 3, TRANSPOSE_B = 4 };
    CALL(lt, DESC, create);
    CALL(lt, DESC_SET, set);
    return create(&k->desc, COMPUTE_32F, 0) == 0
        && set(k->desc, TRANSPOSE_A, &k->shape.transposed_b,
               sizeof(int32_t)) == 0
        && set(k->desc, TRANSPOSE_B, &k->shape.transposed_a,
               sizeof(int32_t)) == 0;
}

/* Its answers, the fastest first as it sees them: how many. */
static int ask_for(Lt *lt, const Known *k, uint64_t room,
                   LtChoice found[ANSWERS])
{
    enum { WORKSPACE = 1, PLACE_A = 5 };
    const int added = k->shape.plus ? 3 : 2, of[] = { 0, 1, added, 2 };
    void *wish = NULL;
    int n = 0;
    CALL(lt, WISH, create);
    CALL(lt, WISH_SET, set);
    CALL(lt, WISH_END, end);
    CALL(lt, CHOOSE, ask);
    memset(found, 0, ANSWERS * sizeof *found);
    if (create(&wish) != 0)
        return 0;
    bool ok = set(wish, WORKSPACE, &room, sizeof room) == 0;
    for (int i = 0; i < 4; i++)
        ok = ok && set(wish, PLACE_A + i, &k->shape.place[of[i]],
                       sizeof(uint32_t)) == 0;
    ok = ok && ask(lt->handle, k->desc, k->layout[0], k->layout[1],
                   k->layout[added], k->layout[2], wish, ANSWERS, found, &n)
            == 0;
    end(wish);
    return ok && n > 0 && found[0].state == 0 ? n : 0;
}

/* Warps that share a large tile multiply nothing while they write it; of two
 * smaller ones one is written while the other is multiplied. Where sums are
 * short, and a multiprocessor has more than one large tile, that is worth more
 * than what large ones save of reading: 4 to 15 % of products of 1024 on an
 * H200, nothing of those of 2048. */
static int pick(const Lt *lt, const Shape *s, const LtChoice *found, int n)
{
    enum { SHORT = 1024, LEAST = 112 * 128, MOST = 176 * 128 };
    const double several = 1.9;
    double all = lt->units
               ? (double)s->m * (double)s->n * (double)s->batch / lt->units : 0;
    if (dtype_size((DType)s->type) != 2 || s->k > SHORT
        || found->waves < several || all <= MOST * found->waves)
        return 0;
    for (int i = 1; i < n; i++) {
        double tile = found[i].waves > 0 ? all / found[i].waves : 0;
        if (found[i].state == 0 && !found[i].workspace && tile >= LEAST
            && tile <= MOST)
            return i;
    }
    return 0;
}

/* What deals out tiles by a counter has it cleared by a kernel before, behind
 * which nothing runs for longer than that saves. */
static bool choose(Lt *lt, Known *k)
{
    enum { COUNTER = 64 };
    LtChoice found[ANSWERS], without[ANSWERS];
    int n = ask_for(lt, k, (uint64_t)k->shape.room, found), none = 0;
    if (n && found->workspace && found->workspace <= COUNTER)
        none = ask_for(lt, k, 0, without);
    const LtChoice *of = none ? without : found;
    if (!n)
        return false;
    of += pick(lt, &k->shape, of, none ? none : n);
    k->algo = of->algo;
    k->room = (int64_t)of->workspace;
    return true;
}

static Known *find(Lt *lt, const DenseProduct *p, Shape s)
{
    Known *k;
    for (k = lt->known; k; k = k->next)
        if (!memcmp(&k->shape, &s, sizeof s))
            return k;
    k = calloc(1, sizeof *k);
    if (!k)
        return NULL;
    k->shape = s;
    bool b = s.transposed_b, a = s.transposed_a;
    k->has = is_plain(p, &s) && p->batch <= INT32_MAX && make_desc(lt, k)
        && make_layout(lt, k, 0, p->type, b ? p->k : p->n, b ? p->n : p->k)
        && make_layout(lt, k, 1, p->type, a ? p->m : p->k, a ? p->k : p->m)
        && make_layout(lt, k, 2, p->result, p->n, p->m)
        && (!p->plus || make_layout(lt, k, 3, p->result, p->n, p->m))
        && choose(lt, k);
    k->next = lt->known;
    return lt->known = k;
}

bool lt_has(Lt *lt, const DenseProduct *p)
{
    const Known *k = find(lt, p, shape_of(p));
    return k && k->has;
}

int64_t lt_room(Lt *lt, const DenseProduct *p)
{
    Shape s = shape_of(p);
    const Known *k;
    for (int i = 0; i < 4; i++)
        s.place[i] = BEST_PLACE;
    k = find(lt, p, s);
    return k && k->has ? k->room : 0;
}

bool lt_product(Lt *lt, void *stream, const DenseProduct *p,
                DevicePtr workspace, int64_t bytes)
{
    Shape s = shape_of(p);
    const Known *k = find(lt, p, s);
    s.room = bytes;
    if (k && k->room > bytes)
        k = find(lt, p, s);
    const float one = 1, beta = p->add || p->plus;
    void *c = (void *)(uintptr_t)p->c;
    void *plus = p->plus ? (void *)(uintptr_t)p->plus : c;
    CALL(lt, MULTIPLY, multiply);
    return k && k->has
        && multiply(lt->handle, k->desc, &one, (void *)(uintptr_t)p->b,
                    k->layout[0], (void *)(uintptr_t)p->a, k->layout[1],
                    &beta, plus, k->layout[p->plus ? 3 : 2], c, k->layout[2],
                    &k->algo,
                    (void *)(uintptr_t)workspace, (size_t)bytes, stream) == 0;
}
