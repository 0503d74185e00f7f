/* scans.cuh -- states along the tokens, triangular solves.
 * After products.cuh.
 */

/* Over all threads, for all of them, by way of a place for each warp's. */
INLINE float block_sum(float x, float *place)
{
    x = lane_sum<LANES>(x);
    if (LANE == 0)
        place[WARP] = x;
    __syncthreads();
    x = 0;
    for (int w = 0; w < WARPS; w++)
        x += place[w];
    return x;
}

/* ---- along the tokens ---- */

/* What a stretch of tokens does to a state s. */
template<class T> struct Adding {
    T b;
    INLINE_MEMBER Adding() : b(0) {}
    INLINE_MEMBER void token(float, float y) { b += y; }
    INLINE_MEMBER T on(T s) const { return s + b; }
    INLINE_MEMBER void before(int by, bool real)
    {
        const T x = lane_up(b, by);
        b += real ? x : T(0);
    }
    INLINE_MEMBER void shift(bool real)
    {
        const T x = lane_up(b, 1);
        b = real ? x : T(0);
    }
};
/* s + x modulo 2 pi. What rounding leaves out goes to `left`: from iteration to
 * iteration it is the same, since no float is 2 pi, and would add up. */
INLINE float wrapped(float s, float x, float &left)
{
    const float sum = s + x, added = sum - s;
    const float n = rintf(sum * bits(0x3e22f983));
    const float whole = fmaf(-n, bits(0x40c90000), sum);
    const float r = fmaf(-n, bits(0x3afdaa22), whole);
    left += (s - (sum - added)) + (x - added)
          + fmaf(-n, bits(0x3afdaa22), whole - r);
    return r;
}
struct Angle {
    float a, left;
    INLINE_MEMBER Angle(float x = 0.f, float y = 0.f) : a(x), left(y) {}
    INLINE_MEMBER operator float() const { return wrap_(a + left); }
};
INLINE Angle plus(Angle s, Angle x)
{
    float left = s.left + x.left;
    const float a = wrapped(s.a, x.a, left);
    return Angle(a, left);
}
/* An angle: kept small, so that its sum does not lose what it adds. */
struct Turning {
    Angle b;
    INLINE_MEMBER void token(float, float y)
    {
        float left = 0.f;
        const float x = wrapped(0.f, y, left);
        b = plus(b, Angle(x, left));
    }
    INLINE_MEMBER Angle on(Angle s) const { return plus(s, b); }
    INLINE_MEMBER void before(int by, bool real)
    {
        const Angle x(lane_up(b.a, by), lane_up(b.left, by));
        if (real)
            b = plus(b, x);
    }
    INLINE_MEMBER void shift(bool real)
    {
        const Angle x(lane_up(b.a, 1), lane_up(b.left, 1));
        b = real ? x : Angle();
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
template<class Op, class S, class A, class B, class Out>
INLINE void scan_lanes(int n, S s, A a, B b, Out out)
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
        const S next = one.on(s);
        out(i, s, next);
        s = next;
    }
}
/* The same by one thread. */
template<class Op, class S, class A, class B, class Out>
INLINE void scan_alone(int n, S s, A a, B b, Out out)
{
    for (int i = 0; i < n; i++) {
        Op one;
        one.token(a(i), b(i));
        const S next = one.on(s);
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

enum { BLOCK = 16, INVERSE = 20 };      /* rows of a block, and their pitch */

/* The inverses of one less each block of a's on the diagonal, a thread a
 * column; `trans`: their transposes. PIECES: see first_of. */
template<int ARS, int ACS, bool PIECES, class T>
CALLED void invert_blocks(int rows, const T *a, float *inverse, bool trans)
{
    NO_UNROLL
    for (int x = TID; x < rows; x += THREADS) {
        const int at = x / BLOCK * BLOCK, size = min(rows - at, (int)BLOCK);
        float v[BLOCK];
        UNROLL
        for (int r = 0; r < BLOCK; r++)
            v[r] = at + r == x ? 1.f : 0.f;
        UNROLL
        for (int r = 1; r < BLOCK; r++) {
            if (r >= size)
                continue;
            float row[BLOCK];
            first_of<PIECES>(row, r, a + (at + r) * ARS + at * ACS, ACS);
            UNROLL
            for (int s = 0; s < r; s++)
                v[r] += row[s] * v[s];
        }
        float *to = inverse + (trans ? x * INVERSE : at * INVERSE + x % BLOCK);
        const int step = trans ? 1 : INVERSE;
        UNROLL
        for (int r = 0; r < BLOCK; r++)
            if (r < size)
                to[r * step] = v[r];
    }
}

/* c += a b for one fragment, of `rows` and `cols`, both from their first on; 8
 * columns at most: those behind are another warp's. */
template<class A, class B>
INLINE void multiply_block(float (&c)[1][1][4], A a, B b, int rows, int cols,
                           int k)
{
    const Rows<TF32X3, A_SIDE, A, 1, false> of_a(a, 0, rows);
    const Rows<TF32X3, B_SIDE, B, 1, false> of_b(b, 0, min(cols, 8));
    NO_UNROLL
    for (int at = 0; at < k; at += 16)
        multiply_step<false, TF32X3>(c, of_a, of_b, at, k);
}

/* x = (1 - a)^{-1} x in place, a strictly lower (TRANS: its transpose), by
 * blocks of rows: what the others contribute is a product, and the rest one
 * with the block's inverse. A warp has 8 columns, which need no others. Called
 * by all threads; inverse: room for rows of INVERSE. */
template<bool TRANS, int ARS, int ACS, int XRS, int XCS, bool PIECES,
         class T>
CALLED void solve(int rows, int cols, const T *a, float *x, float *inverse)
{
    enum { RS = TRANS ? ACS : ARS, CS = TRANS ? ARS : ACS };
    const int last = (rows - 1) / BLOCK * BLOCK, lane = LANE;
    invert_blocks<ARS, ACS, PIECES>(rows, a, inverse, TRANS);
    __syncthreads();
    for (int col = 8 * WARP; col < cols; col += 8 * WARPS)
        for (int b = 0; b <= last; b += BLOCK) {
            const int at = TRANS ? last - b : b;
            const int size = min(rows - at, (int)BLOCK);
            const int from = TRANS ? at + BLOCK : 0;
            float sum[1][1][4] = { }, out[1][1][4] = { };
            multiply_block(sum, matrix<RS, CS, 1>(a + at * RS + from * CS),
                           matrix<XCS, XRS, 1>(x + from * XRS + col * XCS),
                           size, cols - col,
                           TRANS ? max(rows - from, 0) : at);
            float *own = x + (at + lane / 4) * XRS
                       + (col + lane % 4 * 2) * XCS;
            const auto each = [&](auto f) {
                UNROLL
                for (int e = 0; e < 4; e++)
                    if (lane / 4 + e / 2 * 8 < size
                        && col + lane % 4 * 2 + e % 2 < cols)
                        f(own[e / 2 * 8 * XRS + e % 2 * XCS], e);
            };
            each([&](float &y, int e) { y += sum[0][0][e]; });
            __syncwarp();
            multiply_block(out, matrix<INVERSE, 1, 2>(inverse + at * INVERSE),
                           matrix<XCS, XRS, 1>(x + at * XRS + col * XCS),
                           size, cols - col, size);
            __syncwarp();
            each([&](float &y, int e) { y = out[0][0][e]; });
            __syncwarp();
        }
    __syncthreads();
}

/* A column of x_i = b(i) + c(i) sum over j < i of a(i, j) e^(d(i) - d(j)) x_j,
 * or TRANS: b(i) + sum over j > i of a(j, i) e^(d(j) - d(i)) c(j) x_j, which a
 * group of SIDE neighbouring lanes solves, by blocks of rows that they share;
 * BEFORE: the row that reads has the row's before, d(i - 1). The rows that are
 * done come by way of the token between, so that no exponent is above zero.
 * put(i, x) leaves x_i for found(i). */
template<bool TRANS, bool BEFORE, int SIDE, class A, class B, class C, class D,
         class F, class P>
INLINE void solve_decayed(int n, A a, B b, C c, D d, F found, P put)
{
    enum { MINE = BLOCK / SIDE };
    const int last = (n - 1) / BLOCK * BLOCK, lane = LANE % SIDE;
    const auto read = [&](int i) { return d(BEFORE ? i - 1 : i); };
    const auto decay = [](auto x, auto y) { return exp_((float)(x - y)); };
    NO_UNROLL
    for (int done = 0; done <= last; done += BLOCK) {
        const int at = TRANS ? last - done : done;
        const int size = min(n - at, (int)BLOCK);
        float own[MINE] = { };
        if (done) {
            const auto between = d(TRANS ? at + size - 1 : at - 1);
            const int from = TRANS ? at + size : 0, to = TRANS ? n : at;
            NO_UNROLL
            for (int first = from; first < to; first += SIDE) {
                const int j = first + lane;
                float x = 0.f;
                if (j < to)
                    x = found(j) * (TRANS ? decay(read(j), between) * c(j)
                                    : decay(between, d(j)));
                UNROLL
                for (int l = 0; l < SIDE; l++) {
                    const float y = lane_of<SIDE>(x, l);
                    UNROLL
                    for (int m = 0; m < MINE; m++) {
                        const int r = lane + SIDE * m;
                        if (first + l < to && r < size)
                            own[m] += y * (TRANS ? a(first + l, at + r)
                                           : a(at + r, first + l));
                    }
                }
            }
            UNROLL
            for (int m = 0; m < MINE; m++) {
                const int r = lane + SIDE * m;
                if (r < size)
                    own[m] *= TRANS ? decay(between, d(at + r))
                                    : decay(read(at + r), between);
            }
        }
        UNROLL
        for (int k = 0; k < BLOCK; k++) {
            const int s = TRANS ? BLOCK - 1 - k : k;
            if (s >= size)
                continue;
            float x = 0.f;
            if (lane == s % SIDE) {
                x = b(at + s) + (TRANS ? own[s / SIDE]
                                 : c(at + s) * own[s / SIDE]);
                put(at + s, x);
            }
            x = lane_of<SIDE>(x, s % SIDE);
            UNROLL
            for (int m = 0; m < MINE; m++) {
                const int r = lane + SIDE * m;
                if (r < size && (TRANS ? r < s : r > s))
                    own[m] += x * (TRANS ? a(at + s, at + r) * c(at + s)
                                           * decay(read(at + s), d(at + r))
                                   : a(at + r, at + s)
                                     * decay(read(at + r), d(at + s)));
            }
        }
        __syncwarp();
    }
}
