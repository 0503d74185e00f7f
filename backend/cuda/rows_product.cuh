/* rows_product.cuh -- a product with a weight for the tokens of a block, whose
 * rows read it: y = x w in bfloat16, K summed, N columns; and x's gradient. A
 * lane reads eight numbers of x at a time, the sum goes over these in the order
 * in which lanes have them, and w's rows lie in shared memory so that those of
 * one step do not meet. After rows.cuh.
 */
struct Product {
    const char *x, *w;
    char *y;
    i64 xb, xt, wk, yb, yt;             /* strides, in numbers */
};

/* How warps share N columns, and rows of K that are there at a time. */
template<int K, int N> struct Tiling {
    enum { ACROSS = N % 32 || N > 128 || N == 96 ? 1 : N / 32,
           COLUMNS = N / ACROSS, ROWS = 16 * 8 / ACROSS,
           SLAB = K < 256 ? K : 256, PIECES = N / 8,
           APART = PIECES % 8 == 0 ? 7 : PIECES % 4 == 0 ? 3
                 : PIECES % 2 == 0 ? 1 : 0,
           BYTES = SLAB * N * 2 };
};

/* Where a piece of eight columns of row k lies. */
template<int K, int N> INLINE int piece_at(int k, int piece)
{
    typedef Tiling<K, N> D;
    const int by = (k >> 3 & 3) * 2 + (k & 1);
    return (k * D::PIECES + (piece ^ (by & D::APART))) * 16;
}

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

/* Rows k0 on of w, for the block. */
template<int K, int N, bool WIDE> INLINE void load_weight(const Product &p,
                                                          int k0)
{
    typedef Tiling<K, N> D;
    UNROLL_EIGHT
    for (int i = threadIdx.x; i < D::SLAB * D::PIECES; i += 256) {
        const int k = i / D::PIECES, piece = i % D::PIECES;
        load_piece<WIDE>(arena + piece_at<K, N>(k, piece), p.w,
                         (k0 + k) * p.wk + piece * 8);
    }
    copy_commit();
}

/* Where the lane's row of x and y is, eight numbers and `column` on: whether
 * there is one. */
INLINE bool find_row(const Product &p, i64 at, i64 tokens, i64 end,
                     const char *&x, char *&y)
{
    const i64 b = at / tokens, t = at % tokens;
    x = p.x + (b * p.xb + t * p.xt + threadIdx.x % 4 * 8) * 2;
    y = p.y + (b * p.yb + t * p.yt) * 2;
    return at < end;
}

/* What a step of the instruction takes of the row and of that eight on. */
struct Left { u32 x[4]; };
INLINE Left left_of(const Piece &a, const Piece &b, int s)
{
    return { { a.x[2 * s], b.x[2 * s], a.x[2 * s + 1], b.x[2 * s + 1] } };
}

/* Of `rows` rows, the first of which is `first`: `tokens` are a batch entry's,
 * and those from `end` on are none. */
template<int K, int N, bool WIDE>
INLINE void multiply(const Product &p, i64 first, i64 rows, i64 tokens, i64 end)
{
    typedef Tiling<K, N> D;
    enum { STEPS = D::SLAB / 32, TILES = D::COLUMNS / 8 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int column = warp % D::ACROSS * D::COLUMNS;
    for (i64 r0 = 0; r0 < rows; r0 += D::ROWS) {
        const i64 row = r0 + warp / D::ACROSS * 16 + lane / 4;
        const char *x[2];
        char *y[2];
        bool on[2];
        float c[TILES][4];
        UNROLL
        for (int i = 0; i < 2; i++) {
            on[i] = find_row(p, first + row + 8 * i, tokens, end, x[i], y[i])
                 && row + 8 * i < rows;
            y[i] += (column + lane % 4 * 2) * 2;
        }
        UNROLL
        for (int i = 0; i < TILES; i++)
            UNROLL
            for (int j = 0; j < 4; j++)
                c[i][j] = 0;
        NO_UNROLL
        for (int k0 = 0; k0 < K; k0 += D::SLAB) {
            Piece a[2][STEPS];
            __syncthreads();            /* the slab before has been read */
            load_weight<K, N, WIDE>(p, k0);
            UNROLL
            for (int j = 0; j < STEPS; j++)
                UNROLL
                for (int i = 0; i < 2; i++) {
                    a[i][j] = {};
                    if (on[i])
                        a[i][j] = *(const Piece *)(x[i] + (k0 + 32 * j) * 2);
                }
            copy_wait<0>();
            __syncthreads();
            UNROLL
            for (int j = 0; j < STEPS; j++)
                UNROLL
                for (int s = 0; s < 2; s++) {
                    const Left left = left_of(a[0][j], a[1][j], s);
                    const int k = 32 * j + lane % 8 / 2 * 8 + 4 * s
                                + lane / 8 % 2 * 2 + lane % 2;
                    UNROLL
                    for (int i = 0; i < TILES; i += 2) {
                        /* an odd last one is read twice */
                        const int also = i + 1 < TILES ? lane / 16 : 0;
                        u32 right[4];
                        load_tiles<true>(right, shared_at(arena
                            + piece_at<K, N>(k, column / 8 + i + also)));
                        mma_bf16(c[i], left.x, right[0], right[1]);
                        if (i + 1 < TILES)
                            mma_bf16(c[i + 1 < TILES ? i + 1 : 0], left.x,
                                     right[2], right[3]);
                    }
                }
        }
        UNROLL
        for (int i = 0; i < TILES; i++)
            UNROLL
            for (int j = 0; j < 2; j++)
                if (on[j])
                    *(u32 *)(y[j] + i * 16) = pack({ c[i][2 * j],
                                                     c[i][2 * j + 1] });
    }
    __syncthreads();                    /* y is there for the block */
}

/* The gradient of x: y = x w^T for such rows, of K columns, of each of which w
 * has a row of N. A lane's columns of four tiles lie next to each other. */
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
INLINE void multiply_back(const Product &p, i64 first, i64 rows, i64 tokens,
                          i64 end)
{
    typedef Back<K, N> D;
    enum { STEPS = N / 32 };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    NO_UNROLL
    for (int k0 = 0; k0 < K; k0 += D::SLAB) {
        __syncthreads();                /* arena, x are the block's */
        UNROLL_EIGHT
        for (int i = threadIdx.x; i < D::SLAB * D::PIECES; i += 256) {
            const int column = i / D::PIECES, piece = i % D::PIECES;
            load_piece<WIDE>(arena + column_at<K, N>(column, piece), p.w,
                             (k0 + column) * p.wk + piece * 8);
        }
        copy_commit();
        copy_wait<0>();
        __syncthreads();
        for (i64 r0 = 0; r0 < rows; r0 += D::ROWS) {
            const i64 row = r0 + warp / D::ACROSS * 16 + lane / 4;
            const char *x[2];
            char *y[2];
            bool on[2];
            Piece a[2][STEPS];
            UNROLL
            for (int i = 0; i < 2; i++) {
                on[i] = find_row(p, first + row + 8 * i, tokens, end, x[i],
                                 y[i]) && row + 8 * i < rows;
                UNROLL
                for (int j = 0; j < STEPS; j++) {
                    a[i][j] = {};
                    if (on[i])
                        a[i][j] = *(const Piece *)(x[i] + 64 * j);
                }
            }
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
                        *(Piece *)(y[i] + (k0 + column + lane % 4 * 8) * 2)
                            = to;
                }
            }
        }
    }
}
