/* tile.cuh -- what the kernels of any plan stand on (tile_emit.c): tensors of
 * any type and strides, tiles in shared memory or in a block's own part of
 * the workspace, products on the tensor cores of Ampere and later. Includes
 * nothing. The source defines THREADS (a block's) and RANK (axes of a tensor
 * besides batch, token and head) first.
 *
 * With HOST defined it is plain C++ for one thread, whose includer brings
 * what CUDA has built in (tests/cuda/host.h).
 */
typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

#define INLINE static __device__ __forceinline__
#define CALLED static __device__ __noinline__
#define INLINE_MEMBER __device__ __forceinline__

/* ---- what the host passes ---- */

/* A tensor by element strides: batch (or sequence), token, head, its own
 * axes. Null p: absent. Head h of the call is the tensor's h / group. wide:
 * rows are whole and start at multiples of 16 bytes. */
struct Tensor { void *p; i64 sb, st, sh, sd[RANK]; int group, wide; };

/* Tokens [start, start + len) of batch entry b. */
struct Sequence { int b, pad; i64 start, len; };

/* A launch. seq: in order of batch entry and start; null: sequence s is batch
 * entry s, all `tokens` of it. per_entry: the chunks of a batch entry. items:
 * what there is to do, shared out among the blocks of the grid. */
struct Run {
    const Sequence *seq;
    i64 nseq, tokens, per_entry, items;
    char *stored, *spill;
    int heads, pad;
};

INLINE Sequence sequence(const Run &run, i64 s)
{
    if (run.seq)
        return run.seq[s];
    Sequence q;
    q.b = (int)s;
    q.start = 0;
    q.len = run.tokens;
    return q;
}

/* The place of a sequence's first chunk among all: no two sequences' chunks
 * meet, wherever in its entry each begins. */
INLINE i64 first_slot(const Run &run, i64 s, int chunk)
{
    const Sequence q = sequence(run, s);
    return s + q.b * run.per_entry + q.start / chunk;
}

/* The sequence that has the slot, if any has it. */
INLINE i64 find_sequence(const Run &run, i64 slot, int chunk)
{
    i64 lo = 0, hi = run.nseq;
    if (!run.seq)
        return slot / (run.per_entry + 1);
    while (hi - lo > 1) {
        const i64 mid = lo + (hi - lo) / 2;
        if (first_slot(run, mid, chunk) <= slot)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- numbers ---- */

struct bf16 { u16 bits; };
struct f16 { u16 bits; };

#ifdef HOST
#undef THREADS
#define THREADS 1
#else
enum { LANES = 32 };
#define NO_UNROLL _Pragma("unroll 1")
#define UNROLL _Pragma("unroll")

INLINE float bits(u32 x) { return __uint_as_float(x); }
INLINE u32 bits_of(float x) { return __float_as_uint(x); }
INLINE float exp2_(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float log2_(float x)
{
    float y;
    asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float half_to_float(u16 h)
{
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(h));
    return y;
}
INLINE u16 float_to_half(float x)
{
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
INLINE float lane_up(float x, int by)
{
    return __shfl_up_sync(0xffffffffu, x, by);
}
INLINE float warp_sum(float x)
{
    for (int by = 16; by; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}
INLINE bool warp_any(bool x) { return __any_sync(0xffffffffu, x); }
#endif

#define TID ((int)threadIdx.x)
#define WARP (TID / LANES)
#define LANE (TID % LANES)
#define WARPS (THREADS / LANES)

INLINE float get(float x) { return x; }
INLINE float get(double x) { return (float)x; }
INLINE float get(bf16 x) { return bits((u32)x.bits << 16); }
INLINE float get(f16 x) { return half_to_float(x.bits); }

INLINE void put(float *p, float x) { *p = x; }
INLINE void put(double *p, float x) { *p = x; }
INLINE void put(f16 *p, float x) { p->bits = float_to_half(x); }
INLINE void put(bf16 *p, float x)
{
    const u32 u = bits_of(x), odd = u >> 16 & 1;
    p->bits = (u16)(x == x ? (u + 0x7fff + odd) >> 16 : 0x7fff);
}

#define LOG2E bits(0x3fb8aa3b)
#define LN2   bits(0x3f317218)
INLINE float min_(float a, float b) { return a != a || a < b ? a : b; }
INLINE float max_(float a, float b) { return a != a || a > b ? a : b; }
INLINE float exp_(float a) { return exp2_(a * LOG2E); }
INLINE float log_(float a) { return log2_(a) * LN2; }
INLINE float sqrt_(float a) { return sqrtf(a); }
INLINE float rsqrt_(float a) { return 1 / sqrtf(a); }
INLINE float abs_(float a) { return fabsf(a); }
INLINE float sign_(float a) { return a > 0 ? 1.f : a < 0 ? -1.f : a; }
INLINE float floor_(float a) { return floorf(a); }
/* a less the nearest multiple of 2 pi, in two steps */
INLINE float wrap_(float a)
{
    const float n = rintf(a * bits(0x3e22f983));
    return fmaf(-n, bits(0x3afdaa22), fmaf(-n, bits(0x40c90000), a));
}
INLINE float sin_(float a) { return __sinf(wrap_(a)); }
INLINE float cos_(float a) { return __cosf(wrap_(a)); }
/* Small a would lose what 1 - 2 / (e^2a + 1) cancels. */
INLINE float tanh_(float a)
{
    const float s = a * a, t = 1 - 2 / (exp_(2 * a) + 1);
    const float near = a * (1 + s * (bits(0xbeaaaaab) + s *
                       (bits(0x3e088889) + s * bits(0xbd5d0dd1))));
    return abs_(a) < bits(0x3e000000) ? near : t;
}
INLINE float sigmoid_(float a) { return 1 / (1 + exp_(-a)); }
INLINE float softplus_(float a)
{
    const float e = exp_(-abs_(a));
    const float small = e * (1 - e * (bits(0x3f000000) - e * bits(0x3eaaaaab)));
    return max_(a, 0.f) + (e < bits(0x3c800000) ? small : log_(1 + e));
}

/* Entry k of a pair-wise operation; a(k) is the operand's, `len` long. */
template<class A> INLINE float rot90(A a, int len, int k)
{
    return k & 1 ? a(k - 1) : k + 1 < len ? -a(k + 1) : 0.f;
}
template<class A> INLINE float dup(A a, int len, int k)
{
    return k / 2 < len ? a(k / 2) : 0.f;
}
template<class A> INLINE float pairsum(A a, int len, int k)
{
    return (2 * k < len ? a(2 * k) : 0.f)
         + (2 * k + 1 < len ? a(2 * k + 1) : 0.f);
}

/* ---- tensors to tiles and back ---- */

/* 16 bytes, and what they hold. */
struct alignas(16) Piece { u32 x[4]; };

template<class T, class G> INLINE void copy1(T *to, const G *from)
{
    put(to, get(*from));
}

#ifdef HOST
INLINE void copy_ahead(Piece *to, const Piece *from) { *to = *from; }
INLINE void copy_commit() {}
template<int LEFT> INLINE void copy_wait() {}
#else
/* To shared memory, behind the threads' back. */
INLINE void copy_ahead(Piece *to, const Piece *from)
{
    asm volatile("{.reg .u64 a; .reg .u32 b; cvta.to.shared.u64 a, %0;"
        " cvt.u32.u64 b, a; cp.async.cg.shared.global [b], [%1], 16;}"
        :: "l"(to), "l"(from) : "memory");
}
INLINE void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template<int LEFT> INLINE void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory");
}
#endif

/* `rows` rows of LEN columns; the tile's lie PITCH apart, the tensor's sr,
 * and its columns sc. AHEAD: in shared memory, where the copies may go on
 * after the call. */
template<int LEN, int PITCH, bool AHEAD, class T, class G>
CALLED void copy_in(T *tile, const G *p, i64 sr, i64 sc, int rows, bool wide)
{
    enum { EACH = 16 / sizeof(G), PIECES = (LEN + EACH - 1) / EACH,
           SAME = sizeof(T) == sizeof(G) && PITCH % EACH == 0, BATCH = 4 };
    if (wide && LEN % EACH == 0) {
        const int all = rows * PIECES;
        for (int x = TID; SAME && AHEAD && x < all; x += THREADS) {
            const int r = x / PIECES, c = x % PIECES * EACH;
            copy_ahead((Piece *)(tile + r * PITCH + c),
                       (const Piece *)(p + r * sr + c));
        }
        for (int x = TID; !(SAME && AHEAD) && x < all; x += BATCH * THREADS) {
            Piece in[BATCH];
            UNROLL
            for (int b = 0; b < BATCH; b++) {
                const int y = x + b * THREADS;
                if (y < all)
                    in[b] = *(const Piece *)(p + y / PIECES * sr
                                             + y % PIECES * EACH);
            }
            UNROLL
            for (int b = 0; b < BATCH; b++) {
                const int y = x + b * THREADS;
                T *to = tile + y / PIECES * PITCH + y % PIECES * EACH;
                if (y >= all)
                    break;
                if (SAME) {
                    *(Piece *)to = in[b];
                    continue;
                }
                UNROLL
                for (int e = 0; e < EACH; e++)
                    copy1(to + e, (const G *)&in[b] + e);
            }
        }
        return;
    }
    for (int x = TID; x < rows * LEN; x += THREADS) {
        const int r = x / LEN, c = x % LEN;
        copy1(tile + r * PITCH + c, p + r * sr + c * sc);
    }
}
template<int LEN, int PITCH, class T, class G>
CALLED void copy_out(const T *tile, G *p, i64 sr, i64 sc, int rows, bool wide)
{
    enum { EACH = 16 / sizeof(G), PIECES = (LEN + EACH - 1) / EACH };
    if (wide && LEN % EACH == 0) {
        for (int x = TID; x < rows * PIECES; x += THREADS) {
            const int r = x / PIECES, c = x % PIECES * EACH;
            Piece out;
            G *g = (G *)&out;
            UNROLL
            for (int e = 0; e < EACH; e++)
                copy1(g + e, tile + r * PITCH + c + e);
            *(Piece *)(p + r * sr + c) = out;
        }
        return;
    }
    for (int x = TID; x < rows * LEN; x += THREADS) {
        const int r = x / LEN, c = x % LEN;
        copy1(p + r * sr + c * sc, tile + r * PITCH + c);
    }
}

/* ---- products ---- */

/* What the factors of a product are rounded to. TF32X3: float32 as a sum of
 * two, of whose four products three count. */
enum Precision { BF16, TF32, TF32X3 };

/* A matrix in memory: rows RS apart, columns CS. In a product its columns
 * are what is summed over. EVEN: pairs of columns can be read as one. */
template<class T, int RS, int CS, bool EVEN> struct Matrix {
    const T *p;
    INLINE_MEMBER float at(int r, int c) const
    {
        return get(p[r * RS + c * CS]);
    }
};
template<int RS, int CS, bool EVEN, class T>
INLINE Matrix<T, RS, CS, EVEN> matrix(const T *p)
{
    Matrix<T, RS, CS, EVEN> m;
    m.p = p;
    return m;
}

#ifdef HOST
template<Precision P, int MT, int NT, bool WHOLE, bool ROWS, bool COLS,
         class A, class B, class Sink>
INLINE void product(int m, int n, int k, A a, B b, Sink sink)
{
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int x = 0; x < k; x++)
                sum += a.at(i, x) * b.at(j, x);
            sink(i, j, sum);
        }
}
#else
/* Which of a step's columns (two neighbours, and two eight further on) there
 * are; ALL: no need to look. */
template<bool ALL> struct Columns {
    bool real[4];
    INLINE_MEMBER Columns(int c, int end)
    {
        UNROLL
        for (int x = 0; x < 4; x++)
            real[x] = ALL || c + x / 2 * 8 + x % 2 < end;
    }
};

/* Two neighbours of a row, half 0 or 1 of the step; zeros where there are
 * none. */
template<bool ALL, class T, int RS, int CS, bool EVEN>
INLINE float2 pair(const Matrix<T, RS, CS, EVEN> &m, int r, int c, int half,
                   const Columns<ALL> &in)
{
    const T *p = m.p + r * RS + (c + 8 * half) * CS;
    float2 x;
    x.x = in.real[2 * half] ? get(p[0]) : 0.f;
    x.y = in.real[2 * half + 1] ? get(p[CS]) : 0.f;
    return x;
}
template<bool ALL, int RS>
INLINE float2 pair(const Matrix<float, RS, 1, true> &m, int r, int c,
                   int half, const Columns<ALL> &in)
{
    float2 x = *(const float2 *)(m.p + r * RS + c + 8 * half);
    x.x = in.real[2 * half] ? x.x : 0.f;
    x.y = in.real[2 * half + 1] ? x.y : 0.f;
    return x;
}
INLINE u32 pack(float2 x)
{
    u32 y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(x.y), "f"(x.x));
    return y;
}
template<bool ALL, class M>
INLINE u32 packed(const M &m, int r, int c, int half, const Columns<ALL> &in)
{
    return pack(pair(m, r, c, half, in));
}
template<bool ALL, int RS, int CS, bool EVEN>
INLINE u32 packed(const Matrix<bf16, RS, CS, EVEN> &m, int r, int c, int half,
                  const Columns<ALL> &in)
{
    const bf16 *p = m.p + r * RS + (c + 8 * half) * CS;
    u32 x;
    if (EVEN && CS == 1)
        x = *(const u32 *)p;
    else
        x = p[0].bits | (u32)p[CS].bits << 16;
    x = in.real[2 * half + 1] ? x : x & 0xffff;
    return in.real[2 * half] ? x : 0;
}

/* Warp-wide fragments of 16 columns: A of 16 rows, B of 8. */
template<Precision P> struct Factor { float2 x[4]; };
template<> struct Factor<BF16> { u32 x[4]; };

template<bool ALL, class M>
INLINE void load_pair(Factor<BF16> &f, int i, const M &m, int r, int c,
                      int half, const Columns<ALL> &in)
{
    f.x[i] = packed(m, r, c, half, in);
}
template<bool ALL, Precision P, class M>
INLINE void load_pair(Factor<P> &f, int i, const M &m, int r, int c, int half,
                      const Columns<ALL> &in)
{
    f.x[i] = pair(m, r, c, half, in);
}
INLINE void set_pair(Factor<BF16> &f, int i, float2 x) { f.x[i] = pack(x); }
template<Precision P>
INLINE void set_pair(Factor<P> &f, int i, float2 x) { f.x[i] = x; }

INLINE void mma_tf32(float c[4], const u32 a[4], u32 b0, u32 b1)
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},"
        " {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
INLINE u32 to_tf32(float x)
{
    u32 y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}
/* What to_tf32 leaves of x; nothing of an infinity. */
INLINE u32 rest_tf32(float x, u32 hi)
{
    const float d = x - bits(hi);
    return to_tf32(d == d ? d : 0.f);
}
/* c += a b, where b holds pairs 0 and 1. The order of the columns is free, so
 * that neighbours in memory are t and t + 4 of the instruction. */
INLINE void multiply(float c[4], const Factor<BF16> &a, const Factor<BF16> &b)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},"
        " {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]),
          "r"(b.x[0]), "r"(b.x[1]));
}
template<Precision P>
INLINE void multiply(float c[4], const Factor<P> &a, const Factor<P> &b)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const float2 lo = a.x[2 * h], hi = a.x[2 * h + 1], y = b.x[h];
        const float x[4] = { lo.x, hi.x, lo.y, hi.y };
        u32 big[4], small[4];
        UNROLL
        for (int e = 0; e < 4; e++) {
            big[e] = to_tf32(x[e]);
            small[e] = rest_tf32(x[e], big[e]);
        }
        const u32 b0 = to_tf32(y.x), b1 = to_tf32(y.y);
        if (P == TF32X3) {
            mma_tf32(c, small, b0, b1);
            mma_tf32(c, big, rest_tf32(y.x, b0), rest_tf32(y.y, b1));
        }
        mma_tf32(c, big, b0, b1);
    }
}

/* sink(i, j, sum over x of a(i, x) b(j, x)) for i < m, j < n, x < k, shared
 * out among the warps in pieces of 16 MT x 8 NT. What lies behind the tiles'
 * ends may be read, never used. WHOLE: k is a multiple of 16; ROWS, COLS: m
 * and n fill pieces. */
template<Precision P, int MT, int NT, bool WHOLE, bool ROWS, bool COLS,
         class A, class B, class Sink>
INLINE void product(int m, int n, int k, A a, B b, Sink sink)
{
    const int rows = (m + 16 * MT - 1) / (16 * MT);
    const int cols = (n + 8 * NT - 1) / (8 * NT);
    const int row = LANE / 4, col = LANE % 4 * 2;
    NO_UNROLL
    for (int w = WARP; w < rows * cols; w += WARPS) {
        const int m0 = w % rows * 16 * MT + row, n0 = w / rows * 8 * NT;
        float c[MT][NT][4] = { };
        NO_UNROLL
        for (int at = col; at < k + col; at += 16) {
            const Columns<WHOLE> in(at, k);
            Factor<P> fa[MT];
            UNROLL
            for (int i = 0; i < MT; i++)
                UNROLL
                for (int x = 0; x < 4; x++)
                    load_pair(fa[i], x, a, m0 + 16 * i + x % 2 * 8, at, x / 2,
                              in);
            UNROLL
            for (int j = 0; j < NT; j++) {
                Factor<P> fb;
                UNROLL
                for (int x = 0; x < 2; x++)
                    load_pair(fb, x, b, n0 + 8 * j + row, at, x, in);
                UNROLL
                for (int i = 0; i < MT; i++)
                    multiply(c[i][j], fa[i], fb);
            }
        }
        UNROLL
        for (int i = 0; i < 2 * MT; i++) {
            const int y = m0 + 8 * i;
            if (!ROWS && y >= m)
                break;
            UNROLL
            for (int j = 0; j < 2 * NT; j++) {
                const int x = n0 + j / 2 * 8 + col + j % 2;
                if (COLS || x < n)
                    sink(y, x, c[i / 2][j / 2][i % 2 * 2 + j % 2]);
            }
        }
    }
}
#endif

/* ---- products under gates ---- */

/* e^(c_i - d_j) does not factor in range over a whole chunk. Between a block
 * of 16 tokens and those before, the last token before it is an anchor: both
 * exponents are below zero. Within a block its middle token is; where gates
 * lie too far apart for that, element by element. */
enum { TOO_FAR = 40 };

#ifdef HOST
template<Precision P, bool STRICT, class A, class B, class C, class D,
         class Sink>
INLINE void gated_keys(int n, int keys, A a, B b, C c, D d, Sink sink)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < keys && i >= j + STRICT; k++)
                sum += a.at(i, k) * b.at(j, k) * exp_(c.at(i, k) - d.at(j, k));
            sink(i, j, sum);
        }
}
template<Precision P, bool STRICT, bool BACK, class M, class B, class C,
         class D, class Sink>
INLINE void gated_tokens(int n, int keys, M m, B b, C c, D d, Sink sink)
{
    for (int o = 0; o < n; o++)
        for (int k = 0; k < keys; k++) {
            float sum = 0;
            for (int s = 0; s < n; s++) {
                const int i = BACK ? s : o, j = BACK ? o : s;
                if (i >= j + STRICT)
                    sum += m.at(o, s) * b.at(s, k)
                         * exp_(c.at(i, k) - d.at(j, k));
            }
            sink(o, k, sum);
        }
}
#else
INLINE float under_gate(float x, float e, float &top)
{
    top = fmaxf(top, e);
    return x * exp_(e);
}

/* sink(i, j, sum over keys of a(i) b(j) e^(c(i) - d(j))), zero where the mask
 * is. */
template<Precision P, bool STRICT, class A, class B, class C, class D,
         class Sink>
INLINE void gated_keys(int n, int keys, A a, B b, C c, D d, Sink sink)
{
    const int blocks = (n + 15) / 16, row = LANE / 4, col = LANE % 4 * 2;
    NO_UNROLL
    for (int w = WARP; w < blocks * blocks; w += WARPS) {
        const int i0 = w / blocks * 16, j0 = w % blocks * 16;
        const int anchor = i0 > j0 ? i0 - 1 : min(i0 + 8, n - 1);
        float x[2][4] = { }, top = 0;
        NO_UNROLL
        for (int at = col; i0 >= j0 && at < keys + col; at += 16) {
            Factor<P> fa, fb[2];
            UNROLL
            for (int h = 0; h < 2; h++) {
                const int k = min(at + 8 * h, keys - 1);
                const int l = min(at + 8 * h + 1, keys - 1);
                const float mk = d.at(anchor, k), ml = d.at(anchor, l);
                const bool has_k = at + 8 * h < keys;
                const bool has_l = at + 8 * h + 1 < keys;
                UNROLL
                for (int q = 0; q < 4; q++) {
                    const int r = min((q < 2 ? i0 : j0) + row + q % 2 * 8,
                                      n - 1);
                    float2 y;
                    if (q < 2) {
                        y.x = under_gate(a.at(r, k), c.at(r, k) - mk, top);
                        y.y = under_gate(a.at(r, l), c.at(r, l) - ml, top);
                    } else {
                        y.x = under_gate(b.at(r, k), mk - d.at(r, k), top);
                        y.y = under_gate(b.at(r, l), ml - d.at(r, l), top);
                    }
                    y.x = has_k ? y.x : 0.f;
                    y.y = has_l ? y.y : 0.f;
                    if (q < 2)
                        set_pair(fa, 2 * h + q, y);
                    else
                        set_pair(fb[q - 2], h, y);
                }
            }
            multiply(x[0], fa, fb[0]);
            multiply(x[1], fa, fb[1]);
        }
        const bool plain = warp_any(top > TOO_FAR);
        UNROLL
        for (int e = 0; e < 8; e++) {
            const int i = i0 + row + e / 2 % 2 * 8;
            const int j = j0 + e / 4 * 8 + col + e % 2;
            float y = x[e / 4][e % 4];
            if (i >= n || j >= n)
                continue;
            if (plain && i >= j) {
                y = 0;
                NO_UNROLL
                for (int k = 0; k < keys; k++)
                    y += a.at(i, k) * b.at(j, k)
                       * exp_(c.at(i, k) - d.at(j, k));
            }
            sink(i, j, i >= j + STRICT ? y : 0.f);
        }
    }
}

/* sink(o, k, sum over tokens s of m(o, s) b(s, k) e^(c - d)): o is the later
 * token, its gate c; BACK: the earlier one, its gate d. */
template<Precision P, bool STRICT, bool BACK, class M, class B, class C,
         class D, class Sink>
INLINE void gated_tokens(int n, int keys, M m, B b, C c, D d, Sink sink)
{
    const int blocks = (n + 15) / 16, wide = (keys + 15) / 16;
    const int row = LANE / 4, col = LANE % 4 * 2;
    NO_UNROLL
    for (int w = WARP; w < blocks * wide; w += WARPS) {
        const int o0 = w % blocks * 16, k0 = w / blocks * 16;
        float all[2][4] = { }, top = 0;
        NO_UNROLL
        for (int own = 0; own < 2; own++) {
            const int from = own ? o0 : BACK ? o0 + 16 : 0;
            const int to = own ? min(o0 + 16, n) : BACK ? n : o0;
            const int anchor = own ? min(o0 + 8, n - 1)
                             : BACK ? min(o0 + 15, n - 1) : max(o0 - 1, 0);
            float x[2][4] = { };
            NO_UNROLL
            for (int at = from + col; at < to + col; at += 16) {
                Factor<P> fa, fb[2];
                UNROLL
                for (int q = 0; q < 4; q++) {
                    const int o = min(o0 + row + q % 2 * 8, n - 1);
                    const int s = at + q / 2 * 8;
                    float2 y;
                    y.x = s < to && (BACK ? s - o : o - s) >= STRICT
                        ? m.at(o, s) : 0.f;
                    y.y = s + 1 < to && (BACK ? s + 1 - o : o - s - 1)
                        >= STRICT ? m.at(o, s + 1) : 0.f;
                    set_pair(fa, q, y);
                }
                UNROLL
                for (int q = 0; q < 4; q++) {
                    const int k = min(k0 + q / 2 * 8 + row, keys - 1);
                    const int s = min(at + q % 2 * 8, n - 1);
                    const int u = min(at + q % 2 * 8 + 1, n - 1);
                    const float mid = d.at(anchor, k);
                    float2 y;
                    y.x = under_gate(b.at(s, k), BACK ? c.at(s, k) - mid
                                     : mid - d.at(s, k), top);
                    y.y = under_gate(b.at(u, k), BACK ? c.at(u, k) - mid
                                     : mid - d.at(u, k), top);
                    y.x = at + q % 2 * 8 < to ? y.x : 0.f;
                    y.y = at + q % 2 * 8 + 1 < to ? y.y : 0.f;
                    set_pair(fb[q / 2], q % 2, y);
                }
                multiply(x[0], fa, fb[0]);
                multiply(x[1], fa, fb[1]);
            }
            UNROLL
            for (int e = 0; e < 8; e++) {
                const int o = min(o0 + row + e / 2 % 2 * 8, n - 1);
                const int k = min(k0 + e / 4 * 8 + col + e % 2, keys - 1);
                const float mid = d.at(anchor, k);
                if (from < to)
                    all[e / 4][e % 4] += under_gate(x[e / 4][e % 4],
                        BACK ? mid - d.at(o, k) : c.at(o, k) - mid, top);
            }
        }
        const bool plain = warp_any(top > TOO_FAR);
        UNROLL
        for (int e = 0; e < 8; e++) {
            const int o = o0 + row + e / 2 % 2 * 8;
            const int k = k0 + e / 4 * 8 + col + e % 2;
            float y = all[e / 4][e % 4];
            if (o >= n || k >= keys)
                continue;
            if (plain) {
                y = 0;
                NO_UNROLL
                for (int s = BACK ? o + STRICT : 0;
                     s < (BACK ? n : o + 1 - STRICT); s++)
                    y += m.at(o, s) * b.at(s, k)
                       * exp_(BACK ? c.at(s, k) - d.at(o, k)
                                   : c.at(o, k) - d.at(s, k));
            }
            sink(o, k, y);
        }
    }
}
#endif

/* ---- sums ---- */

/* The sum of x over all threads, for every thread; `scratch` has a float a
 * warp. */
INLINE float block_sum(float x, float *scratch)
{
    x = warp_sum(x);
    __syncthreads();
    if (LANE == 0)
        scratch[WARP] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < WARPS; w++)
        x += scratch[w];
    return x;
}

/* ---- along the tokens ---- */

/* What a stretch of tokens does to a state s. */
struct Adding {
    float b;
    INLINE_MEMBER Adding() : b(0.f) {}
    INLINE_MEMBER void token(float, float y) { b += y; }
    INLINE_MEMBER float on(float s) const { return s + b; }
    INLINE_MEMBER void before(int by, bool real)
    {
        const float x = lane_up(b, by);
        b += real ? x : 0.f;
    }
    INLINE_MEMBER void shift(bool real)
    {
        const float x = lane_up(b, 1);
        b = real ? x : 0.f;
    }
};
struct Scaling {
    float a, b;
    INLINE_MEMBER Scaling() : a(1.f), b(0.f) {}
    INLINE_MEMBER void token(float x, float y) { a *= x; b = x * b + y; }
    INLINE_MEMBER float on(float s) const { return a * s + b; }
    INLINE_MEMBER void before(int by, bool real)
    {
        const float x = lane_up(a, by), y = lane_up(b, by);
        if (real) {
            b = a * y + b;
            a *= x;
        }
    }
    INLINE_MEMBER void shift(bool real)
    {
        const float x = lane_up(a, 1), y = lane_up(b, 1);
        a = real ? x : 1.f;
        b = real ? y : 0.f;
    }
};
/* s -> max(a + s, b) */
struct Reaching {
    float a, b;
    INLINE_MEMBER Reaching() : a(0.f), b(bits(0xff800000)) {}
    INLINE_MEMBER void token(float x, float y)
    {
        a += x;
        b = max_(x + b, y);
    }
    INLINE_MEMBER float on(float s) const { return max_(a + s, b); }
    INLINE_MEMBER void before(int by, bool real)
    {
        const float x = lane_up(a, by), y = lane_up(b, by);
        if (real) {
            b = max_(a + y, b);
            a += x;
        }
    }
    INLINE_MEMBER void shift(bool real)
    {
        const float x = lane_up(a, 1), y = lane_up(b, 1);
        a = real ? x : 0.f;
        b = real ? y : bits(0xff800000);
    }
};

/* n tokens of one column by one warp: a(i), b(i), out(i, state found, state
 * left). */
template<class Op, class A, class B, class Out>
INLINE void scan_lanes(int n, float s, A a, B b, Out out)
{
    const int each = (n + LANES - 1) / LANES;
    const int from = min(LANE * each, n), to = min(from + each, n);
    Op all;
    for (int i = from; i < to; i++)
        all.token(a(i), b(i));
    for (int by = 1; by < LANES; by *= 2)
        all.before(by, LANE >= by);
    all.shift(LANE > 0);
    s = all.on(s);
    for (int i = from; i < to; i++) {
        Op one;
        one.token(a(i), b(i));
        const float next = one.on(s);
        out(i, s, next);
        s = next;
    }
}
/* The same by one thread. */
template<class Op, class A, class B, class Out>
INLINE void scan_alone(int n, float s, A a, B b, Out out)
{
    for (int i = 0; i < n; i++) {
        Op one;
        one.token(a(i), b(i));
        const float next = one.on(s);
        out(i, s, next);
        s = next;
    }
}

/* x = (1 - a)^{-1} x in place, a strictly lower (TRANS: its transpose), by
 * blocks of 16 rows: what the others contribute is a product, the rest goes
 * row by row. Called by all threads. */
template<bool TRANS, int ARS, int ACS, int XRS, int XCS, class T>
CALLED void solve(int rows, int cols, const T *a, float *x)
{
    enum { BLOCK = 16, RS = TRANS ? ACS : ARS, CS = TRANS ? ARS : ACS };
    const int last = (rows - 1) / BLOCK * BLOCK;
    for (int b = 0; b <= last; b += BLOCK) {
        const int at = TRANS ? last - b : b;
        const int size = min(rows - at, (int)BLOCK);
        const int from = TRANS ? at + BLOCK : 0;
        const int known = TRANS ? max(rows - from, 0) : at;
        if (known) {
            product<TF32X3, 1, 2, false, false, false>(size, cols, known,
                matrix<RS, CS, false>(a + at * RS + from * CS),
                matrix<XCS, XRS, false>(x + from * XRS),
                [&](int r, int c, float sum) {
                    x[(at + r) * XRS + c * XCS] += sum;
                });
            __syncthreads();
        }
        for (int c = TID; c < cols; c += THREADS) {
            float v[BLOCK];
            UNROLL
            for (int r = 0; r < BLOCK; r++)
                v[r] = r < size ? x[(at + r) * XRS + c * XCS] : 0.f;
            UNROLL
            for (int q = 1; q < BLOCK; q++) {
                const int r = TRANS ? BLOCK - 1 - q : q;
                float sum = 0;
                UNROLL
                for (int s = TRANS ? r + 1 : 0; s < (TRANS ? BLOCK : r); s++)
                    if (s < size && r < size)
                        sum += get(a[(at + r) * RS + (at + s) * CS]) * v[s];
                v[r] += sum;
            }
            UNROLL
            for (int r = 0; r < BLOCK; r++)
                if (r < size)
                    x[(at + r) * XRS + c * XCS] = v[r];
        }
        __syncthreads();
    }
}
