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

/* How warps share N columns, and columns of x that are there at a time. */
template<int K, int N> struct Tiling {
    enum { ACROSS = N % 32 || N > 128 || N == 96 ? 1 : N / 32,
           COLUMNS = N / ACROSS, ROWS = 16 * 8 / ACROSS,
           SLAB = K < 256 ? K : 256, PIECES = N / 8, LEFT = SLAB / 8,
           WEIGHT = SLAB * N * 2 };
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

/* Rows r0 on of x, columns k0 on, behind w in shared memory; zeros where there
 * is none. */
template<int K, int N>
INLINE void load_rows(const Product &p, const Tokens &s, i64 r0, int k0)
{
    typedef Tiling<K, N> D;
    NO_UNROLL
    for (int i = threadIdx.x; i < D::ROWS * D::LEFT; i += 256) {
        const int row = i / D::LEFT, piece = i % D::LEFT;
        char *to = arena + D::WEIGHT + piece_at<D::LEFT>(row, piece);
        i64 b, t;
        if (find_row(s, r0 + row, &b, &t))
            copy_ahead((Piece *)to, (const Piece *)(p.x + (b * p.xb + t * p.xt
                                                    + k0 + piece * 8) * 2));
        else
            *(Piece *)to = {};
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

/* c += 16 rows of x, from `row` on, times w's columns from `column` on, all of
 * the slab. */
template<int K, int N> INLINE void add_slab(float (*c)[4], int row, int column)
{
    typedef Tiling<K, N> D;
    enum { TILES = D::COLUMNS / 8 };
    const int lane = threadIdx.x % 32, r = lane % 16, half = lane / 16;
    UNROLL_TWICE
    for (int k = 0; k < D::SLAB; k += 16) {
        u32 left[4];
        load_tiles<false>(left, shared_at(arena + D::WEIGHT
            + piece_at<D::LEFT>(row + r, k / 8 + half)));
        UNROLL
        for (int i = 0; i < TILES; i += 2) {
            /* an odd last one is read twice */
            const int also = i + 1 < TILES ? half : 0;
            u32 right[4];
            load_tiles<true>(right, shared_at(arena
                + piece_at<D::PIECES>(k + r, column / 8 + i + also)));
            mma_bf16(c[i], left, right[0], right[1]);
            if (i + 1 < TILES)
                mma_bf16(c[i + 1 < TILES ? i + 1 : 0], left, right[2],
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
    NO_UNROLL
    for (i64 r0 = 0; r0 < s.n; r0 += D::ROWS) {
        float c[TILES][4];
        UNROLL
        for (int i = 0; i < TILES; i++)
            UNROLL
            for (int j = 0; j < 4; j++)
                c[i][j] = 0;
        NO_UNROLL
        for (int k0 = 0; k0 < K; k0 += D::SLAB) {
            __syncthreads();            /* the slab before has been read */
            load_rows<K, N>(p, s, r0, k0);
            if (!r0 || K > D::SLAB)
                load_weight<K, N, WIDE>(p, k0);
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            add_slab<K, N>(c, row, column);
        }
        UNROLL
        for (int j = 0; j < 2; j++) {
            i64 b, t;
            const i64 own = r0 + row + lane / 4 + 8 * j;
            const bool on = find_row(s, own, &b, &t);
            char *also = near + (own * N + column + lane % 4 * 2) * 2;
            char *y = p.y + (b * p.yb + t * p.yt + column + lane % 4 * 2) * 2;
            UNROLL
            for (int i = 0; i < TILES; i++)
                if (on) {
                    const u32 two = pack({ c[i][2 * j], c[i][2 * j + 1] });
                    *(u32 *)(y + i * 16) = two;
                    if (near)
                        *(u32 *)(also + i * 16) = two;
                }
        }
    }
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
template<int K, int N, bool WIDE>
INLINE void multiply_back(const Product &p, const Tokens &s)
{
    typedef Back<K, N> D;
    enum { STEPS = N / 32 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    NO_UNROLL
    for (int k0 = 0; k0 < K; k0 += D::SLAB) {
        __syncthreads();                /* arena, x are the block's */
        NO_UNROLL
        for (int i = threadIdx.x; i < D::SLAB * D::PIECES; i += 256) {
            const int column = i / D::PIECES, piece = i % D::PIECES;
            load_piece<WIDE>(arena + column_at<K, N>(column, piece), p.w,
                             (k0 + column) * p.wk + piece * 8);
        }
        copy_commit();
        copy_wait<0>();
        __syncthreads();
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
                        const Piece b = *(const Piece *)(arena
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
