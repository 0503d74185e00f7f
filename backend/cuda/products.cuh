/* products.cuh -- products of tiles, on the tensor cores of Ampere and later.
 * After tile.cuh.
 */

/* ---- products ---- */

/* What the factors of a product are rounded to. TF32X3: float32 as a sum of
 * two, of whose four products three count. BFLOAT: both lie as bf16. */
enum Precision { TF32, TF32X3, BFLOAT };

/* A matrix in memory: rows RS apart, columns CS. In a product its columns
 * are what is summed over. AS_ONE: so many neighbours can be read as one. */
template<class T, int RS, int CS, int AS_ONE> struct Matrix {
    const T *p;
    INLINE_MEMBER float at(int r, int c) const
    {
        return get(p[r * RS + c * CS]);
    }
};
/* Sums of gates, of which differences are taken. */
template<int RS, int CS, int AS_ONE> struct Matrix<double, RS, CS, AS_ONE> {
    const double *p;
    INLINE_MEMBER double at(int r, int c) const { return p[r * RS + c * CS]; }
};
struct Doubles { double x, y; };
template<int RS, int CS, int AS_ONE, class T>
INLINE Matrix<T, RS, CS, AS_ONE> matrix(const T *p)
{
    Matrix<T, RS, CS, AS_ONE> m;
    m.p = p;
    return m;
}

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

template<class T> struct alignas(2 * sizeof(T)) Neighbours { T x, y; };
/* Two neighbours of a row, half 0 or 1 of the step; zeros where there are
 * none. */
template<bool ALL, class T, int RS, int CS, int AS_ONE>
INLINE float2 pair(const Matrix<T, RS, CS, AS_ONE> &m, int r, int c, int half,
                   const Columns<ALL> &in)
{
    const T *p = m.p + r * RS + (c + 8 * half) * CS;
    float2 x;
    if (CS == 1 && AS_ONE == 2 && in.real[2 * half + 1]) {
        const Neighbours<T> two = *(const Neighbours<T> *)p;
        x.x = get(two.x);
        x.y = get(two.y);
        return x;
    }
    x.x = in.real[2 * half] ? get(p[0]) : 0.f;
    x.y = in.real[2 * half + 1] ? get(p[CS]) : 0.f;
    return x;
}
template<bool ALL, int RS>
INLINE float2 pair(const Matrix<float, RS, 1, 2> &m, int r, int c,
                   int half, const Columns<ALL> &in)
{
    const float *p = m.p + r * RS + c + 8 * half;
    float2 x;
    if (in.real[2 * half + 1])
        return *(const float2 *)p;
    x.x = in.real[2 * half] ? *p : 0.f;
    x.y = 0;
    return x;
}
template<bool ALL, int RS, int CS, int AS_ONE>
INLINE Doubles pair(const Matrix<double, RS, CS, AS_ONE> &m, int r, int c,
                    int half, const Columns<ALL> &in)
{
    const double *p = m.p + r * RS + (c + 8 * half) * CS;
    Doubles x;
    x.x = in.real[2 * half] ? p[0] : 0;
    x.y = in.real[2 * half + 1] ? p[CS] : 0;
    return x;
}
/* Warp-wide fragments of 16 rows and columns: of A, x[2 h + r] has columns
 * half h and rows half r, of B x[2 r + h]: what an instruction takes lies
 * together. */
enum Side { A_SIDE, B_SIDE };
INLINE int row_half(Side s, int x) { return s ? x / 2 : x % 2; }
INLINE int column_half(Side s, int x) { return s ? x % 2 : x / 2; }
template<Precision P> struct Factor { float2 x[4]; };
template<> struct Factor<TF32> { u32 x[4][2]; };
template<> struct Factor<BFLOAT> { u32 x[4]; };

INLINE void set_pair(Factor<TF32> &f, int i, float2 x)
{
    f.x[i][0] = to_tf32(x.x);
    f.x[i][1] = to_tf32(x.y);
}
INLINE void set_pair(Factor<TF32X3> &f, int i, float2 x) { f.x[i] = x; }

template<bool ALL, Precision P, class M>
INLINE void load_pair(Factor<P> &f, int i, const M &m, int r, int c, int half,
                      const Columns<ALL> &in)
{
    set_pair(f, i, pair(m, r, c, half, in));
}
template<bool ALL, int RS, int CS, int AS_ONE>
INLINE void load_pair(Factor<BFLOAT> &f, int i,
                      const Matrix<bf16, RS, CS, AS_ONE> &m, int r, int c,
                      int half, const Columns<ALL> &in)
{
    const bf16 *p = m.p + r * RS + (c + 8 * half) * CS;
    if (CS == 1 && AS_ONE == 2 && in.real[2 * half + 1]) {
        f.x[i] = *(const u32 *)p;
        return;
    }
    const u32 lo = in.real[2 * half] ? p[0].bits : 0;
    const u32 hi = in.real[2 * half + 1] ? p[CS].bits : 0;
    f.x[i] = lo | hi << 16;
}

/* F fragments of 16 rows each of a matrix that has `rows`, the first at row r;
 * EACH: all of those rows are there, else the last stands for those behind
 * it. get: columns from c on, of k; ALL: all of them are there. */
template<Precision P, Side S, class M, int F, bool EACH> struct Rows {
    const M m;
    const int r, rows, lane;
    INLINE_MEMBER Rows(const M &m_, int r_, int rows_)
        : m(m_), r(r_), rows(rows_), lane(LANE) {}
    template<bool ALL> INLINE_MEMBER void get(Factor<P> &f, int i, int c,
                                              int k) const
    {
        const int col = c + lane % 4 * 2;
        const Columns<ALL> in(col, k);
        UNROLL
        for (int x = 0; x < 4; x++) {
            const int row = r + 16 * i + lane / 4 + row_half(S, x) * 8;
            load_pair(f, x, m, EACH ? row : min(row, rows - 1), col,
                      column_half(S, x), in);
        }
    }
};
/* x as a factor in tf32. */
INLINE float factor_(float x) { return bits(to_tf32(x)); }
/* What to_tf32 leaves of x; nothing of an infinity. */
INLINE u32 rest_tf32(float x, u32 hi)
{
    const float d = x - bits(hi);
    return to_tf32(d == d ? d : 0.f);
}
/* c += a b, where b is rows 8 half .. 8 half + 7 of the factor. The order of
 * the columns is free, so that neighbours in memory are t and t + 4 of the
 * instruction. */
INLINE void multiply(float c[4], const Factor<TF32> &a, const Factor<TF32> &b,
                     int half)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const u32 x[] = { a.x[2 * h][0], a.x[2 * h + 1][0], a.x[2 * h][1],
                          a.x[2 * h + 1][1] };
        mma_tf32(c, x, b.x[2 * half + h][0], b.x[2 * half + h][1]);
    }
}
INLINE void multiply(float c[4], const Factor<BFLOAT> &a,
                     const Factor<BFLOAT> &b, int half)
{
    mma_bf16(c, a.x, b.x[2 * half], b.x[2 * half + 1]);
}
INLINE void multiply(float c[4], const Factor<TF32X3> &a,
                     const Factor<TF32X3> &b, int half)
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const float2 lo = a.x[2 * h], hi = a.x[2 * h + 1];
        const float2 y = b.x[2 * half + h];
        const float x[4] = { lo.x, hi.x, lo.y, hi.y };
        u32 big[4], small[4];
        UNROLL
        for (int e = 0; e < 4; e++) {
            big[e] = to_tf32(x[e]);
            small[e] = rest_tf32(x[e], big[e]);
        }
        const u32 b0 = to_tf32(y.x), b1 = to_tf32(y.y);
        mma_tf32(c, small, b0, b1);
        mma_tf32(c, big, rest_tf32(y.x, b0), rest_tf32(y.y, b1));
        mma_tf32(c, big, b0, b1);
    }
}

/* c += a b, of 16 of the k columns; ALL: there are so many from `at` on. */
template<bool ALL, Precision P, int MT, int NT, class A, class B>
INLINE void multiply_step(float (&c)[MT][NT][4], const A &a, const B &b,
                          int at, int k)
{
    Factor<P> fa[MT], fb;
    UNROLL
    for (int i = 0; i < MT; i++)
        a.template get<ALL>(fa[i], i, at, k);
    UNROLL
    for (int j = 0; j < NT; j++) {
        if (j % 2 == 0)
            b.template get<ALL>(fb, j / 2, at, k);
        UNROLL
        for (int i = 0; i < MT; i++)
            multiply(c[i][j], fa[i], fb, j % 2);
    }
}

/* c += a b, all of k; WHOLE: a multiple of 16. */
template<bool WHOLE, Precision P, int MT, int NT, class A, class B>
INLINE void sum_up(float (&c)[MT][NT][4], const A &a, const B &b, int k)
{
    NO_UNROLL
    for (int at = 0; at < k; at += 16)
        multiply_step<WHOLE, P>(c, a, b, at, k);
}

/* Each sum to the sink. */
template<int NT, bool ROWS, bool COLS, class Sink>
INLINE void give(int row, int col, int m, int n, const Sink &sink,
                 const float (&c)[NT][4])
{
    UNROLL
    for (int h = 0; h < 2; h++) {
        const int y = row + 8 * h;
        if (!ROWS && y >= m)
            break;
        UNROLL
        for (int j = 0; j < 2 * NT; j++) {
            const int x = col + j / 2 * 8 + j % 2;
            if (COLS || x < n)
                sink(y, x, c[j / 2][h * 2 + j % 2]);
        }
    }
}

/* sink(i, j, sum over x of a(i, x) b(j, x)) for i < m, j < n, x < k, shared
 * out among the warps in pieces of 16 MT x 8 NT. WHOLE: k is a multiple of 16;
 * ROWS, COLS: m and n fill pieces; else the last row stands for those behind
 * it. */
template<Precision P, int MT, int NT, bool WHOLE, bool ROWS, bool COLS, class A,
         class B, class Sink>
INLINE void product(int m, int n, int k, A a, B b, Sink sink)
{
    const int rows = (m + 16 * MT - 1) / (16 * MT);
    const int cols = (n + 8 * NT - 1) / (8 * NT);
    NO_UNROLL
    for (int w = WARP; w < rows * cols; w += WARPS) {
        const int m0 = w % rows * 16 * MT, n0 = w / rows * 8 * NT;
        const int lane = LANE, row = m0 + lane / 4, col = n0 + lane % 4 * 2;
        const Rows<P, A_SIDE, A, MT, ROWS> of_a(a, m0, m);
        const Rows<P, B_SIDE, B, (NT + 1) / 2, COLS && NT % 2 == 0>
            of_b(b, n0, n);
        float c[MT][NT][4] = { };
        sum_up<WHOLE, P>(c, of_a, of_b, k);
        UNROLL
        for (int i = 0; i < MT; i++)
            give<NT, ROWS, COLS>(row + 16 * i, col, m, n, sink, c[i]);
    }
}

/* ---- products under gates ---- */

/* e^(c_i - d_j) does not factor in range over a whole chunk. Between a block
 * of 16 tokens and those before, the last token before it is an anchor: both
 * exponents are below zero. Within a block its middle token is; where gates
 * lie too far apart for that, element by element. */
enum { TOO_FAR = 40 };

INLINE float under_gate(float x, float e, float &top)
{
    top = fmaxf(top, e);
    return x * exp_(e);
}
/* c, d: float2, or both Doubles. */
template<class G> INLINE float2 under_gates(float2 x, G c, G d, float &top)
{
    x.x = under_gate(x.x, (float)(c.x - d.x), top);
    x.y = under_gate(x.y, (float)(c.y - d.y), top);
    return x;
}

/* sink(i, j, sum over keys of a(i) b(j) e^(c(i) - d(j))), zero where the mask
 * is. */
template<Precision P, bool STRICT, int KEYS, class A, class B, class C, class D,
         class Sink>
INLINE void gated_keys(int n, A a, B b, C c, D d, Sink sink)
{
    const int blocks = (n + 15) / 16, row = LANE / 4, col = LANE % 4 * 2;
    NO_UNROLL
    for (int w = WARP; w < blocks * blocks; w += WARPS) {
        const int i0 = w / blocks * 16, j0 = w % blocks * 16;
        const int anchor = i0 > j0 ? i0 - 1 : min(i0 + 8, n - 1);
        const int i[] = { min(i0 + row, n - 1), min(i0 + row + 8, n - 1) };
        const int j[] = { min(j0 + row, n - 1), min(j0 + row + 8, n - 1) };
        float x[2][4] = { }, top = 0;
        NO_UNROLL
        for (int at = col; i0 >= j0 && at < KEYS + col; at += 16) {
            const Columns<KEYS % 16 == 0> in(at, KEYS);
            Factor<P> fa, fb;
            UNROLL
            for (int h = 0; h < 2; h++) {
                const auto mid = pair(d, anchor, at, h, in);
                UNROLL
                for (int q = 0; q < 2; q++) {
                    set_pair(fa, 2 * h + q, under_gates(
                        pair(a, i[q], at, h, in), pair(c, i[q], at, h, in),
                        mid, top));
                    set_pair(fb, 2 * q + h, under_gates(
                        pair(b, j[q], at, h, in), mid,
                        pair(d, j[q], at, h, in), top));
                }
            }
            multiply(x[0], fa, fb, 0);
            multiply(x[1], fa, fb, 1);
        }
        const bool plain = warp_any(top > TOO_FAR);
        UNROLL
        for (int e = 0; plain && e < 8; e++)
            x[e / 4][e % 4] = 0;
        NO_UNROLL
        for (int k = 0; plain && k < KEYS; k++)
            UNROLL
            for (int e = 0; e < 8; e++) {
                const int r = i[e / 2 % 2];
                const int s = min(j0 + e / 4 * 8 + col + e % 2, n - 1);
                x[e / 4][e % 4] += a.at(r, k) * b.at(s, k)
                                 * exp_((float)(c.at(r, k) - d.at(s, k)));
            }
        UNROLL
        for (int e = 0; e < 8; e++)
            if (i0 + row + e / 2 % 2 * 8
                < j0 + e / 4 * 8 + col + e % 2 + STRICT)
                x[e / 4][e % 4] = 0;
        give<2, false, false>(i0 + row, j0 + col, n, n, sink, x);
    }
}

/* sink(o, k, sum over tokens s of m(o, s) b(s, k) e^(c - d)): o is the later
 * token, its gate c; BACK: the earlier one, its gate d. */
template<Precision P, bool STRICT, bool BACK, int KEYS, class M, class B,
         class C, class D, class Sink>
INLINE void gated_tokens(int n, M m, B b, C c, D d, Sink sink)
{
    const int blocks = (n + 15) / 16, wide = (KEYS + 15) / 16;
    const int row = LANE / 4, col = LANE % 4 * 2;
    NO_UNROLL
    for (int w = WARP; w < blocks * wide; w += WARPS) {
        const int o0 = w % blocks * 16, k0 = w / blocks * 16;
        const int o[] = { min(o0 + row, n - 1), min(o0 + row + 8, n - 1) };
        const Columns<KEYS % 16 == 0> keys(k0 + col, KEYS);
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
                const Columns<false> in(at, to);
                Factor<P> fa, fb;
                UNROLL
                for (int q = 0; q < 4; q++) {
                    const int s = at + q / 2 * 8, r = o[q % 2];
                    float2 y = pair(m, r, at, q / 2, in);
                    y.x = (BACK ? s - r : r - s) >= STRICT ? y.x : 0.f;
                    y.y = (BACK ? s + 1 - r : r - s - 1) >= STRICT ? y.y : 0.f;
                    set_pair(fa, q, y);
                }
                UNROLL
                for (int q = 0; q < 4; q++) {
                    const int k = k0 + q / 2 * 8 + row, h = q % 2;
                    const int l = KEYS % 16 == 0 ? k : min(k, KEYS - 1);
                    const int s = min(at + h * 8, n - 1);
                    const int u = min(at + h * 8 + 1, n - 1);
                    const auto mid = d.at(anchor, l);
                    float2 y;
                    y.x = under_gate(b.at(s, l), (float)(BACK
                                     ? c.at(s, l) - mid : mid - d.at(s, l)),
                                     top);
                    y.y = under_gate(b.at(u, l), (float)(BACK
                                     ? c.at(u, l) - mid : mid - d.at(u, l)),
                                     top);
                    y.x = in.real[2 * h] ? y.x : 0.f;
                    y.y = in.real[2 * h + 1] ? y.y : 0.f;
                    set_pair(fb, q, y);
                }
                multiply(x[0], fa, fb, 0);
                multiply(x[1], fa, fb, 1);
            }
            UNROLL
            for (int q = 0; from < to && q < 4; q++) {
                const int h = q / 2, r = o[q % 2];
                const auto mid = pair(d, anchor, k0 + col, h, keys);
                float2 y = { x[h][q % 2 * 2], x[h][q % 2 * 2 + 1] };
                y = BACK ? under_gates(y, mid, pair(d, r, k0 + col, h, keys),
                                       top)
                         : under_gates(y, pair(c, r, k0 + col, h, keys), mid,
                                       top);
                all[h][q % 2 * 2] += y.x;
                all[h][q % 2 * 2 + 1] += y.y;
            }
        }
        const bool plain = warp_any(top > TOO_FAR);
        UNROLL
        for (int e = 0; plain && e < 8; e++)
            all[e / 4][e % 4] = 0;
        NO_UNROLL
        for (int s = 0; plain && s < n; s++)
            UNROLL
            for (int e = 0; e < 8; e++) {
                const int k = k0 + e / 4 * 8 + col + e % 2, r = o[e / 2 % 2];
                const int l = KEYS % 16 == 0 ? k : min(k, KEYS - 1);
                if ((BACK ? s - r : r - s) >= STRICT)
                    all[e / 4][e % 4] += m.at(r, s) * b.at(s, l)
                        * exp_((float)(BACK ? c.at(s, l) - d.at(r, l)
                                            : c.at(r, l) - d.at(s, l)));
            }
        give<2, false, KEYS % 16 == 0>(o0 + row, k0 + col, n, KEYS, sink, all);
    }
}
