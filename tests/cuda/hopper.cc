/* hopper.cc -- what hopper.h declares. Copies and products are done when they
 * are asked for, so waits for them are none; threads take turns at barriers
 * and where a warp acts together. Two blocks run at a time: they may be a
 * cluster. Copies and products are under way until they are waited for, as far
 * as races.h is concerned.
 */
#include "host.cc"
#define ELEMENT_F16                     /* whose low() and high() are here */
#include "hopper.h"
#undef __syncthreads
#undef __syncwarp
#include "races.h"

/* ---- turns ---- */

/* A thread goes on when the count is no longer what it was. */
struct Wait { const volatile unsigned *count; unsigned was; };
static Wait waits[MOST_THREADS];
static char *arenas[2];                 /* shared memory of each block */
static int block_threads;

static void wait_while(const volatile unsigned *count, unsigned was)
{
    waits[first_fiber + threadIdx.x] = Wait { count, was };
    pause_as(READY);
}

static bool can_go(int i)
{
    const Wait w = waits[i];
    return fiber[i].state != DONE && (!w.count || *w.count != w.was);
}

static void turn_to(int block)
{
    blockIdx.x += block - here;
    here = block;
    first_fiber = block * block_threads;
    shared_memory = arenas[block];
}

static void run_roles(int blocks)
{
    int all = blocks * block_threads, left = all;
    all_know();
    for (int i = 0; i < all; i++) {
        fiber[i].state = READY;
        waits[i].count = NULL;
    }
    while (left) {
        bool any = false;
        for (int i = 0; i < all; i++)
            if (can_go(i)) {
                any = true;
                turn_to(i / block_threads);
                resume(i % block_threads);
                left -= fiber[i].state == DONE;
            }
        if (!any) {
            fault("no thread can go on");
            exit(1);
        }
    }
    turn_to(0);
}

/* ---- threads that meet ---- */

/* What each of them brings; two sets, as some read while others go on: whoever
 * is here for the next but one time has read this one. */
typedef unsigned Brought[8];
struct Meeting {
    volatile unsigned times;
    int here;
    Brought x[2][128];
    Handed order;
};
static Meeting of_warp[2][32], of_group[2][8], of_joint[2], of_ahead[2],
    of_roles[2], of_block[2], of_pair;

/* The set, when `all` of them are here; who comes last does `then` for all. */
static Brought *meet(Meeting *m, int all, int me, const unsigned *x, int n,
                     void (*then)(const Brought *) = NULL)
{
    unsigned now = m->times;
    if (n)
        memcpy(m->x[now & 1][me & 127], x, (size_t)n * sizeof *x);
    if (all > 32)
        tell(&m->order);
    if (++m->here == all) {
        if (then)
            then(m->x[now & 1]);
        m->here = 0;
        m->times++;
        hand_on(&m->order);
    }
    while (m->times == now)
        wait_while(&m->times, now);
    if (all > 32)
        take(&m->order);
    return m->x[now & 1];
}
static Brought *warp_meets(const unsigned *x, int n,
                           void (*then)(const Brought *) = NULL)
{
    return meet(&of_warp[here][threadIdx.x / 32], 32, threadIdx.x % 32, x, n,
                then);
}
void warpgroup_sync()
{
    meet(&of_group[here][threadIdx.x / 128], 128, threadIdx.x % 128, NULL, 0);
}
void joint_sync()
{
    meet(&of_joint[here], 256, 0, NULL, 0);
}
void meet_matrix(int n, bool ahead)
{
    if (n > 1)
        meet(ahead ? &of_ahead[here] : &of_joint[here], 128 * n, 0, NULL, 0);
    else
        warpgroup_sync();
}
void meet_warpgroups(int n)
{
    meet(&of_roles[here], 128 * n, 0, NULL, 0);
}
void block_sync()
{
    meet(&of_block[here], block_threads, 0, NULL, 0);
}
void warp_sync() { warp_meets(NULL, 0); }
float of_lane(float x, int lane)
{
    const unsigned u = bits_of(x);
    return bits(warp_meets(&u, 1)[lane][0]);
}
bool any_lane(bool x)
{
    const unsigned u = x;
    unsigned any = 0;
    const auto all = warp_meets(&u, 1);
    for (int l = 0; l < 32; l++)
        any |= all[l][0];
    return any;
}

/* ---- barriers: an address each ---- */

struct Arrivals { volatile unsigned phase; int all, left, bytes, order; };
static Arrivals arrivals[2][ARENA / 8];
static Handed orders[MOST_BARRIERS];
static Arrivals *begun_barriers[MOST_BARRIERS];
static int norders;

/* A kernel's barriers are none of the next one's. */
static void end_barriers()
{
    while (norders)
        *begun_barriers[--norders] = Arrivals {};
}

static void check_phase(Arrivals *b)
{
    if (b->left || b->bytes)
        return;
    b->left = b->all;
    b->phase++;
    hand_on(&orders[b->order]);
}
void barrier_init(unsigned b, int all)
{
    Arrivals *a = &arrivals[here][b / 8];
    if (norders == MOST_BARRIERS) {
        fault("too many barriers");
        return;
    }
    *a = Arrivals { 0, all, all, 0, norders };
    begun_barriers[norders++] = a;
}
static void arrive_in(int block, unsigned b, unsigned bytes)
{
    Arrivals *a = &arrivals[block][b / 8];
    tell(&orders[a->order]);
    a->bytes += (int)bytes;
    if (--a->left < 0)
        fault("too many arrive at a barrier");
    check_phase(a);
}
void arrive_expecting(unsigned b, unsigned bytes)
{
    arrive_in(here, b, bytes);
}
void arrive(unsigned b) { arrive_in(here, b, 0); }
/* The copy engine has brought this to a block. */
static void arrived_in(int block, unsigned b, int bytes, unsigned to)
{
    Arrivals *a = &arrivals[block][b / 8];
    unsigned *known = &orders[a->order].gathered.at[ENGINE];
    writes_as(block, ENGINE, begun[ENGINE], to, (unsigned)bytes);
    *known = max(*known, begun[ENGINE]++);
    a->bytes -= bytes;
    check_phase(a);
}
static void sums_end(unsigned b);
void wait(unsigned b, unsigned parity)
{
    Arrivals *a = &arrivals[here][b / 8];
    while ((a->phase & 1) == (parity & 1))
        wait_while(&a->phase, a->phase);
    take(&orders[a->order]);
    sums_end(b);
}

void arrive_in_other(unsigned b) { arrive_in(1 - here, b, 0); }

/* ---- pairs of blocks ---- */

void pair_sync()
{
    meet(&of_pair, 2 * block_threads, 0, NULL, 0);
}
void give(unsigned a, unsigned to, int bytes, unsigned barrier)
{
    reads_as(ENGINE, begun[ENGINE], a, (unsigned)bytes);
    memcpy(arenas[1 - here] + to, arenas[here] + a, (size_t)bytes);
    arrived_in(1 - here, barrier, bytes, to);
}
/* ---- memory ---- */

template<class T> T *shared_to(unsigned a, size_t bytes)
{
    if (a % bytes || a + bytes > ARENA)
        fault("shared memory: not aligned, or behind its end");
    return (T *)(shared_memory + a);
}
static void reads(unsigned a, unsigned bytes)
{
    reads_as(my_warp(), clocks[my_warp()].at[my_warp()], a, bytes);
}
static void writes(unsigned a, unsigned bytes)
{
    writes_as(here, my_warp(), clocks[my_warp()].at[my_warp()], a, bytes);
}
template<class T> T load(unsigned a)
{
    reads(a, sizeof(T));
    return *shared_to<T>(a, sizeof(T));
}
template<class T> void store(unsigned a, T x)
{
    writes(a, sizeof x);
    *shared_to<T>(a, sizeof x) = x;
}
float load1(unsigned a) { return load<float>(a); }
float2 load2(unsigned a) { return load<float2>(a); }
float4 load4(unsigned a) { return load<float4>(a); }
uint4 load16(unsigned a) { return load<uint4>(a); }
void store1(unsigned a, float x) { store(a, x); }
void store2(unsigned a, float x, float y)
{
    store(a, float2 { x, y });
}
void clear16(unsigned a) { store(a, uint4 { 0, 0, 0, 0 }); }
/* In the workspace. */
static unsigned left_at(const void *p)
{
    return 4 * (LEFT + (unsigned)((uintptr_t)p / 4 % LEFT_WORDS));
}
void leave16(uint4 *to, uint4 x)
{
    writes(left_at(to), 16);
    *to = x;
}
uint4 left16(const uint4 *from)
{
    reads(left_at(from), 16);
    return *from;
}
void bulk_commit() { begun[STORES + my_warp()]++; }
void bulk_wait_read()
{
    const int w = my_warp();
    clocks[w].at[STORES + w] = begun[STORES + w] - 1;
}
void bulk_wait()
{
    const int w = my_warp();
    bulk_wait_read();
    clocks[w].at[LANDED + w] = begun[STORES + w] - 1;
}

/* ---- the copy engine; the map is fake/driver.c's ---- */

struct Map {
    char *p;
    unsigned rank, size;
    unsigned long long dim[5], stride[4];
    unsigned box[5];
};

/* The engine's for the thread that asks. */
static void copies(const char *p, unsigned bytes, unsigned each, bool write,
                   By by)
{
    for (unsigned i = 0; looks && i < bytes; i += each)
        access(p + i, each, 1, write, __builtin_return_address(0), by);
}
void copy_elements(unsigned to, const void *from, int bytes, unsigned each)
{
    uint4 x = { 0, 0, 0, 0 };
    if ((size_t)from % 16)
        fault("16 bytes that are not aligned");
    copies((const char *)from, (unsigned)bytes, each, false, by_own_warp());
    memcpy(&x, from, (size_t)bytes);
    store(to, x);
}
void copy_bytes(unsigned to, const void *from, int bytes, int part,
                unsigned each)
{
    float x[2] = { 0, 0 };
    if ((size_t)from % (unsigned)part || to % (unsigned)part || bytes < 0
        || bytes > part)
        fault("bytes that are not aligned, or more");
    copies((const char *)from, (unsigned)bytes, each, false, by_own_warp());
    memcpy(x, from, (size_t)bytes);
    for (int i = 0; i < part / 4; i++)
        store(to + 4 * (unsigned)i, x[i]);
}
/* Row i of the box: where its first element lies, or NULL. */
static char *row_of_box(const Map *m, const int *from, unsigned i)
{
    char *p = m->p + (long long)from[0] * m->size;
    for (unsigned d = 1; d < m->rank; i /= m->box[d], d++) {
        const long long x = from[d] + (long long)(i % m->box[d]);
        if (x < 0 || x >= (long long)m->dim[d])
            return NULL;
        p += x * (long long)m->stride[d - 1];
    }
    return p;
}
/* Calls f(shared address, address, bytes, those within the tensor) for each 16
 * bytes of the box, as these stay together; its rows have 128 each. */
template<class F>
static void each_of_box(const Map *m, unsigned at, const int *from, F f)
{
    unsigned rows = 1;
    for (unsigned d = 1; d < m->rank; d++)
        rows *= m->box[d];
    for (unsigned i = 0; i < 8 * rows; i++) {
        char *p = row_of_box(m, from, i / 8);
        const long long left = ((long long)m->dim[0] - from[0]) * m->size
                             - i % 8 * 16;
        const unsigned byte = 16 * i;
        f(at + (byte ^ (byte >> 7 & 7) << 4), p + i % 8 * 16,
          p && left > 0 ? (unsigned)min(left, 16ll) : 0);
    }
}
static void load_box(unsigned to, const TensorMap *map, unsigned full,
                     const int *from)
{
    const Map *m = (const Map *)map;
    int bytes = 0;
    if (to % 1024)
        fault("a box that is not aligned");
    if (from[0] < 0)
        fault("a box before its rows begin");
    each_of_box(m, to, from, [&](unsigned a, const char *p, unsigned n) {
        copies(p, n, m->size, false, By { ENGINE, begun[ENGINE], true });
        memcpy(shared_memory + a, p, n);
        memset(shared_memory + a + n, 0, 16 - n);
        bytes += 16;
    });
    arrived_in(here, full, bytes, to);
    if (looks)
        each_of_box(m, to, from, [&](unsigned a, const char *p, unsigned n) {
            for (unsigned i = 0; i < n; i += 4)
                origins[here][(a + i) / 4] = { p + i, min(n - i, 4u),
                                               all_knew };
        });
}
void load_tile(unsigned to, const TensorMap *m, unsigned full,
                            int col, int token, int head, int batch)
{
    const int from[] = { col, token, head, batch };
    load_box(to, m, full, from);
}
void load_ranks(unsigned to, const TensorMap *m, unsigned full,
                             int col, int token, int head, int batch)
{
    const int from[] = { col, 0, token, head, batch };
    load_box(to, m, full, from);
}
static void store_box(const TensorMap *map, unsigned at, const int *from)
{
    const unsigned stores = STORES + my_warp();
    const By landing = { LANDED + my_warp(), begun[stores] };
    const Map *m = (const Map *)map;
    if (from[0] < 0)
        fault("a box before its rows begin");
    each_of_box(m, at, from, [&](unsigned a, char *p, unsigned n) {
        reads_as(stores, begun[stores], a, 16);
        copies(p, n, m->size, true, landing);
        memcpy(p, shared_memory + a, n);
    });
}
void store_tile(const TensorMap *m, unsigned at, int col,
                             int token, int head, int batch)
{
    const int from[] = { col, token, head, batch };
    store_box(m, at, from);
}
void store_ranks(const TensorMap *m, unsigned at, int col,
                              int token, int head, int batch)
{
    const int from[] = { col, 0, token, head, batch };
    store_box(m, at, from);
}

/* ---- tiles ---- */

/* Lane 8 t + r brings the place of row r of tile t. */
void load_8x8(int n, unsigned a, unsigned *r, bool turned)
{
    const auto rows = warp_meets(&a, 1);
    const int l = threadIdx.x % 32, x = l / 4, y = l % 4 * 2;
    if (l < 8 * n)
        reads(a, 16);
    for (int t = 0; t < n; t++) {
        unsigned short h[2];
        for (int i = 0; i < 2; i++)
            memcpy(h + i, shared_to<char>(rows[8 * t + (turned ? y + i : x)][0],
                                          16)
                   + 2 * (turned ? x : y + i), 2);
        r[t] = h[0] | (unsigned)h[1] << 16;
    }
}
void store_8x8(unsigned a, const unsigned *r, bool turned)
{
    const auto rows = warp_meets(&a, 1);
    const int l = threadIdx.x % 32;
    writes(a, 16);
    for (int t = 0; t < 4; t++)
        for (int h = 0, x = l / 4, y = l % 4 * 2; h < 2; h++) {
            unsigned to = turned ? rows[8 * t + y + h][0] + 2 * x
                                 : rows[8 * t + x][0] + 2 * (y + h);
            unsigned short v = (unsigned short)(r[t] >> 16 * h);
            memcpy(shared_memory + to, &v, 2);
        }
    __syncwarp();
}
unsigned line_word(unsigned tile, int i, int k)
{
    return load<unsigned>(tile + (k >> 6) * 8192
                          + swizzled(i * 128 + (k & 62) * 2));
}
/* ---- products ---- */

static float tf32_of(unsigned r) { return bits(r & 0xffffe000); }
static float number(unsigned short x, bool f16)
{
    return f16 ? low(x) : bits((unsigned)x << 16);
}
/* What a lane brings to mma.sync: its parts of a and b, and where its c is. */
struct Operands { unsigned a[4], b[2]; float *c; };
static_assert(sizeof(Operands) <= sizeof(Brought), "as much as lanes bring");

/* c += a b for the lanes of a warp: of a lane's registers and numbers in turn
 * row l / 4 and eight on, column l / 4; EACH numbers a register. */
template<int EACH, bool F16> static void step_of_all(const Brought *of)
{
    enum { K = 8 * EACH };
    float a[16][K], b[K][8], c[16][8];
    Operands x[32];
    for (int l = 0; l < 32; l++) {
        memcpy(&x[l], of[l], sizeof x[l]);
        for (int i = 0; i < 6 * EACH; i++) {
            const int r = i / EACH, h = i % EACH, k = l % 4 * EACH + h;
            const unsigned word = r < 4 ? x[l].a[r] : x[l].b[r - 4];
            const float y = EACH == 1 ? tf32_of(word)
                          : number((unsigned short)(word >> 16 * h), F16);
            if (r < 4)
                a[l / 4 + r % 2 * 8][k + r / 2 * 4 * EACH] = y;
            else
                b[k + (r - 4) * 4 * EACH][l / 4] = y;
        }
        for (int e = 0; e < 4; e++)
            c[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2] = x[l].c[e];
    }
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < K; k++)
            for (int col = 0; col < 8; col++)
                c[row][col] += a[row][k] * b[k][col];
    for (int l = 0; l < 32; l++)
        for (int e = 0; e < 4; e++)
            x[l].c[e] = c[l / 4 + e / 2 * 8][l % 4 * 2 + e % 2];
}
static void step_together(float *c, const unsigned *a, const unsigned *b,
                          void (*step)(const Brought *))
{
    const Operands own = { { a[0], a[1], a[2], a[3] }, { b[0], b[1] }, c };
    Brought x;
    memcpy(x, &own, sizeof own);
    warp_meets(x, sizeof own / sizeof *x, step);
}
void product8(float *c, const unsigned *a, const unsigned *b)
{
    step_together(c, a, b, step_of_all<1, false>);
}
void product_of(float *c, const unsigned *a, const unsigned *b, bool f16)
{
    step_together(c, a, b, f16 ? step_of_all<2, true> : step_of_all<2, false>);
}
void product16(float *c, const unsigned *a, const unsigned *b)
{
    product_of(c, a, b, false);
}

/* An operand of wgmma, by its descriptor: number k of row i; or across. */
static unsigned place_of(Descriptor d, int i, int k, bool across)
{
    unsigned at = (unsigned)(d & 0x3fff) << 4, lead = (d >> 16 & 0x3fff) << 4;
    at += across ? i / 64 * lead + k * 128 + i % 64 * 2 : i * 128 + k * 2;
    return swizzled(at);
}
/* By one of a warp's threads: rows [first, first + n) and 16 numbers each, of
 * which 8 side by side stay so. */
static void group_reads(Descriptor d, int first, int n, bool across)
{
    const int party = PRODUCTS + my_warp();
    if (threadIdx.x % 32)
        return;
    for (int i = first; i < first + n; i += across ? 8 : 1)
        for (int k = 0; k < 16; k += across ? 1 : 8)
            reads_as(party, begun[party], place_of(d, i, k, across), 16);
}

typedef float Four __attribute__((vector_size(16)));

/* Numbers [0, 16) of rows i and i + 8, as { i, i, i + 8, i + 8 }. */
static void operand(Four *x, Descriptor d, int i, bool across, bool f16)
{
    for (int k = 0; k < 16; k++) {
        unsigned short u, v;
        memcpy(&u, shared_memory + place_of(d, i, k, across), 2);
        memcpy(&v, shared_memory + place_of(d, i + 8, k, across), 2);
        const float a = number(u, f16), b = number(v, f16);
        x[k] = Four { a, a, b, b };
    }
}
/* The right operand of a warpgroup's product: numbers k of eight rows each. Its
 * threads have one; who is there first reads it, as the last product's are all
 * through. */
struct Right { unsigned times; Descriptor of; float x[32][16][8]; };
static Right rights[2][8];
static const Right *right_of(Descriptor d, int rows, bool across, bool f16)
{
    const int group = threadIdx.x / 128;
    const unsigned times = of_group[here][group].times + 1;
    Right *r = &rights[here][group];
    if (r->times == times && r->of == d)
        return r;
    for (int i = 0; i < rows; i++)
        for (int k = 0; k < 16; k++) {
            unsigned short u;
            memcpy(&u, shared_memory + place_of(d, i, k, across), 2);
            r->x[i / 8][k][i % 8] = number(u, f16);
        }
    r->times = times;
    r->of = d;
    return r;
}
/* Rows l / 4 and eight on, of the registers that a warp's lanes bring. */
static void operand(Four *x, const unsigned *a, bool f16)
{
    const auto all = warp_meets(a, 4);
    const int row = threadIdx.x % 32 / 4;
    for (int k = 0; k < 16; k++) {
        const unsigned *r = all[row * 4 + k % 8 / 2] + k / 8 * 2;
        const int bits = k % 2 * 16;
        const float u = number((unsigned short)(r[0] >> bits), f16);
        const float v = number((unsigned short)(r[1] >> bits), f16);
        x[k] = Four { u, u, v, v };
    }
}
/* The thread's numbers 4 j of d are two of a row, then two eight rows on. */
template<bool HALF>
static void multiply(float *d, int n, const unsigned *a, const Step &s,
                     bool add)
{
    const int l = threadIdx.x % 32, first = threadIdx.x % 128 / 32 * 16;
    Four left[16];
    const Right *right = right_of(s.right, 2 * n, s.across, HALF);
    if (a)
        operand(left, a, HALF);
    else
        operand(left, s.left, first + l / 4, s.left_across, HALF);
    for (int j = 0; j < n / 4; j++) {
        Four sum = { 0, 0, 0, 0 };
        if (add)
            memcpy(&sum, d + 4 * j, sizeof sum);
        for (int k = 0; k < 16; k++) {
            const float *two = &right->x[j][k][l % 4 * 2];
            sum += s.sign * left[k] * Four { two[0], two[1], two[0], two[1] };
        }
        memcpy(d + 4 * j, &sum, sizeof sum);
    }
}
void group_product(float *d, int n, const unsigned *a, const Step &s, bool add,
                   bool f16)
{
    if (!a)
        group_reads(s.left, threadIdx.x % 128 / 32 * 16, 16, s.left_across);
    group_reads(s.right, 0, 2 * n, s.across);
    if (f16)
        multiply<true>(d, n, a, s, add);
    else
        multiply<false>(d, n, a, s, add);
    warpgroup_sync();                   /* what is read may go afterwards */
}
void wgmma_commit()
{
    begun[PRODUCTS + my_warp()] += threadIdx.x % 32 == 0;
}
void wgmma_wait_for(int left)
{
    const int w = my_warp();
    const unsigned over = max(begun[PRODUCTS + w], left + 1u) - left - 1;
    unsigned *known = &clocks[w].at[PRODUCTS + w];
    if (threadIdx.x % 32 == 0)
        *known = max(*known, over);
}

#include "tensor.h"

/* ---- a launch ---- */

alignas(128) char arena[ARENA];         /* the shared memory of kernels */
alignas(128) static char second_arena[ARENA];

void launch_roles(long grid, int threads, char *arena,
                               void (*f)(void *), void *ud)
{
    has_roles = true;
    launches++;
    now++;
    kernel = f;
    argument = ud;
    arenas[0] = arena;
    arenas[1] = second_arena;
    block_threads = threads;
    gridDim.x = (int)grid;
    const int most = 2 * threads <= MOST_THREADS ? 2 : 1;
    for (long i = 0; i < grid; i += most) {
        blockIdx.x = (int)i;
        end_barriers();
        for (int k = 0; k < most; k++)
            memset(arenas[k], 0xff, ARENA);
        run_roles(i + most <= grid ? most : 1);
        end_tensor();
    }
}
