/* rows_product.cuh -- a product with a weight for the tokens of a block, whose
 * rows read it: y = x w in bfloat16, K summed, N columns; and x's gradient. In
 * shared memory pieces of eight numbers are so dealt that those of eight rows
 * next to each other do not meet. Loops are not written out: the text is read
 * from memory once a call. After rows.cuh.
 */
struct Product {
    const char *x, *w;
    char *y;
    i64 xb, xt, wk, yb, yt;             /* strides, in numbers */
};

/* Where a piece of a row of PIECES lies. */
template<int PIECES> INLINE int piece_at(int row, int piece)
{
    enum { APART = PIECES % 8 == 0 ? 7 : PIECES % 4 == 0 ? 3
                 : PIECES % 2 == 0 ? 1 : 0 };
    return (row * PIECES + (piece ^ (row & APART))) * 16;
}

/* How warps share N columns of ROWS rows; rows of w that are there at a time,
 * and columns of x, of which there are twice so many: while some are read the
 * next ones come. */
template<int K, int N> struct Tiling {
    enum { ACROSS = N % 32 || N > 128 || N == 96 ? 1 : N / 32,
           COLUMNS = N / ACROSS, ROWS = 16 * 8 / ACROSS,
           SLAB = K < 256 ? K : 256, PIECES = N / 8, WEIGHT = SLAB * N * 2,
           STEP = SLAB % 64 ? 32 : SLAB / 2, LEFT = STEP / 8,
           STEPS = K / STEP, BUFFER = ROWS * STEP * 2 };
};

/* Eight numbers of w from `from` on; WIDE: of float32. */
template<bool WIDE> INLINE void load_piece(char *to, const char *w, i64 from)
{
    if (WIDE) {
        float x[8];
        load<F32, 8, true>(w, from, 1, 8, x);
        *(Piece *)to = { { pack({ x[0], x[1] }), pack({ x[2], x[3] }),
                           pack({ x[4], x[5] }), pack({ x[6], x[7] }) } };
    } else {
        copy_ahead((Piece *)to, (const Piece *)(w + from * 2));
    }
}

/* Rows: tokens of batch entries, from token t of entry b on, `n` of them; those
 * from entry `end` on are none. */
struct Tokens { i64 b, t, n, tokens, end; };
/* Where row i of them is: whether there is one. */
INLINE bool find_row(const Tokens &s, i64 i, i64 *b, i64 *t)
{
    const u32 at = (u32)(s.t + i), n = (u32)s.tokens, over = at / n;
    *b = s.b + over;
    *t = at - over * n;
    return i < s.n && *b < s.end;
}

/* Step i of all: columns of x of ROWS rows, into one of two buffers behind w;
 * zeros where there is no row. */
template<int K, int N>
INLINE void load_rows(const Product &p, const Tokens &s, int i)
{
    typedef Tiling<K, N> D;
    const int k0 = i % D::STEPS * D::STEP;
    const i64 r0 = (i64)(i / D::STEPS) * D::ROWS;
    char *to = arena + D::WEIGHT + i % 2 * D::BUFFER;
    NO_UNROLL
    for (int j = threadIdx.x; j < D::ROWS * D::LEFT; j += 256) {
        const int row = j / D::LEFT, piece = j % D::LEFT;
        Piece *at = (Piece *)(to + piece_at<D::LEFT>(row, piece));
        i64 b, t;
        if (find_row(s, r0 + row, &b, &t))
            copy_ahead(at, (const Piece *)(p.x + (b * p.xb + t * p.xt + k0
                                                  + piece * 8) * 2));
        else
            *at = {};
    }
}

/* Rows k0 on of w, for the block. */
template<int K, int N, bool WIDE> INLINE void load_weight(const Product &p,
                                                          int k0)
{
    typedef Tiling<K, N> D;
    NO_UNROLL
    for (int i = threadIdx.x; i < D::SLAB * D::PIECES; i += 256) {
        const int k = i / D::PIECES, piece = i % D::PIECES;
        load_piece<WIDE>(arena + piece_at<D::PIECES>(k, piece), p.w,
                         (k0 + k) * p.wk + piece * 8);
    }
}

/* c += 16 rows of the step's columns, from `row` on, times w's columns from
 * `column` on. */
template<int K, int N>
INLINE void add_step(float (*c)[4], int i, int row, int column)
{
    typedef Tiling<K, N> D;
    enum { TILES = D::COLUMNS / 8 };
    const int lane = threadIdx.x % 32, r = lane % 16, half = lane / 16;
    const int k0 = i % D::STEPS * D::STEP % D::SLAB;
    const char *x = arena + D::WEIGHT + i % 2 * D::BUFFER;
    UNROLL_TWICE
    for (int k = 0; k < D::STEP; k += 16) {
        u32 left[4];
        load_tiles<false>(left, shared_at(x
            + piece_at<D::LEFT>(row + r, k / 8 + half)));
        UNROLL
        for (int j = 0; j < TILES; j += 2) {
            /* an odd last one is read twice */
            const int also = j + 1 < TILES ? half : 0;
            u32 right[4];
            load_tiles<true>(right, shared_at(arena
                + piece_at<D::PIECES>(k0 + k + r, column / 8 + j + also)));
            mma_bf16(c[j], left, right[0], right[1]);
            if (j + 1 < TILES)
                mma_bf16(c[j + 1 < TILES ? j + 1 : 0], left, right[2],
                         right[3]);
        }
    }
}

/* near: where the block has y, too; or NULL. */
template<int K, int N, bool WIDE>
INLINE void multiply(const Product &p, char *near, const Tokens &s)
{
    typedef Tiling<K, N> D;
    enum { TILES = D::COLUMNS / 8 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int row = warp / D::ACROSS * 16, column = warp % D::ACROSS
                                                  * D::COLUMNS;
    const int steps = (int)((s.n + D::ROWS - 1) / D::ROWS) * D::STEPS;
    float c[TILES][4];
    load_weight<K, N, WIDE>(p, 0);
    NO_UNROLL
    for (int i = 0; i < 2; i++) {
        if (i < steps)
            load_rows<K, N>(p, s, i);
        copy_commit();
    }
    NO_UNROLL
    for (int i = 0; i < steps; i++) {
        const int k0 = i % D::STEPS * D::STEP;
        if (K > D::SLAB && i && k0 % D::SLAB == 0) {
            load_weight<K, N, WIDE>(p, k0);
            copy_commit();
            copy_wait<0>();
        }
        copy_wait<1>();
        __syncthreads();
        if (k0 == 0)
            UNROLL
            for (int j = 0; j < 4 * TILES; j++)
                c[j / 4][j % 4] = 0;
        add_step<K, N>(c, i, row, column);
        __syncthreads();                /* the buffer has been read */
        if (i + 2 < steps)
            load_rows<K, N>(p, s, i + 2);
        copy_commit();
        if (k0 + D::STEP < K)
            continue;
        UNROLL
        for (int j = 0; j < 2; j++) {
            const i64 own = (i64)(i / D::STEPS) * D::ROWS + row + lane / 4
                          + 8 * j;
            i64 b, t;
            const bool on = find_row(s, own, &b, &t);
            char *also = near + (own * N + column + lane % 4 * 2) * 2;
            char *y = p.y + (b * p.yb + t * p.yt + column + lane % 4 * 2) * 2;
            UNROLL
            for (int z = 0; z < TILES; z++)
                if (on) {
                    const u32 two = pack({ c[z][2 * j], c[z][2 * j + 1] });
                    *(u32 *)(y + z * 16) = two;
                    if (near)
                        *(u32 *)(also + z * 16) = two;
                }
        }
    }
    copy_wait<0>();
    __syncthreads();                    /* y is there for the block */
}

/* What a step of the instruction takes of a row and of that eight on. */
struct Left { u32 x[4]; };
INLINE Left left_of(const Piece &a, const Piece &b, int s)
{
    return { { a.x[2 * s], b.x[2 * s], a.x[2 * s + 1], b.x[2 * s + 1] } };
}

/* The gradient of x: y = x w^T for such rows, of K columns, of each of which w
 * has a row of N. A lane reads eight numbers of x and w at a time, and the sum
 * goes over these in the order in which lanes have them; its columns of four
 * tiles lie next to each other. */
template<int K, int N> struct Back {
    enum { SLAB = K < 256 ? K : 256, ACROSS = SLAB % 64 ? 1 : 2,
           COLUMNS = SLAB / ACROSS, ROWS = 16 * 8 / ACROSS, PIECES = N / 8 };
};
template<int K, int N> INLINE int column_at(int column, int piece)
{
    typedef Back<K, N> D;
    const int by = D::PIECES % 8 ? 0 : column % 2 * 4;
    return (column * D::PIECES + (piece ^ by)) * 16;
}
/* Columns k0 on of w, into shared memory from AT on, for the block. */
template<int K, int N, bool WIDE, int AT>
INLINE void load_back(const char *w, i64 wk, int k0)
{
    typedef Back<K, N> D;
    NO_UNROLL
    for (int i = threadIdx.x; i < D::SLAB * D::PIECES; i += 256) {
        const int column = i / D::PIECES, piece = i % D::PIECES;
        load_piece<WIDE>(arena + AT + column_at<K, N>(column, piece), w,
                         (k0 + column) * wk + piece * 8);
    }
    copy_commit();
}
/* The first columns are there, or on their way. */
template<int K, int N, bool WIDE, int AT>
INLINE void multiply_back(const Product &p, const Tokens &s)
{
    typedef Back<K, N> D;
    enum { STEPS = N / 32 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    NO_UNROLL
    for (int k0 = 0; k0 < K; k0 += D::SLAB) {
        __syncthreads();                /* what was there has been read */
        if (k0)
            load_back<K, N, WIDE, AT>(p.w, p.wk, k0);
        copy_wait<0>();
        __syncthreads();                /* w, and x, are the block's */
        NO_UNROLL
        for (i64 r0 = 0; r0 < s.n; r0 += D::ROWS) {
            const i64 row = r0 + warp / D::ACROSS * 16 + lane / 4;
            char *y[2];
            bool on[2];
            Piece a[2][STEPS];
            UNROLL
            for (int i = 0; i < 2; i++) {
                i64 b, t;
                on[i] = find_row(s, row + 8 * i, &b, &t);
                const char *x = p.x + (b * p.xb + t * p.xt + lane % 4 * 8) * 2;
                y[i] = p.y + (b * p.yb + t * p.yt + lane % 4 * 8) * 2;
                UNROLL
                for (int j = 0; j < STEPS; j++) {
                    a[i][j] = {};
                    if (on[i])
                        a[i][j] = *(const Piece *)(x + 64 * j);
                }
            }
            NO_UNROLL
            for (int n0 = 0; n0 < D::COLUMNS; n0 += 32) {
                const int column = warp % D::ACROSS * D::COLUMNS + n0;
                float c[4][4];
                UNROLL
                for (int i = 0; i < 16; i++)
                    c[i / 4][i % 4] = 0;
                UNROLL
                for (int i = 0; i < 4; i++)
                    UNROLL
                    for (int j = 0; j < STEPS; j++) {
                        const Piece b = *(const Piece *)(arena + AT
                            + column_at<K, N>(column + lane / 8 * 8 + 2 * i
                                              + lane / 4 % 2,
                                              4 * j + lane % 4));
                        mma_bf16(c[i], left_of(a[0][j], a[1][j], 0).x, b.x[0],
                                 b.x[1]);
                        mma_bf16(c[i], left_of(a[0][j], a[1][j], 1).x, b.x[2],
                                 b.x[3]);
                    }
                UNROLL
                for (int i = 0; i < 2; i++) {
                    Piece to;
                    UNROLL
                    for (int j = 0; j < 4; j++)
                        to.x[j] = pack({ c[j][2 * i], c[j][2 * i + 1] });
                    if (on[i])
                        *(Piece *)(y[i] + (k0 + column) * 2) = to;
                }
            }
        }
    }
}
