/* rests.cuh -- what rounding has cut off of tiles, of bfloat16, in a sequence's
 * first 16 rows, and scores of it (print_rests.c). After decays.cuh.
 *
 * A rest is as a warp has 16 rows in its registers, a product's left factor: 16
 * columns are 16 bytes a lane, lane by lane.
 */
INLINE int rest_at(int k, int lane) { return (k / 16 * 32 + lane) * 16; }
/* Of the block's part of the workspace, so many bytes, that one. */
INLINE char *rests_of(const Run &run, int bytes, int at)
{
    return run.spill + (i64)fresh((int)blockIdx.x) * bytes + at;
}
/* In the workspace, or in shared memory. */
INLINE void put_rest(char *at, const u32 (&r)[4])
{
    leave16((uint4 *)at, { r[0], r[1], r[2], r[3] });
}
INLINE void put_rest(u32 at, const u32 (&r)[4])
{
    store2(at, bits(r[0]), bits(r[1]));
    store2(at + 8, bits(r[2]), bits(r[3]));
}
INLINE uint4 get_rest(const char *at) { return left16((const uint4 *)at); }
INLINE uint4 get_rest(u32 at) { return load16(at); }
/* Of x, rounded to p, STEPS times 16 columns from `col` on. */
template<int STEPS, class Place>
INLINE void leave_rest(Place rest, const u32 *p, const float *x, int rows,
                       int col, const Lane &l)
{
    const u32 real[2] = { l.row < rows ? ~0u : 0, l.row + 8 < rows ? ~0u : 0 };
    UNROLL for (int k = 0; k < STEPS; k++) {
        u32 r[4];
        UNROLL for (int n = 0; n < 4; n++) {
            const int i = 4 * k + n;
            r[n] = pack_wide(x[2 * i] - low(p[i]), x[2 * i + 1] - high(p[i]))
                 & real[n & 1];
        }
        put_rest(rest + rest_at(col + 16 * k, l.lane), r);
    }
}
template<class Place>
INLINE void read_rest(u32 (&x)[4], Place rest, int k, const Lane &l)
{
    const uint4 v = get_rest(rest + rest_at(k, l.lane));
    x[0] = v.x;
    x[1] = v.y;
    x[2] = v.z;
    x[3] = v.w;
}
/* d += a b, 16 rows by 16, over 16 columns. */
INLINE void add_rows(float *d, const u32 (&a)[4], const u32 (&b)[4])
{
    UNROLL for (int h = 0; h < 2; h++) {
        const u32 y[2] = { b[h], b[h + 2] };
        product16(d + 4 * h, a, y);
    }
}
/* To scores of tiles over K columns: a's rest times b, a times b's rest, of
 * those that HAVE one. */
template<int K, int HAVE_A, int HAVE_B, int N, class A, class B>
INLINE void add_rests(float (&d)[N], u32 a, u32 b, A rest_a, B rest_b,
                      const Lane &l)
{
    UNROLL_TWICE for (int k = 0; k < K; k += 16) {
        u32 x[4], y[4], r[4];
        read_block(x, a, 0, k, l);
        read_block(y, b, 0, k, l);
        if (HAVE_A) {
            read_rest(r, rest_a, k, l);
            add_rows(d, r, y);
        }
        if (HAVE_B) {
            read_rest(r, rest_b, k, l);
            add_rows(d, x, r);
        }
    }
}
/* To scores under decays, of their first block: the warp's rows, decayed from
 * the sums before them, and what they meet, decayed to there. Where that is too
 * far for such factors, to what a token has with itself, which does not decay.
 */
template<int K, int HAVE_A, int HAVE_B, int N, class A, class B>
INLINE void add_decayed_rests(float (&d)[N], u32 a, u32 b, A rest_a, B rest_b,
                              u32 ga, u32 gb, int strict, const Lane &l)
{
    float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    const u32 start = sum_row<K>(gb, -1) + 4 * l.col;
    const bool far = forgets<K>(gb, 0, 0, K, l);
    NO_UNROLL for (int k = 0; k < K; k += 16) {
        u32 x[4], y[4], r[4];
        float2 f[4], g[4];
        UNROLL for (int n = 0; n < 4; n++) {
            const int row = l.row + n % 2 * 8;
            const u32 at = 4 * (k + n / 2 * 8 + l.col);
            const float2 from = times_log2e(load2(start + 4 * k + n / 2 * 32));
            f[n] = far ? float2 { 1.f, 1.f }
                 : decay_from(load2(sum_row<K>(ga, row) + at), from);
            g[n] = far ? float2 { 1.f, 1.f }
                 : decay_to(from, load2(sum_row<K>(gb, row) + at));
        }
        read_block(x, a, 0, k, l);
        read_block(y, b, 0, k, l);
        UNROLL for (int n = 0; n < 4; n++) {
            x[n] = decayed(x[n], f[n]);
            y[n] = decayed(y[n], g[n]);
        }
        if (HAVE_A) {
            read_rest(r, rest_a, k, l);
            UNROLL for (int n = 0; n < 4; n++)
                r[n] = decayed(r[n], f[n]);
            add_rows(sum, r, y);
        }
        if (HAVE_B) {
            read_rest(r, rest_b, k, l);
            UNROLL for (int n = 0; n < 4; n++)
                r[n] = decayed(r[n], g[n]);
            add_rows(sum, x, r);
        }
    }
    UNROLL for (int e = 0; e < 8; e++) {
        const int i = token(l.row + 8 * (e >> 1 & 1));
        const int j = token(8 * (e >> 2) + l.col + (e & 1));
        if (far ? i == j && ga == gb && !strict : i >= j + strict)
            d[e] += sum[e];
    }
}
