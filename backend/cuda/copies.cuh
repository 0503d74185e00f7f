/* copies.cuh -- what a schedule's kernel loads and stores where there is no
 * copy engine, or none that can have the tensors: the lanes of a role have 16
 * bytes each of four rows at a time. ANYWHERE: rows of tensors begin, and end,
 * at any element, and need not be whole. After schedule.cuh.
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

/* How many of them lie within so many columns, from col on; below 1: none. Not
 * with 0 as the least: that a number between 0 and 8 is 8, ptxas of CUDA 13.0
 * finds of one that was 0, too. */
INLINE int some_within(int col, int cols) { return min(cols - col, SOME); }
#ifdef ANYWHERE
#define UNROLL_ROWS NO_UNROLL           /* each has ways of its own */
/* From column to column. */
template<bool RANKED> INLINE i64 step_of(const Tensor &t)
{
    return column_step<RANKED>(t);
}
/* 4 or 8 bytes to shared memory: `bytes` of them, zeros behind. */
template<int PART> INLINE void copy_part(u32 to, const void *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 :: "r"(to), "l"(from), "r"(bytes), "n"(PART) : "memory");
}
template<int PART> INLINE void copy_parts(u32 to, const void *from, int bytes)
{
    UNROLL for (int at = 0; at < 16; at += PART)
        copy_part<PART>(to + at, (const char *)from + (at < bytes ? at : 0),
                        max(min(bytes - at, PART), 0));
}
/* n numbers of 16 bits, so far from one another, and zeros behind. */
INLINE uint4 numbers_of(const unsigned short *p, i64 step, int n)
{
    u32 v[4];
    UNROLL for (int i = 0; i < 4; i++) {
        v[i] = 2 * i < n ? p[2 * i * step] : 0;
        v[i] |= 2 * i + 1 < n ? (u32)p[(2 * i + 1) * step] << 16 : 0;
    }
    return { v[0], v[1], v[2], v[3] };
}
INLINE void copy_numbers(u32 to, const unsigned short *p, i64 step, int n)
{
    const uint4 v = numbers_of(p, step, n);
    store2(to, bits(v.x), bits(v.y));
    store2(to + 8, bits(v.z), bits(v.w));
}
INLINE void copy_numbers(u32 to, const float *p, i64 step, int n)
{
    UNROLL for (int i = 0; i < 4; i++)
        copy_part<4>(to + 4 * i, i < n ? p + i * step : p, i < n ? 4 : 0);
}
/* To 16 bytes of shared memory n elements of a row, and zeros behind. */
INLINE void copy_some(u32 to, const Element *p, i64 step, int n)
{
    const int bytes = (int)sizeof(Element) * n;
    if (step == 1 && (u64)p % 16 == 0)
        copy16(to, p, bytes);
    else if (step == 1 && (u64)p % 8 == 0)
        copy_parts<8>(to, p, bytes);
    else if (step == 1 && (u64)p % 4 == 0)
        copy_parts<4>(to, p, bytes);
    else
        copy_numbers(to, p, step, n);
}
/* Whether some row of 16-bit numbers may begin between two words, or not lie
 * whole. */
template<bool RANKED> INLINE bool has_odd_places(const Tensor &t)
{
    return sizeof(Element) == 2
        && (step_of<RANKED>(t) != 1 || (u64)t.p % 4
            || (t.st | t.sh | t.sb | (RANKED ? t.sd[0] : 0)) % 2);
}
/* What this lane has written is there, too, for who waits for its copies. */
INLINE void numbers_arrive() { __threadfence_block(); }
INLINE uint4 some_of(const unsigned short *p, i64 step, int n)
{
    return step == 1 && n == 8 && (u64)p % 16 == 0 ? *(const uint4 *)p
                                                   : numbers_of(p, step, n);
}
INLINE void put_number(float *p, const u32 (&x)[4], int i) { *p = bits(x[i]); }
INLINE void put_number(unsigned short *p, const u32 (&x)[4], int i)
{
    *p = (unsigned short)(x[i / 2] >> i % 2 * 16);
}
INLINE void put_some(Element *p, i64 step, const uint4 &v, int n)
{
    const u32 x[4] = { v.x, v.y, v.z, v.w };
    if (step == 1 && n == SOME && (u64)p % 16 == 0)
        *(uint4 *)p = v;
    else
        UNROLL for (int i = 0; i < SOME; i++)
            if (i < n)
                put_number(p + i * step, x, i);
}
#else
#define UNROLL_ROWS UNROLL_FOUR
template<bool RANKED> INLINE i64 step_of(const Tensor &) { return 1; }
INLINE void copy_some(u32 to, const Element *p, i64, int n)
{
    copy16(to, p, (int)sizeof(Element) * n);
}
template<bool RANKED> INLINE bool has_odd_places(const Tensor &)
{
    return false;
}
INLINE void copy_numbers(u32, const Element *, i64, int) {}
INLINE void numbers_arrive() {}
INLINE uint4 some_of(const unsigned short *p, i64, int n)
{
    return n > 0 ? *(const uint4 *)p : uint4 {};
}
INLINE void put_some(Element *p, i64, const uint4 &v, int n)
{
    if (n > 0)
        *(uint4 *)p = v;
}
#endif
/* A chunk's rows of an input, from its chunk's first token and `off` others on,
 * a piece's columns from col on, of COLS; zeros where the sequence has no such
 * token. */
template<bool RANKED, int COLS>
INLINE void copy_tokens(u32 to, const Tensor &t, const Item &x, int col,
                        int off, int lane)
{
    const int piece = lane % 8, n = some_within(col + SOME * piece, COLS);
    const Element *p = (const Element *)t.p + x.where.b * t.sb
        + head_of(t, x.head) * t.sh + (i64)x.row * t.st;
    const i64 step = step_of<RANKED>(t);
    const int first = (x.where.start - x.row - off) * RANKS;
    const int end = first + x.where.len;
    const auto copy_row = [&](int i, auto copy) {
        const int row = 4 * i + lane / 8;
        const bool has = row >= first && row < end && has_place<RANKED>(row)
                      && n > 0;
        copy(to + piece_of(row, piece),
             has ? p + row_place<RANKED>(t, row) + off * t.st
                   + (col + SOME * piece) * step
                 : (const Element *)t.p, step, has ? n : 0);
    };
    if (has_odd_places<RANKED>(t))      /* waited for: two at a time */
        UNROLL_TWICE for (int i = 0; i < CHUNK_ROWS / 4; i++)
            copy_row(i, [](auto... x) { copy_numbers(x...); });
    else
        UNROLL_ROWS for (int i = 0; i < CHUNK_ROWS / 4; i++)
            copy_row(i, [](auto... x) { copy_some(x...); });
    numbers_arrive();
}
/* HERE rows of a head's constant matrix of ROWS x COLS, from `row` on. */
template<int ROWS, int COLS, int HERE>
INLINE void copy_constant(u32 to, const Tensor &t, const Item &x, int row,
                          int col, int lane)
{
    const int piece = lane % 8, n = some_within(col + SOME * piece, COLS);
    const i64 step = step_of<true>(t);
    const Element *p = (const Element *)t.p + head_of(t, x.head) * t.sh;
    const auto copy_row = [&](int i, auto copy) {
        const int r = row + 4 * i + lane / 8;
        const bool has = r < ROWS && n > 0;
        copy(to + piece_of(4 * i + lane / 8, piece),
             has ? p + r * t.sd[0] + (col + SOME * piece) * step : p, step,
             has ? n : 0);
    };
    if (has_odd_places<true>(t))
        UNROLL_TWICE for (int i = 0; i < HERE / 4; i++)
            copy_row(i, [](auto... y) { copy_numbers(y...); });
    else
        UNROLL_FOUR for (int i = 0; i < HERE / 4; i++)
            copy_row(i, [](auto... y) { copy_some(y...); });
    numbers_arrive();
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
    const int piece = lane % 4, n = min(COLS - col - 8 * piece, 8);
    const i64 step = step_of<RANKED>(t);
    const unsigned short *p = (const unsigned short *)t.p + x.where.b * t.sb
        + head_of(t, x.head) * t.sh + (i64)x.row * t.st + off * t.st
        + (col + 8 * piece) * step;
    const int first = (x.where.start - x.row - off) * RANKS;
    const int end = first + x.where.len;
    uint4 v[CHUNK_ROWS / 8];
    UNROLL for (int i = 0; i < CHUNK_ROWS / 8; i++) {
        const int row = 8 * i + lane / 4;
        const bool has = row >= first && row < end && has_place<RANKED>(row)
                      && n > 0;
        v[i] = {};
        if (has)
            v[i] = some_of(p + row_place<RANKED>(t, row), step, n);
    }
    UNROLL for (int i = 0; i < CHUNK_ROWS / 8; i++) {
        const int row = 8 * i + lane / 4;
        store_widened(to + piece_of(row, 2 * piece), v[i].x, v[i].y);
        store_widened(to + piece_of(row, 2 * piece + 1), v[i].z, v[i].w);
    }
}
#endif
/* The same of what kernels keep for one another: of ROWS x COLS, PITCH from row
 * to row, so many, from `row` and `off` others on. */
template<int ROWS, int COLS, int HERE, int PITCH = COLS>
INLINE void copy_kept(u32 to, const float *from, int row, int col, int off,
                      int lane)
{
    const int piece = lane % 8, n = some_within(col + SOME * piece, COLS);
    const Element *p = (const Element *)from + col + SOME * piece;
    UNROLL_FOUR for (int i = 0; i < HERE / 4; i++) {
        const int r = row + off + 4 * i + lane / 8;
        const bool has = r >= 0 && r < ROWS && n > 0;
        copy16(to + piece_of(4 * i + lane / 8, piece),
               has ? (const void *)(p + (i64)r * PITCH) : from,
               has ? (int)sizeof(Element) * n : 0);
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
    const int piece = lane % 8, n = some_within(col + SOME * piece, cols);
    const i64 step = step_of<RANKED>(t);
    Element *p = (Element *)t.p + x.where.b * t.sb
        + head_of(t, x.head) * t.sh
        + x.row * t.st + (col + SOME * piece) * step;
    UNROLL_ROWS for (int i = 0; i < CHUNK_ROWS / 4; i++) {
        const int row = 4 * i + lane / 8;
        const uint4 v = load16(from + piece_of(row, piece));
        if (row < x.n && has_place<RANKED>(row))
            put_some(p + row_place<RANKED>(t, row), step, v, n);
    }
}
