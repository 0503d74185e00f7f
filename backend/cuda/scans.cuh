/* scans.cuh -- sums of a block, states along the tokens, triangular solves.
 * After products.cuh.
 */

/* ---- sums ---- */

/* The sum of x over all threads, for every thread; `scratch` has a float a
 * warp. */
INLINE float block_sum(float x, float *scratch)
{
    x = lane_sum<LANES>(x);
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
/* An angle: kept small, so that its sum does not lose what it adds. */
struct Turning {
    float b;
    INLINE_MEMBER Turning() : b(0.f) {}
    INLINE_MEMBER void token(float, float y) { b = wrap_(b + wrap_(y)); }
    INLINE_MEMBER float on(float s) const { return wrap_(s + b); }
    INLINE_MEMBER void before(int by, bool real)
    {
        const float x = lane_up(b, by);
        b = wrap_(b + (real ? x : 0.f));
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
    const int lane = LANE;
    const int from = min(lane * each, n), to = min(from + each, n);
    Op all;
    NO_UNROLL
    for (int i = from; i < to; i++)
        all.token(a(i), b(i));
    for (int by = 1; by < LANES; by *= 2)
        all.before(by, lane >= by);
    all.shift(lane > 0);
    s = all.on(s);
    NO_UNROLL
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

/* n numbers of a row; PIECES: four at a time. */
template<bool PIECES, class T>
INLINE void first_of(float *to, int n, const T *p, int step)
{
    UNROLL
    for (int s = 0; s < n; s++)
        to[s] = get(p[s * step]);
}
template<bool PIECES>
INLINE void first_of(float *to, int n, const float *p, int step)
{
    UNROLL
    for (int s = 0; s < n; s += PIECES ? 4 : 1) {
        if (!PIECES) {
            to[s] = p[s * step];
            continue;
        }
        const Piece in = *(const Piece *)(p + s);
        UNROLL
        for (int e = 0; e < 4; e++)
            to[s + e] = bits(in.x[e]);
    }
}

/* x = (1 - a)^{-1} x in place, a strictly lower (TRANS: its transpose), by
 * blocks of 16 rows: what the others contribute is a product, the rest goes
 * row by row. Called by all threads. PIECES: see first_of. */
template<bool TRANS, int ARS, int ACS, int XRS, int XCS, bool PIECES,
         class T>
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
            product<TF32X3, 1, 2, 0, false, false, false, Single>(size, cols,
                known,
                matrix<RS, CS, 1>(a + at * RS + from * CS),
                matrix<XCS, XRS, 1>(x + from * XRS),
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
                const int r = TRANS ? BLOCK - q : q;
                if (r >= size)
                    continue;
                float row[BLOCK];
                first_of<PIECES>(row, r, a + (at + r) * ARS + at * ACS, ACS);
                UNROLL
                for (int s = 0; s < r; s++)
                    if (TRANS)
                        v[s] += row[s] * v[r];
                    else
                        v[r] += row[s] * v[s];
            }
            UNROLL
            for (int r = 0; r < BLOCK; r++)
                if (r < size)
                    x[(at + r) * XRS + c * XCS] = v[r];
        }
        __syncthreads();
    }
}
