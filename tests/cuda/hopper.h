/* hopper.h -- Hopper's instructions on the host: what device.cuh and the
 * headers behind it do in PTX, for cuda_emit's sources; fake/nvrtc.c leaves
 * those functions out of the headers. Copies and products are done when they
 * are asked for, so waits for them are none; threads take turns at barriers
 * and where a warp acts together. Two blocks run at a time: they may be a
 * cluster. Copies and products are under way until they are waited for, as far
 * as races.h is concerned.
 */
#include "races.h"

#pragma GCC visibility push(hidden)

struct TensorMap;
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
typedef unsigned long long Descriptor;

/* ---- turns ---- */

/* A thread goes on when the count is no longer what it was. */
struct Wait { const volatile unsigned *count; unsigned was; };
inline Wait waits[MOST_THREADS];
inline char *arenas[2];                 /* shared memory of each block */
inline int block_threads;

PLAIN inline void wait_while(const volatile unsigned *count, unsigned was)
{
    waits[first_fiber + threadIdx.x] = Wait { count, was };
    pause_as(READY);
}

PLAIN inline bool can_go(int i)
{
    const Wait w = waits[i];
    return fiber[i].state != DONE && (!w.count || *w.count != w.was);
}

PLAIN inline void turn_to(int block)
{
    blockIdx.x += block - here;
    here = block;
    first_fiber = block * block_threads;
    shared_memory = arenas[block];
}

PLAIN inline void run_roles(int blocks)
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

/* What each of them brings; two sets, as some read while others go on. */
struct Meeting {
    volatile unsigned times;
    int here;
    unsigned x[2][128][4];
    Handed order;
};
inline Meeting of_warp[2][32], of_group[2][8], of_joint[2],
    of_block[2], of_pair;

/* The set, when `all` of them are here. */
PLAIN inline unsigned (*meet(Meeting *m, int all, int me, const unsigned *x,
                             int n))[4]
{
    unsigned now = m->times;
    memcpy(m->x[now & 1][me & 127], x, (size_t)n * sizeof *x);
    if (all > 32)
        tell(&m->order);
    if (++m->here == all) {
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
PLAIN inline unsigned (*warp_meets(const unsigned *x, int n))[4]
{
    return meet(&of_warp[here][threadIdx.x / 32], 32, threadIdx.x % 32, x, n);
}
PLAIN inline void warpgroup_sync()
{
    meet(&of_group[here][threadIdx.x / 128], 128, threadIdx.x % 128, NULL, 0);
}
PLAIN inline void joint_sync()
{
    meet(&of_joint[here], 256, 0, NULL, 0);
}
PLAIN inline void block_sync()
{
    meet(&of_block[here], block_threads, 0, NULL, 0);
}
#define __syncthreads block_sync
PLAIN inline void warp_sync() { warp_meets(NULL, 0); }
#define __syncwarp warp_sync
PLAIN inline float of_lane(float x, int lane)
{
    const unsigned u = bits_of(x);
    return bits(warp_meets(&u, 1)[lane][0]);
}
PLAIN inline float __shfl_sync(unsigned, float x, int lane)
{
    return of_lane(x, lane & 31);
}
PLAIN inline float __shfl_xor_sync(unsigned, float x, int by)
{
    return of_lane(x, threadIdx.x % 32 ^ by);
}
PLAIN inline float __shfl_up_sync(unsigned, float x, int by)
{
    const int lane = threadIdx.x % 32;
    return of_lane(x, lane - (lane >= by ? by : 0));
}
PLAIN inline bool __any_sync(unsigned, bool x)
{
    const unsigned u = x;
    unsigned any = 0;
    const auto all = warp_meets(&u, 1);
    for (int l = 0; l < 32; l++)
        any |= all[l][0];
    return any;
}
template<int N> inline void more_registers() {}
template<int N> inline void fewer_registers() {}

/* ---- barriers: an address each ---- */

struct Arrivals { volatile unsigned phase; int all, left, bytes, order; };
inline Arrivals arrivals[2][ARENA / 8];
inline Handed orders[MOST_BARRIERS];
inline int norders;

PLAIN inline void check_phase(Arrivals *b)
{
    if (b->left || b->bytes)
        return;
    b->left = b->all;
    b->phase++;
    hand_on(&orders[b->order]);
}
PLAIN inline void barrier_init(unsigned b, int all)
{
    if (norders == MOST_BARRIERS)
        fault("too many barriers");
    arrivals[here][b / 8] = Arrivals { 0, all, all, 0,
                                       norders++ % MOST_BARRIERS };
}
inline void barrier_init_fence() {}
PLAIN inline void arrive_in(int block, unsigned b, unsigned bytes)
{
    Arrivals *a = &arrivals[block][b / 8];
    tell(&orders[a->order]);
    a->bytes += (int)bytes;
    if (--a->left < 0)
        fault("too many arrive at a barrier");
    check_phase(a);
}
PLAIN inline void arrive_expecting(unsigned b, unsigned bytes)
{
    arrive_in(here, b, bytes);
}
PLAIN inline void arrive(unsigned b) { arrive_in(here, b, 0); }
/* The copy engine has brought this to a block. */
PLAIN inline void arrived_in(int block, unsigned b, int bytes, unsigned to)
{
    Arrivals *a = &arrivals[block][b / 8];
    unsigned *known = &orders[a->order].gathered.at[ENGINE];
    writes_as(block, ENGINE, begun[ENGINE], to, (unsigned)bytes);
    *known = max(*known, begun[ENGINE]++);
    a->bytes -= bytes;
    check_phase(a);
}
PLAIN inline void wait(unsigned b, unsigned parity)
{
    Arrivals *a = &arrivals[here][b / 8];
    while ((a->phase & 1) == (parity & 1))
        wait_while(&a->phase, a->phase);
    take(&orders[a->order]);
}

/* ---- pairs of blocks ---- */

#define __cluster_dims__(x, y, z)
PLAIN inline void pair_sync()
{
    meet(&of_pair, 2 * block_threads, 0, NULL, 0);
}
PLAIN inline void give(unsigned a, unsigned to, int bytes, unsigned barrier)
{
    reads_as(ENGINE, begun[ENGINE], a, (unsigned)bytes);
    memcpy(arenas[1 - here] + to, arenas[here] + a, (size_t)bytes);
    arrived_in(1 - here, barrier, bytes, to);
}
template<bool PAIRED> PLAIN inline void release(unsigned empty)
{
    arrive(empty);
    if (PAIRED)
        arrive_in(1 - here, empty, 0);
}

/* ---- memory ---- */

template<class T> inline unsigned shared_address(const T *) { return 0; }
template<class T> PLAIN inline T *shared_to(unsigned a, size_t bytes)
{
    if (a % bytes || a + bytes > ARENA)
        fault("shared memory: not aligned, or behind its end");
    return (T *)(shared_memory + a);
}
PLAIN inline void reads(unsigned a, unsigned bytes)
{
    reads_as(my_warp(), clocks[my_warp()].at[my_warp()], a, bytes);
}
PLAIN inline void writes(unsigned a, unsigned bytes)
{
    writes_as(here, my_warp(), clocks[my_warp()].at[my_warp()], a, bytes);
}
template<class T> PLAIN inline T load(unsigned a)
{
    reads(a, sizeof(T));
    return *shared_to<T>(a, sizeof(T));
}
template<class T> PLAIN inline void store(unsigned a, T x)
{
    writes(a, sizeof x);
    *shared_to<T>(a, sizeof x) = x;
}
PLAIN inline float load1(unsigned a) { return load<float>(a); }
PLAIN inline float2 load2(unsigned a) { return load<float2>(a); }
PLAIN inline float4 load4(unsigned a) { return load<float4>(a); }
PLAIN inline uint4 load16(unsigned a) { return load<uint4>(a); }
PLAIN inline void store1(unsigned a, float x) { store(a, x); }
PLAIN inline void store2(unsigned a, float x, float y)
{
    store(a, float2 { x, y });
}
PLAIN inline void clear16(unsigned a) { store(a, uint4 { 0, 0, 0, 0 }); }
PLAIN inline void copy4(unsigned to, const void *from)
{
    store(to, *(const float *)from);
}
PLAIN inline void bulk_commit() { begun[STORES + my_warp()]++; }
PLAIN inline void bulk_wait_read()
{
    const int w = my_warp();
    clocks[w].at[STORES + w] = begun[STORES + w] - 1;
}
PLAIN inline void bulk_wait() { bulk_wait_read(); }

/* ---- the copy engine; the map is fake/driver.c's ---- */

struct Map {
    char *p;
    unsigned rank, size;
    unsigned long long dim[5], stride[4];
    unsigned box[5];
};

/* The engine's for the thread that asks. */
PLAIN inline void copies(const char *p, unsigned size, bool write)
{
#ifdef __SANITIZE_THREAD__
    access(p, size, 1, write, __builtin_return_address(0));
#endif
}
/* Calls f(shared address, address or NULL) for each element of the box. */
template<class F>
PLAIN inline void each_of_box(const Map *m, unsigned at, const int *from, F f)
{
    unsigned n = 1;
    for (unsigned i = 0; i < m->rank; i++)
        n *= m->box[i];
    for (unsigned i = 0; i < n; i++) {
        unsigned rest = i, byte = i * m->size;
        char *p = m->p;
        for (unsigned d = 0; d < m->rank; rest /= m->box[d], d++) {
            long long x = from[d] + (long long)(rest % m->box[d]);
            if (x < 0 || x >= (long long)m->dim[d])
                p = NULL;
            else if (p)
                p += x * (long long)(d ? m->stride[d - 1] : m->size);
        }
        f(at + (byte ^ (byte >> 7 & 7) << 4), p, m->size);
    }
}
PLAIN inline void load_box(unsigned to, const TensorMap *map, unsigned full,
                           const int *from)
{
    const Map *m = (const Map *)map;
    int bytes = 0;
    if (to % 1024)
        fault("a box that is not aligned");
    each_of_box(m, to, from, [&](unsigned a, const char *p, unsigned size) {
        if (p) {
            copies(p, size, false);
            memcpy(shared_memory + a, p, size);
        } else {
            memset(shared_memory + a, 0, size);
        }
        bytes += (int)size;
    });
    arrived_in(here, full, bytes, to);
}
PLAIN inline void load_tile(unsigned to, const TensorMap *m, unsigned full,
                            int col, int token, int head, int batch)
{
    const int from[] = { col, token, head, batch };
    load_box(to, m, full, from);
}
PLAIN inline void load_ranks(unsigned to, const TensorMap *m, unsigned full,
                             int col, int token, int head, int batch)
{
    const int from[] = { col, 0, token, head, batch };
    load_box(to, m, full, from);
}
PLAIN inline void store_box(const TensorMap *m, unsigned at, const int *from)
{
    const unsigned stores = STORES + my_warp();
    each_of_box((const Map *)m, at, from,
                [&](unsigned a, char *p, unsigned size) {
        reads_as(stores, begun[stores], a, size);
        if (p) {
            copies(p, size, true);
            memcpy(p, shared_memory + a, size);
        }
    });
}

PLAIN inline void store_tile(const TensorMap *m, unsigned at, int col,
                             int token, int head, int batch)
{
    const int from[] = { col, token, head, batch };
    store_box(m, at, from);
}
PLAIN inline void store_ranks(const TensorMap *m, unsigned at, int col,
                              int token, int head, int batch)
{
    const int from[] = { col, 0, token, head, batch };
    store_box(m, at, from);
}

/* ---- numbers ---- */

#define __uint_as_float bits
#define __float_as_uint bits_of
PLAIN inline float __fsqrt_rn(float x) { return sqrtf(x); }
PLAIN inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
PLAIN inline float __fdividef(float a, float b) { return a / b; }
PLAIN inline float inverse_(float x) { return 1 / x; }
PLAIN inline float quotient_(float a, float b) { return a / b; }
PLAIN inline unsigned __vimax3_u16x2(unsigned a, unsigned b, unsigned c)
{
    unsigned y = 0;
    for (int s = 0; s < 32; s += 16)
        y |= max(max(a >> s & 0xffff, b >> s & 0xffff), c >> s & 0xffff) << s;
    return y;
}
template<bool DEEP> PLAIN inline float swish(float x, float half)
{
    const float y = DEEP ? x : 2 * half;
    return y / (1 + expf(-y));
}
PLAIN inline unsigned pack_wide(float lo, float hi)
{
    return to_bf16(lo) | to_bf16(hi) << 16;
}
#ifdef ELEMENT_F16
PLAIN inline float low(unsigned v) { return half_to_float(v & 0xffff); }
PLAIN inline float high(unsigned v) { return half_to_float(v >> 16); }
PLAIN inline unsigned pack(float lo, float hi)
{
    return float_to_half(lo) | (unsigned)float_to_half(hi) << 16;
}
#else
static float low(unsigned v), high(unsigned v);
PLAIN inline unsigned pack(float lo, float hi) { return pack_wide(lo, hi); }
#endif
template<int N> PLAIN inline void halve(unsigned (&h)[N],
                                        const unsigned (&x)[N])
{
    for (int i = 0; i < N; i++)
        h[i] = pack(low(x[i]) / 2, high(x[i]) / 2);
}
template<class T> inline T fresh(T x) { return x; }
template<class T> inline T fresh_wide(T x) { return x; }
template<class T> inline void keep(T &) {}

/* ---- tiles ---- */

PLAIN inline unsigned swizzled(unsigned a) { return a ^ (a >> 7 & 7) << 4; }
template<int TILES>
PLAIN inline void load_8x8(unsigned a, unsigned *r, bool turned)
{
    unsigned short tile[TILES][8][8];
    const auto rows = warp_meets(&a, 1);
    const int l = threadIdx.x % 32;
    if (l < 8 * TILES)
        reads(a, 16);
    for (int i = 0; i < 8 * TILES; i++)
        memcpy(tile[i / 8][i % 8], shared_to<char>(rows[i][0], 16), 16);
    for (int t = 0; t < TILES; t++)
        for (int h = 0, x = l / 4, y = l % 4 * 2; h < 2; h++) {
            unsigned v = turned ? tile[t][y + h][x] : tile[t][x][y + h];
            r[t] = h ? r[t] | v << 16 : v;
        }
}
PLAIN inline void store_8x8(unsigned a, const unsigned *r, bool turned)
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
PLAIN inline void ldmatrix(unsigned a, unsigned *r)
{
    load_8x8<4>(a, r, false);
}
PLAIN inline void ldmatrix_t(unsigned a, unsigned *r)
{
    load_8x8<4>(a, r, true);
}
PLAIN inline void ldmatrix2(unsigned a, unsigned *r)
{
    load_8x8<2>(a, r, false);
}
PLAIN inline void stmatrix(unsigned a, const unsigned *r)
{
    store_8x8(a, r, false);
}
PLAIN inline void stmatrix_t(unsigned a, const unsigned *r)
{
    store_8x8(a, r, true);
}
PLAIN inline unsigned pair_at(unsigned tile, int i, int k)
{
    return load<unsigned>(tile + (k >> 6) * 8192
                          + swizzled(i * 128 + (k & 62) * 2));
}
PLAIN inline unsigned word_of(unsigned tile, int i, int k)
{
    return pair_at(tile, i, k);
}
template<int N>
PLAIN inline void read_line(unsigned (&x)[N], unsigned tile, int i, int k)
{
    for (int n = 0; n < N; n++)
        x[n] = pair_at(tile, i, k + 2 * n);
}

/* ---- products ---- */

PLAIN inline float half_of(unsigned pair, int which)
{
    return which ? high(pair) : low(pair);
}
PLAIN inline float tf32_of(unsigned r) { return bits(r & 0xffffe000); }
PLAIN inline void product8(float *c, const unsigned *a, const unsigned *b)
{
    unsigned rows[32][4];
    const int l = threadIdx.x % 32;
    memcpy(rows, warp_meets(a, 4), sizeof rows);
    const auto cols = warp_meets(b, 2);
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 8; k++) {
            const unsigned *row = rows[l / 4 * 4 + k % 4];
            const unsigned *col = cols[(l % 4 * 2 + e % 2) * 4 + k % 4];
            c[e] += tf32_of(row[k / 4 * 2 + e / 2]) * tf32_of(col[k / 4]);
        }
}
PLAIN inline void product16(float *c, const unsigned *a, const unsigned *b)
{
    unsigned rows[32][4];
    const int l = threadIdx.x % 32;
    memcpy(rows, warp_meets(a, 4), sizeof rows);
    const auto cols = warp_meets(b, 2);
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++) {
            const int lane = k % 8 / 2, half = k & 1 ? 0 : 16;
            const unsigned x = rows[l / 4 * 4 + lane][k / 8 * 2 + e / 2];
            const unsigned y = cols[(l % 4 * 2 + e % 2) * 4 + lane][k / 8];
            c[e] += bits(x << half & 0xffff0000) * bits(y << half & 0xffff0000);
        }
}

/* An operand of wgmma, by its descriptor: number k of row i; or across. */
PLAIN inline unsigned place_of(Descriptor d, int i, int k, bool across)
{
    unsigned at = (unsigned)(d & 0x3fff) << 4, lead = (d >> 16 & 0x3fff) << 4;
    at += across ? i / 64 * lead + k * 128 + i % 64 * 2 : i * 128 + k * 2;
    return swizzled(at);
}
PLAIN inline float number_at(Descriptor d, int i, int k, bool across)
{
    unsigned short x;
    memcpy(&x, shared_memory + place_of(d, i, k, across), 2);
    return low(x);
}
/* By one of a warp's threads: rows [first, first + n) and 16 numbers each. */
PLAIN inline void group_reads(Descriptor d, int first, int n, bool across)
{
    const int party = PRODUCTS + my_warp();
    for (int i = first; i < first + n && threadIdx.x % 32 == 0; i++)
        for (int k = 0; k < 16; k += across ? 1 : 8)
            reads_as(party, begun[party], place_of(d, i, k, across),
                     across ? 2 : 16);
}
template<int N, class F>
PLAIN inline void group_step(float (&d)[N], F left, Descriptor b, int add,
                             bool across, float sign = 1)
{
    const int l = threadIdx.x % 32;
    group_reads(b, 0, 2 * N, across);
    for (int i = 0; i < N; i++) {
        int row = l / 4 + 8 * (i / 2 % 2), col = i / 4 * 8 + l % 4 * 2 + i % 2;
        float sum = add ? d[i] : 0;
        for (int k = 0; k < 16; k++)
            sum += sign * left(row, k) * number_at(b, col, k, across);
        d[i] = sum;
    }
    warpgroup_sync();                   /* what is read may go afterwards */
}
template<int ACROSS, int N>
PLAIN inline void product(float (&d)[N], const unsigned *a, Descriptor b,
                          int add)
{
    unsigned x[32][4];
    memcpy(x, warp_meets(a, 4), sizeof x);
    group_step(d, [&](int row, int k) {
        return half_of(x[row % 8 * 4 + k % 8 / 2][row / 8 + k / 8 * 2], k & 1);
    }, b, add, ACROSS);
}
template<int ACROSS, int N>
PLAIN inline void product(float (&d)[N], Descriptor a, Descriptor b, int add)
{
    const int first = threadIdx.x % 128 / 32 * 16;
    group_reads(a, first, 16, false);
    group_step(d, [&](int row, int k) {
        return number_at(a, first + row, k, false);
    }, b, add, ACROSS);
}
template<int ACROSS_A, int ACROSS_B, int MINUS, int N>
PLAIN inline void tile_product(float (&d)[N], Descriptor a, Descriptor b,
                               int add)
{
    const int first = threadIdx.x % 128 / 32 * 16;
    group_reads(a, first, 16, ACROSS_A);
    group_step(d, [&](int row, int k) {
        return number_at(a, first + row, k, ACROSS_A);
    }, b, add, ACROSS_B, MINUS ? -1 : 1);
}
#define WGMMA(...)
#define TILE_PRODUCT(...)
inline void wgmma_fence() {}
PLAIN inline void wgmma_commit()
{
    begun[PRODUCTS + my_warp()] += threadIdx.x % 32 == 0;
}
template<int LEFT> PLAIN inline void wgmma_wait()
{
    const int w = my_warp();
    unsigned *known = &clocks[w].at[PRODUCTS + w];
    if (threadIdx.x % 32 == 0)
        *known = max(*known, max(begun[PRODUCTS + w], LEFT + 1u) - LEFT - 1);
}

/* ---- a launch ---- */

alignas(128) inline char second_arena[ARENA];

PLAIN inline void launch_roles(long grid, int threads, char *arena,
                               void (*f)(void *), void *ud)
{
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
        norders = 0;
        for (int k = 0; k < most; k++)
            memset(arenas[k], 0xff, ARENA);
        run_roles(i + most <= grid ? most : 1);
    }
}
#pragma GCC visibility pop
