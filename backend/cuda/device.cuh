/* device.cuh -- what every generated kernel stands on: Hopper's instructions
 * as inline PTX, and the layouts that they share. After numbers.cuh.
 *
 * Shared memory is addressed by 32-bit addresses. A **tile** is 64 rows of 64
 * two-byte elements, 8 KiB, swizzled by 128 bytes: the 16-byte piece p of row
 * r lies at r * 128 + ((p ^ r % 8) * 16). A matrix of D columns is D / 64
 * tiles, one behind the other.
 *
 * A **fragment** is a warpgroup's M64 x N accumulator: thread (warp w, lane l)
 * holds, at x[4 n + e], row 16 w + l / 4 + 8 (e / 2), column 8 n + 2 (l % 4) +
 * e % 2. Packed to two-byte pairs, p[i] = (x[2 i], x[2 i + 1]), the same
 * registers are the A operand of a product, four of them a K step of 16.
 */

/* ---- what the host passes ---- */

struct alignas(64) TensorMap { unsigned char opaque[128]; };

/* A tensor by element strides: batch (or sequence), token, head, and up to
 * two axes of its own. Null p: absent. Head h reads the tensor's h / group;
 * per_group: 2^32 / group, rounded up; 0: each head has its own. */
struct Tensor { void *p; i64 sb, st, sh, sd[2]; int group; u32 per_group; };
/* Which of its heads a head reads: a quotient, by what the host has found. */
INLINE int head_of(const Tensor &t, int head)
{
    return t.per_group ? (int)((u64)(u32)head * t.per_group >> 32) : head;
}

/* x, which is one for all of a warp and then known to be: products take their
 * places from registers that a warp has once. */
INLINE int uniform(int x) { return __shfl_sync(~0u, x, 0); }
/* x, but what follows from it is not worked out before a loop and kept. */
INLINE int fresh(int x)
{
    asm volatile("" : "+r"(x));
    return x;
}
INLINE i64 fresh_wide(i64 x)
{
    asm volatile("" : "+l"(x));
    return x;
}

/* A token has RANKS rows, next to each other. What has no ranks is the same in
 * all of them. */
#ifndef RANKS
#define RANKS 1
#endif
/* Of these, rows that memory has; others are empty. */
#ifndef RANKS_STORED
#define RANKS_STORED RANKS
#endif
INLINE bool is_stored(int row)
{
    return RANKS_STORED == RANKS || row % RANKS < RANKS_STORED;
}
INLINE int token(int row) { return (int)((u32)row / RANKS); }

/* Rows of a chunk. */
#ifndef CHUNK_ROWS
#define CHUNK_ROWS 64
#endif

/* A sequence's rows [0, len), its first token being `start` of batch entry b:
 * every role has them in registers. The copy engine counts by 32 bits, too. */
struct Rows { int b, start, len; };
INLINE Rows rows_in(const Sequence &s)
{
    return { s.b, (int)s.start, (int)s.len * RANKS };
}
/* Rows of chunk c. By 64 bits: ptxas would keep a count of those left. */
INLINE int rows_of(const Rows &s, int c)
{
    const i64 left = s.len - (i64)CHUNK_ROWS * c;
    return left < CHUNK_ROWS ? (int)left : CHUNK_ROWS;
}
/* Worked out anew each time: a role may have no register for it. */
INLINE int chunks_of(const Rows &s)
{
    return (fresh(s.len) + CHUNK_ROWS - 1) / CHUNK_ROWS;
}
INLINE i64 token_at(const Tensor &t, int head, const Rows &s, int token)
{
    return s.b * t.sb + head_of(t, head) * t.sh + (i64)(s.start + token) * t.st;
}

/* ---- barriers ---- */

INLINE u32 shared_address(const void *p)
{
    u32 r;
    asm("{.reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t;}"
        : "=r"(r) : "l"(p));
    return r;
}
INLINE void barrier_init(u32 b, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :: "r"(b), "r"(arrivals) : "memory");
}
/* NO_ENGINE: the machine is one from before Hopper. */
#ifdef NO_ENGINE
INLINE void barrier_init_fence() { asm volatile("" ::: "memory"); }
#else
INLINE void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
#endif
INLINE void arrive(u32 b)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
                 :: "r"(b) : "memory");
}
INLINE void arrive_expecting(u32 b, u32 bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(b), "r"(bytes) : "memory");
}
#ifdef NO_ENGINE
#define TRY_WAIT "test_wait"
#else
#define TRY_WAIT "try_wait"
#endif
INLINE void wait(u32 b, u32 parity)
{
    asm volatile("{.reg .pred p;\n"
        "again: mbarrier." TRY_WAIT ".parity.shared::cta.b64 p, [%0], %1;\n"
        "@p bra.uni done;\nbra.uni again;\ndone:}"
        :: "r"(b), "r"(parity) : "memory");
}

/* A ring's position: stage and how often it was around. */
template<int STAGES> struct Ring {
    int stage;
    u32 phase;
    INLINE_MEMBER Ring() : stage(0), phase(0) {}
    INLINE_MEMBER void go_to(u32 use)
    {
        stage = use % STAGES;
        phase = use / STAGES & 1;
    }
    INLINE_MEMBER void next()
    {
        if (++stage == STAGES) {
            stage = 0;
            phase ^= 1;
        }
    }
};

/* ---- the bulk copy engine ---- */

/* A box of 64 columns x 64 tokens: (column, token, head, batch entry). */
INLINE void load_tile(u32 to, const TensorMap *m, u32 full, int col,
                      int token, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%4,%5,%6}], [%2];"
        :: "r"(to), "l"(m), "r"(full), "r"(col), "r"(token), "r"(head),
           "r"(batch) : "memory");
}
/* The same of RANKS rows a token, their axis between column and token. */
INLINE void load_ranks(u32 to, const TensorMap *m, u32 full, int col,
                       int token, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile"
        ".mbarrier::complete_tx::bytes [%0], [%1, {%3,%7,%4,%5,%6}], [%2];"
        :: "r"(to), "l"(m), "r"(full), "r"(col), "r"(token), "r"(head),
           "r"(batch), "r"(0) : "memory");
}
INLINE void store_tile(const TensorMap *m, u32 from, int col, int token,
                       int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
        " [%0, {%2,%3,%4,%5}], [%1];"
        :: "l"(m), "r"(from), "r"(col), "r"(token), "r"(head), "r"(batch)
        : "memory");
}
INLINE void store_ranks(const TensorMap *m, u32 from, int col, int token,
                        int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group"
        " [%0, {%2,%6,%3,%4,%5}], [%1];"
        :: "l"(m), "r"(from), "r"(col), "r"(token), "r"(head), "r"(batch),
           "r"(0) : "memory");
}
INLINE void bulk_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
INLINE void bulk_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
INLINE void bulk_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
/* Ordinary writes to shared memory, before the tensor cores or the copy
 * engine read them: each writing thread, before it arrives; or, by
 * fence_copied, who has waited for that. */
#ifdef NO_ENGINE
INLINE void fence_async() { asm volatile("" ::: "memory"); }
#else
INLINE void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#endif
/* What others wrote there before the tensor cores or the copy engine read it:
 * by who has waited for it. */
INLINE void fence_copied()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
INLINE void copy4(u32 to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                 :: "r"(to), "l"(from) : "memory");
}
/* Brings it to the cache that all multiprocessors share. */
INLINE void ask(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" :: "l"(p));
}
INLINE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template<int LEFT> INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}

/* ---- registers ---- */

template<int N> INLINE void more_registers()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N));
}
template<int N> INLINE void fewer_registers()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N));
}

/* ---- shared memory ---- */

INLINE float load1(u32 a)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(a) : "memory");
    return v;
}
INLINE float2 load2(u32 a)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
                 : "=f"(v.x), "=f"(v.y) : "r"(a) : "memory");
    return v;
}
INLINE float4 load4(u32 a)
{
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(a) : "memory");
    return v;
}
INLINE void store2(u32 a, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1,%2};"
                 :: "r"(a), "f"(x), "f"(y) : "memory");
}
INLINE void store1(u32 a, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" :: "r"(a), "f"(v) : "memory");
}
/* To and from the workspace: what warps of a block leave for one another
 * there. */
INLINE void leave16(uint4 *to, uint4 x)
{
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};"
                 :: "l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w) : "memory");
}
INLINE uint4 left16(const uint4 *from)
{
    uint4 x;
    asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "l"(__cvta_generic_to_global(from)) : "memory");
    return x;
}
INLINE uint4 load16(u32 a)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(a) : "memory");
    return v;
}
INLINE void clear16(u32 a)
{
    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};"
                 :: "r"(a), "r"(0) : "memory");
}

/* ---- global memory ---- */

/* p[0] += x, p[1] += y, and nobody waits for it: after what this thread has
 * done there before. */
INLINE void add_pair(float *p, float x, float y)
{
#ifdef NO_ENGINE
    asm volatile("red.global.add.f32 [%0], %1;\n"
                 "red.global.add.f32 [%0 + 4], %2;"
                 :: "l"(p), "f"(x), "f"(y) : "memory");
#else
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};"
                 :: "l"(p), "f"(x), "f"(y) : "memory");
#endif
}

/* ---- numbers ---- */

#include "functions.cuh"

/* Pairs of two-byte elements, the first in the low half. */
#ifdef ELEMENT_F16
#define ELEMENT "f16"
INLINE float low(u32 v)
{
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, l;}"
        : "=f"(r) : "r"(v));
    return r;
}
INLINE float high(u32 v)
{
    float r;
    asm("{.reg .b16 l, h; mov.b32 {l, h}, %1; cvt.f32.f16 %0, h;}"
        : "=f"(r) : "r"(v));
    return r;
}
#else
#define ELEMENT "bf16"
INLINE float low(u32 v) { return __uint_as_float(v << 16); }
INLINE float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
#endif
INLINE u32 pack(float lo, float hi)
{
    u32 r;
    asm("cvt.rn." ELEMENT "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
    return r;
}
template<int N> INLINE void pack(u32 (&p)[N], const float (&x)[2 * N])
{
    UNROLL for (int i = 0; i < N; i++)
        p[i] = pack(x[2 * i], x[2 * i + 1]);
}

/* An element of a tile, and two neighbours. */
#ifdef ELEMENT_F32
typedef float Element;
struct Two { float x, y; };
INLINE float low(Two v) { return v.x; }
INLINE float high(Two v) { return v.y; }
INLINE Two two(float x, float y) { return { x, y }; }
#else
typedef unsigned short Element;
typedef u32 Two;
INLINE Two two(float x, float y) { return pack(x, y); }
#endif

/* ---- fragments ---- */

/* Where this thread stands in its warpgroup's fragments. */
struct Lane { int thread, warp, lane, row, col, team; };
INLINE Lane lane_of(int thread)
{
    Lane l;
    l.thread = thread & 127;
    l.warp = l.thread >> 5;
    l.lane = thread & 31;
    l.row = 16 * l.warp + (l.lane >> 2);
    l.col = 2 * (l.lane & 3);
    l.team = 0;
    return l;
}
INLINE Lane lane_here() { return lane_of(threadIdx.x); }
/* The second of two warpgroups behind the first 128 threads has its rows the
 * other way round: warps of one scheduler are few rows' and many rows'. */
INLINE Lane opposed_lane_of(int thread)
{
    return lane_of(thread ^ 96 * (thread >> 8));
}
/* Address, within a tile, of the rows that this lane names to ldmatrix and
 * stmatrix, for a fragment that lies as it is (columns along the row) ... */
INLINE u32 tile_row(const Lane &l, int step)
{
    const int r = 16 * l.warp + (l.lane & 15);
    return r * 128 + (((2 * step + (l.lane >> 4)) ^ (r & 7)) * 16);
}
/* ... and for one whose transpose lies there (its columns are tokens). */
INLINE u32 tile_col(const Lane &l)
{
    const int r = (l.lane & 7) + ((l.lane >> 4) << 3);
    const int piece = 2 * l.warp + ((l.lane >> 3) & 1);
    return r * 128 + ((piece ^ (r & 7)) * 16);
}
INLINE void ldmatrix(u32 a, u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16"
        " {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
INLINE void ldmatrix_t(u32 a, u32 *r)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16"
        " {%0,%1,%2,%3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory");
}
INLINE void stmatrix(u32 a, const u32 *r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0],"
        " {%1,%2,%3,%4};"
        :: "r"(a), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
#ifdef NO_ENGINE
/* The same where the machine has no such instruction: lane l has numbers of row
 * l / 4 of each 8 x 8, whose place lane 8 i + l / 4 names. */
INLINE void stmatrix_by_lanes(u32 a, const u32 *r)
{
    const int lane = threadIdx.x & 31;
    UNROLL for (int i = 0; i < 4; i++) {
        const float row = __shfl_sync(~0u, bits(a), 8 * i + lane / 4);
        store1(bits_of(row) + lane % 4 * 4, bits(r[i]));
    }
}
#define stmatrix stmatrix_by_lanes
#endif
INLINE void stmatrix_t(u32 a, const u32 *r)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0],"
        " {%1,%2,%3,%4};"
        :: "r"(a), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");
}
/* The transpose of a tile as a packed fragment, and back. */
INLINE void read_transposed(u32 (&p)[16], u32 tile, const Lane &l)
{
    UNROLL for (int k = 0; k < 4; k++)
        ldmatrix_t(tile + tile_col(l) + 2048 * k, p + 4 * k);
}
/* Row r as it lies in a tile of `apart` rows a token, from `first` on. */
INLINE int row_in(int r, int apart, int first)
{
    return token(r) * apart + first;
}
INLINE u32 piece_of(int row, int piece)
{
    return row * 128 + ((piece ^ (row & 7)) * 16);
}
INLINE void read_transposed(u32 (&p)[16], u32 tile, const Lane &l, int apart,
                            int first)
{
    const int r = (l.lane & 7) + ((l.lane >> 4) << 3);
    const int piece = 2 * l.warp + ((l.lane >> 3) & 1);
    UNROLL for (int k = 0; k < 4; k++)
        ldmatrix_t(tile + piece_of(row_in(r + 16 * k, apart, first), piece),
                   p + 4 * k);
}
/* A token's rows are the same: they go to one. */
INLINE void write_transposed(u32 tile, const u32 (&p)[16], const Lane &l)
{
    const int r = (l.lane & 7) + ((l.lane >> 4) << 3);
    const int piece = 2 * l.warp + ((l.lane >> 3) & 1);
    UNROLL for (int k = 0; k < 4; k++)
        stmatrix_t(tile + (RANKS == 1 ? tile_col(l) + 2048 * k
                           : piece_of(token(r + 16 * k), piece)), p + 4 * k);
}
INLINE void write_fragment(u32 tile, const u32 (&p)[16], const Lane &l)
{
    UNROLL for (int k = 0; k < 4; k++)
        stmatrix(tile + tile_row(l, k), p + 4 * k);
}
INLINE void read_fragment(u32 (&p)[16], u32 tile, const Lane &l)
{
    UNROLL for (int k = 0; k < 4; k++)
        ldmatrix(tile + tile_row(l, k), p + 4 * k);
}
INLINE void read_fragment(u32 (&p)[16], u32 tile, const Lane &l, int apart,
                          int first)
{
    const int r = row_in(16 * l.warp + (l.lane & 15), apart, first);
    UNROLL for (int k = 0; k < 4; k++)
        ldmatrix(tile + piece_of(r, 2 * k + (l.lane >> 4)), p + 4 * k);
}
/* A barrier of this warpgroup's own. */
INLINE void warpgroup_sync()
{
    asm volatile("bar.sync %0, 128;" :: "r"(threadIdx.x >> 7) : "memory");
}
/* One of so many warpgroups, of all roles of matrices. */
template<int WARPGROUPS> INLINE void roles_sync()
{
    asm volatile("bar.sync 6, %0;" :: "n"(128 * WARPGROUPS) : "memory");
}
/* One of both ahead warpgroups, where they are at one chunk. */
INLINE void joint_sync()
{
    asm volatile("bar.sync 7, 256;" ::: "memory");
}

/* ---- rows past the end of a sequence ---- */

/* Clears rows [rows, all) of a tile; a warp does it together. */
INLINE void clear_rows(u32 tile, int rows, int all, int lane)
{
    NO_UNROLL for (int at = rows * 128 + lane * 16; at < 128 * all; at += 512)
        clear16(tile + at);
}
/* Entry k of a state of one axis, and of an input's token. */
INLINE float state_entry(const Tensor &t, int seq, int head, int k)
{
    return t.p ? ((const float *)t.p)[seq * t.sb + head * t.sh + k * t.sd[0]]
               : 0.f;
}
/* Row 0 of TILES tiles: the token before the first, from col of `cols`. */
template<int TILES>
INLINE void first_row(u32 tile, const Tensor &t, int seq, int head, int col,
                      int cols, int lane)
{
    UNROLL for (int i = 0; i < TILES; i++) {
        const int k = col + 64 * i + 2 * lane;
        const float x = k < cols ? state_entry(t, seq, head, k) : 0.f;
        const float y = k + 1 < cols ? state_entry(t, seq, head, k + 1) : 0.f;
        store1(tile + 8192 * i + 4 * lane, bits(pack(x, y)));
    }
}
INLINE void end_entry(const Tensor &t, int seq, int head, int k, float x)
{
    if (t.p)
        ((float *)t.p)[seq * t.sb + head * t.sh + k * t.sd[0]] = x;
}
/* Copies rows [0, rows) of a tile to memory, `cols` columns at stride st. */
INLINE void copy_rows(unsigned short *to, i64 st, u32 tile, int rows,
                      int cols, int lane)
{
    NO_UNROLL for (int at = lane; at < rows * 8; at += 32) {
        const int r = at >> 3, p = at & 7;
        const uint4 v = load16(tile + r * 128 + ((p ^ (r & 7)) * 16));
        if (8 * p < cols)
            *(uint4 *)(to + r * st + 8 * p) = v;
    }
}

/* Chunk c of a result: 64 columns from col, of `cols`. A whole chunk goes by
 * the copy engine, a last one row by row: behind it may lie another sequence.
 * A warp does it together. */
INLINE void store_chunk(const TensorMap &m, const Tensor &t, u32 tile,
                        const Rows &s, int c, int col, int cols, int head,
                        int lane)
{
    const int rows = rows_of(s, c);
    if (rows == 64) {
        if (lane == 0)
            store_tile(&m, tile, col, s.start + 64 / RANKS * c, head,
                       s.b);
        return;
    }
    const Rows here = { fresh(s.b), s.start, s.len };
    const int from = fresh(col);
    copy_rows((unsigned short *)t.p + token_at(t, fresh(head), here,
                                               64 / RANKS * c) + from,
              t.st, tile, rows / RANKS, cols - from, lane);
}

/* ---- states: float32, rows from row0, of a size rows x cols ---- */

