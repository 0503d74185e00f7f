/* copies.cuh -- what a schedule's kernel loads and stores where there is no
 * copy engine: the lanes of a role have 16 bytes each of four rows at a time.
 * After schedule.cuh.
 */

/* 16 bytes to shared memory: `bytes` of them, zeros behind. */
INLINE void copy16(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}
/* Arrives for this lane when what it has asked for so far is there. */
INLINE void copies_arrive(u32 b)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];"
                 :: "r"(b) : "memory");
}

constexpr int SOME = 16 / sizeof(Element);      /* that a lane has of a row */

/* Bytes of 16 that lie within so many columns, from col on. */
INLINE int bytes_within(int col, int cols)
{
    return (int)sizeof(Element) * max(min(cols - col, SOME), 0);
}
/* A chunk's rows of an input, from its chunk's first token and `off` others on,
 * a piece's columns from col on, of COLS; zeros where the sequence has no such
 * token. */
template<bool RANKED, int COLS>
INLINE void copy_tokens(u32 to, const Tensor &t, const Item &x, int col,
                        int off, int lane)
{
    const int piece = lane % 8, bytes = bytes_within(col + SOME * piece, COLS);
    const Element *p = (const Element *)t.p + x.where.b * t.sb
        + x.head / t.group * t.sh + (i64)x.row * t.st;
    const int first = (x.where.start - x.row - off) * RANKS;
    const int end = first + x.where.len;
    UNROLL_FOUR for (int i = 0; i < CHUNK_ROWS / 4; i++) {
        const int row = 4 * i + lane / 8;
        const bool has = row >= first && row < end && has_place<RANKED>(row)
                      && bytes;
        copy16(to + piece_of(row, piece),
               has ? p + row_place<RANKED>(t, row) + off * t.st + col
                     + SOME * piece : t.p, has ? bytes : 0);
    }
}
#if defined ELEMENT_F32 && defined ELEMENT_F16
INLINE void store_widened(u32 to, u32 a, u32 b)
{
    store2(to, low(a), high(a));
    store2(to + 8, low(b), high(b));
}
/* The same of float16, as tiles of float32: a lane has 16 bytes of a row, all
 * of its rows at a time. */
template<bool RANKED, int COLS>
INLINE void widen_tokens(u32 to, const Tensor &t, const Item &x, int col,
                         int off, int lane)
{
    const int piece = lane % 4;
    const bool within = col + 8 * piece < COLS;
    const unsigned short *p = (const unsigned short *)t.p + x.where.b * t.sb
        + x.head / t.group * t.sh + (i64)x.row * t.st + off * t.st + col
        + 8 * piece;
    const int first = (x.where.start - x.row - off) * RANKS;
    const int end = first + x.where.len;
    uint4 v[CHUNK_ROWS / 8];
    UNROLL for (int i = 0; i < CHUNK_ROWS / 8; i++) {
        const int row = 8 * i + lane / 4;
        const bool has = row >= first && row < end && has_place<RANKED>(row)
                      && within;
        v[i] = {};
        if (has)
            v[i] = *(const uint4 *)(p + row_place<RANKED>(t, row));
    }
    UNROLL for (int i = 0; i < CHUNK_ROWS / 8; i++) {
        const int row = 8 * i + lane / 4;
        store_widened(to + piece_of(row, 2 * piece), v[i].x, v[i].y);
        store_widened(to + piece_of(row, 2 * piece + 1), v[i].z, v[i].w);
    }
}
#endif
/* The same of what kernels keep for one another: of ROWS x COLS so many, from
 * `row` and `off` others on. */
template<int ROWS, int COLS, int HERE>
INLINE void copy_kept(u32 to, const float *from, int row, int col, int off,
                      int lane)
{
    const int piece = lane % 8, bytes = bytes_within(col + SOME * piece, COLS);
    const Element *p = (const Element *)from + col + SOME * piece;
    UNROLL_FOUR for (int i = 0; i < HERE / 4; i++) {
        const int r = row + off + 4 * i + lane / 8;
        const bool has = r >= 0 && r < ROWS && bytes;
        copy16(to + piece_of(4 * i + lane / 8, piece),
               has ? (const void *)(p + (i64)r * COLS) : from,
               has ? bytes : 0);
    }
}
/* And kept so, to before column `end`. */
template<int ROWS, int COLS, int HERE>
INLINE void keep_tile(float *to, u32 from, int row, int col, int lane,
                      int end = COLS)
{
    const int piece = lane % 8, at = col + SOME * piece;
    Element *p = (Element *)to + at;
    UNROLL_FOUR for (int i = 0; i < HERE / 4; i++) {
        const int r = 4 * i + lane / 8;
        const uint4 v = load16(from + piece_of(r, piece));
        if (row + r < ROWS && at < end)
            *(uint4 *)(p + (i64)(row + r) * COLS) = v;
    }
}
/* 64 columns of a result from col on, of `cols`. */
template<bool RANKED>
INLINE void put_rows(const Tensor &t, u32 from, const Item &x, int col,
                     int cols, int lane)
{
    const int piece = lane % 8;
    Element *p = (Element *)t.p + x.where.b * t.sb
        + x.head / t.group * t.sh + x.row * t.st + col + SOME * piece;
    UNROLL_FOUR for (int i = 0; i < CHUNK_ROWS / 4; i++) {
        const int row = 4 * i + lane / 8;
        const uint4 v = load16(from + piece_of(row, piece));
        if (row < x.n && has_place<RANKED>(row) && col + SOME * piece < cols)
            *(uint4 *)(p + row_place<RANKED>(t, row)) = v;
    }
}
