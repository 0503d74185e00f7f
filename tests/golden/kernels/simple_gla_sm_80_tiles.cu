#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 131328 bytes a chunk and head predicted: %2 %3 %4
// %6 %8 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18
struct Args0 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k0_forward(const __grid_constant__ Args0 a)
{
    float *const t0 = (float *)(arena + 19472);
    enum { SHARED0 = 1 };
    float *const t2 = (float *)(arena + 272);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 528);
    enum { SHARED3 = 1 };
    float *const t6 = (float *)(arena + 784);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 89104);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 0);
    enum { SHARED8 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 part = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - part * a.run.heads);
        const i64 s = part;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 chunks = (q.len + 63) / 64;
        if (0 < chunks) {
            const i64 at = 0;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            bf16 *const t1 = (bf16 *)(arena + 16 + (0) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 1040 + (0) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 54288 + (0) % 2 * 17408);
            enum { SHARED5 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                copy_in<128, 136, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 64, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < 64; f += THREADS / 128) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = m;
            if (m + 1 < chunks) {
                const i64 at = m + 1;
                const int n = (int)min(q.len - at * 64, (i64)64);
                const i64 token = q.start + at * 64;
                (void)n;
                (void)token;
                bf16 *const t1 = (bf16 *)(arena + 16 + (m + 1) % 2 * 128);
                enum { SHARED1 = 1 };
                bf16 *const t4 = (bf16 *)(arena + 1040 + (m + 1) % 2 * 9216);
                enum { SHARED4 = 1 };
                bf16 *const t5 = (bf16 *)(arena + 54288 + (m + 1) % 2 * 17408);
                enum { SHARED5 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                    copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                    copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                    copy_in<128, 136, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 16 + (m) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 1040 + (m) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 54288 + (m) % 2 * 17408);
            enum { SHARED5 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)n;
            (void)token;
            {
                bf16 *p = (bf16 *)(stored + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v9;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t2[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v12 = t3[(n - 1)] - t3[i];
                const float v13 = exp_(v12);
                t6[i] = v13;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v14 = exp_(t3[(n - 1)]);
                t8[0] = v14;
            }
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v16 = pair_at<1, true>(t5 + i * 136 + d1) * t6[i];
                put_pair<1, true>(t7 + i * 136 + d1, v16);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 136, SHARED7 ? 8 : 2>(t7 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v15 = pair_at<1, true>(t0 + d0 * 136 + d1) * t8[0];
                const Pair v18 = v15 + x;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v18);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[4].p) {
                float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[4].sd[0], a.t[4].sd[1], 64, a.t[4].wide);
            }
        }
        __syncthreads();
    }
}

// forward (token), 196864 bytes a chunk and head predicted: %1 %2 %3 %4
// %8 %9 %10 %19 %20 %21 %22 %23 %24 %25 %26 %27 %28 %29
struct Args1 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k1_token(const __grid_constant__ Args1 a)
{
    bf16 *const t0 = (bf16 *)(arena + 0);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 128);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 384);
    enum { SHARED2 = 1 };
    bf16 *const t3 = (bf16 *)(arena + 896);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 18304);
    enum { SHARED4 = 1 };
    float *const t5 = (float *)(arena + 640);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 87936);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 53120);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 18304);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 36736);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 70528);
    enum { SHARED10 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED3>(t3, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            copy_wait<4>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t0[i]), bits(0xc2d00000));
                t1[i] = v9;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t1[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t2[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v19 = exp_(t2[i]);
                t5[i] = v19;
            }
            copy_wait<2>();
            __syncthreads();
            product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
                matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v21 = t5[i] * x;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, v21);
                };
            });
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v24 = i >= j ? exp_(t2[i] - t2[j]) : 0.f;
                t8[i * 72 + j] = v24;
            }
            copy_wait<1>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
                matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v26 = pair_at<1, true>(t8 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t9 + i * 72 + j, v26);
                };
            });
            copy_wait<0>();
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<72, 1, SHARED9 ? 8 : 2>(t9 + 0),
                matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v29 = pair_at<1, true>(t6 + i * 136 + d1) + x;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, v29);
                };
            });
            __syncthreads();
            if (a.t[4].p) {
                bf16 *p = (bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_out<128, 136>(t6, (bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}

// backward (reverse), 131328 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %47 %50 %60 %61
struct Args2 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 19472);
    enum { SHARED0 = 1 };
    float *const t2 = (float *)(arena + 272);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 528);
    enum { SHARED3 = 1 };
    float *const t6 = (float *)(arena + 784);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 89104);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 0);
    enum { SHARED8 = 1 };
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 part = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - part * a.run.heads);
        const i64 s = part;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 chunks = (q.len + 63) / 64;
        if (0 < chunks) {
            const i64 at = chunks - 1 - (0);
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            bf16 *const t1 = (bf16 *)(arena + 16 + (0) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 1040 + (0) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 54288 + (0) % 2 * 17408);
            enum { SHARED5 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                copy_in<128, 136, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 64, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 128, e = TID % 128; f < 64; f += THREADS / 128) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 136 + d1] = 0;
                }
            }
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            if (m + 1 < chunks) {
                const i64 at = chunks - 1 - (m + 1);
                const int n = (int)min(q.len - at * 64, (i64)64);
                const i64 token = q.start + at * 64;
                (void)n;
                (void)token;
                bf16 *const t1 = (bf16 *)(arena + 16 + (m + 1) % 2 * 128);
                enum { SHARED1 = 1 };
                bf16 *const t4 = (bf16 *)(arena + 1040 + (m + 1) % 2 * 9216);
                enum { SHARED4 = 1 };
                bf16 *const t5 = (bf16 *)(arena + 54288 + (m + 1) % 2 * 17408);
                enum { SHARED5 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                    copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                    copy_in<64, 72, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                    copy_in<128, 136, SHARED5>(t5, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 16 + (m) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 1040 + (m) % 2 * 9216);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 54288 + (m) % 2 * 17408);
            enum { SHARED5 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)n;
            (void)token;
            {
                bf16 *p = (bf16 *)(later + 0) + block * 8192;
                copy_out<128, 136>(t0, p, 128, 1, 64, true);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v9;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t2[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v19 = exp_(t3[i]);
                t6[i] = v19;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v14 = exp_(t3[(n - 1)]);
                t8[0] = v14;
            }
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
                const int i = f;
                const int d1 = e;
                const Pair v47 = pair_at<1, true>(t5 + i * 136 + d1) * t6[i];
                put_pair<1, true>(t7 + i * 136 + d1, v47);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
                matrix<1, 72, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 136, SHARED7 ? 8 : 2>(t7 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v60 = pair_at<1, true>(t0 + d0 * 136 + d1) * t8[0];
                const Pair v61 = x + v60;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 136 + d1, v61);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[4].p) {
                float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
                copy_out<128, 136>(t0, (float *)p, a.t[4].sd[0], a.t[4].sd[1], 64, a.t[4].wide);
            }
        }
        __syncthreads();
    }
}

// backward (token), 360960 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %8 %9 %10 %11 %12 %13 %14 %19 %22 %23 %24 %25 %26 %27 %30 %31 %32
// %33 %34 %35 %36 %37 %38 %39 %40 %41 %42 %43 %44 %45 %46 %48 %49 %51
// %52 %53 %54 %55 %56 %57 %58 %59 %62 %63 %64 %65 %66 %67 %68 %69 %70
// %71 %72
struct Args3 { Run run; Tensor t[9]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 34816ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    bf16 *const t0 = (bf16 *)(arena + 384);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 512);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 141456);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 141200);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 36240);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 88464);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 384);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 400);
    enum { SHARED7 = 1 };
    bf16 *const t8 = (bf16 *)(arena + 71056);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 36240);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 123280);
    enum { SHARED10 = 1 };
    float *const t11 = (float *)(arena + 141712);
    enum { SHARED11 = 1 };
    bf16 *const t12 = (bf16 *)(arena + 27024);
    enum { SHARED12 = 1 };
    float *const t13 = (float *)(arena + 88464);
    enum { SHARED13 = 1 };
    bf16 *const t14 = (bf16 *)(arena + 17808);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 140688);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(arena + 140944);
    enum { SHARED16 = 1 };
    float *const t17 = (float *)(arena + 400);
    enum { SHARED17 = 1 };
    float *const t18 = (float *)(arena + 88464);
    enum { SHARED18 = 1 };
    float *const t19 = (float *)(spill + 0);
    enum { SHARED19 = 0 };
    float *const t20 = (float *)(arena + 53648);
    enum { SHARED20 = 1 };
    float *const t21 = (float *)(spill + 0);
    enum { SHARED21 = 0 };
    float *const t22 = (float *)(arena + 640);
    enum { SHARED22 = 1 };
    float *const t23 = (float *)(arena + 36240);
    enum { SHARED23 = 1 };
    float *const t24 = (float *)(arena + 128);
    enum { SHARED24 = 1 };
    float *const t25 = (float *)(arena + 384);
    enum { SHARED25 = 1 };
    if (a.run.ragged) {
        clear(spill_of(a.run, 34816ll), 34816);
        __syncthreads();
    }
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)block;
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t24[i] = left;
                    (void)found;
                });
            }
        }
        copy_wait<0>();
        __syncthreads();
        {
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
                copy_in<1, 1, SHARED0>(t0, (const bf16 *)p, a.t[0].st, 0, n, a.t[0].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(later + 0);
                copy_in<128, 136, SHARED5>(t5, p, 128, 1, 128, true);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED8>(t8, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            copy_wait<4>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t0[i]), bits(0xc2d00000));
                const float v71 = get(t0[i]) < bits(0xc2d00000) ? 1 : 0;
                t1[i] = v9;
                t2[i] = v71;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t1[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v14 = exp_(t3[(n - 1)]);
                t6[0] = v14;
            }
            copy_wait<3>();
            __syncthreads();
            NO_UNROLL for (int e = 0; e < 1; e += 1) {
                float x = 0;
                for (int f = 4 * (TID); f < 16384; f += 4 * THREADS) {
                    const int d1 = f % 128;
                    const int d0 = f / 128 % 128;
                    x += dot_four(t4 + d0 * 136 + d1, t5 + d0 * 136 + d1);
                }
                x = block_sum(x, scratch);
                if (TID == 0) {
                    const float v63 = t6[0] * x;
                    t6[0] = v63;
                }
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v24 = i >= j ? exp_(t3[i] - t3[j]) : 0.f;
                t11[i * 72 + j] = v24;
            }
            copy_wait<0>();
            __syncthreads();
            two_products<1, 2>(64, 64,
                term<128, true>(matrix<136, 1, SHARED8 ? 8 : 2>(t8 + 0),
                matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0), 128),
                term<128, true>(matrix<136, 1, SHARED9 ? 8 : 2>(t9 + 0),
                matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int j = col;
                const Pair v26 = pair_at<1, true>(t11 + i * 72 + j) * z;
                const Pair v35 = z * x;
                const Pair v36 = pair_at<1, true>(t11 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t12 + i * 72 + j, v26);
                    put_pair<1, true>(t13 + i * 72 + j, v35);
                    put_pair<1, true>(t14 + i * 72 + j, v36);
                };
            });
            __syncthreads();
            {
                bf16 *p = (bf16 *)(stored + 0);
                copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
                    const int j = f;
                    x += dot_four(t11 + i * 72 + j, t13 + i * 72 + j, n - f);
                }
                x = lane_sum<8>(x);
                if (first) {
                    t15[i] = x;
                }
            }
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int j = e;
                float x = 0;
                UNROLL_FOUR for (int f = TID % 8; f < n; f += 8) {
                    const int i = f;
                    x += t11[i * 72 + j] * t13[i * 72 + j];
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v41 = -x;
                    t16[j] = v41;
                }
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v19 = exp_(t3[i]);
                const float v12 = t3[(n - 1)] - t3[i];
                const float v13 = exp_(v12);
                const float v44 = t15[i] + t16[i];
                t15[i] = v19;
                t16[i] = v13;
                t17[i] = v44;
            }
            copy_wait<0>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<72, 1, SHARED14 ? 8 : 2>(t14 + 0),
                matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0), n),
                term<128, true>(matrix<136, 1, SHARED8 ? 8 : 2>(t8 + 0),
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d0 = col;
                const Pair v48 = t15[i] * z;
                const Pair v49 = x + v48;
                return [=] {
                    put_pair<1, true>(t18 + i * 136 + d0, z);
                    put_pair<1, true>(t19 + i * 136 + d0, v49);
                };
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<128, 136, SHARED9>(t9, (const bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
                    const int d0 = f;
                    x += dot_four(t9 + i * 136 + d0, t18 + i * 136 + d0);
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v51 = t15[i] * x;
                    const float v52 = t17[i] + v51;
                    t15[i] = v52;
                }
            }
            if (a.t[5].p) {
                bf16 *p = (bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
                copy_out<128, 136>(t19, (bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(later + 0);
                copy_in<128, 136, SHARED5>(t5, p, 128, 1, 128, true);
            }
            copy_commit();
            copy_wait<0>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<1, 72, SHARED14 ? 8 : 2>(t14 + 0),
                matrix<1, 136, SHARED9 ? 8 : 2>(t9 + 0), n),
                term<128, true>(matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<136, 1, SHARED5 ? 8 : 2>(t5 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d0 = col;
                const Pair v54 = t16[i] * z;
                const Pair v55 = x + v54;
                return [=] {
                    put_pair<1, true>(t20 + i * 136 + d0, z);
                    put_pair<1, true>(t21 + i * 136 + d0, v55);
                };
            });
            __syncthreads();
            NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
                const int e = min(g, n - 1);
                const bool first = g == e && TID % 8 == 0;
                const int i = e;
                float x = 0;
                for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
                    const int d0 = f;
                    x += dot_four(t10 + i * 136 + d0, t20 + i * 136 + d0);
                }
                x = lane_sum<8>(x);
                if (first) {
                    const float v64 = t16[i] * x;
                    const float v67 = t15[i] - v64;
                    t15[i] = x;
                    t22[i] = v67;
                }
            }
            if (a.t[6].p) {
                bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
                copy_out<128, 136>(t21, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED8>(t8, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            NO_UNROLL for (int from = TID / 32, g = from; g - from < 1; g += THREADS / 32) {
                const int e = min(g, 1 - 1);
                const bool first = g == e && TID % 32 == 0;
                float x = 0;
                NO_UNROLL for (int f = 4 * (TID % 32); f < n; f += 4 * 32) {
                    const int i = f;
                    x += dot_four(t16 + i, t15 + i, n - f);
                }
                x = lane_sum<32>(x);
                if (first) {
                    const float v66 = t6[0] + x;
                    t6[0] = v66;
                }
            }
            copy_wait<0>();
            __syncthreads();
            two_products<2, 2>(64, 128,
                term<64, false>(matrix<1, 72, SHARED12 ? 8 : 2>(t12 + 0),
                matrix<1, 136, SHARED8 ? 8 : 2>(t8 + 0), n),
                term<128, true>(matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0),
                matrix<1, 136, SHARED5 ? 8 : 2>(t5 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d1 = col;
                const Pair v57 = t16[i] * z;
                const Pair v58 = x + v57;
                return [=] {
                    put_pair<1, true>(t23 + i * 136 + d1, v58);
                };
            });
            __syncthreads();
            if (a.t[7].p) {
                bf16 *p = (bf16 *)a.t[7].p + at_token(a.t[7], q, token, head);
                copy_out<128, 136>(t23, (bf16 *)p, a.t[7].st, a.t[7].sd[0], n, a.t[7].wide);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v68 = i == n - 1 ? t6[0] : t24[(i + 1)];
                const float v69 = t22[i] + v68;
                t22[i] = v69;
            }
            __syncthreads();
            NO_UNROLL for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = n - 1 - at;
                    (void)i;
                    return t22[i];
                },
                    [&](int at, float found, float left) {
                    const int i = n - 1 - at;
                    t25[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v72 = t2[i] != 0 ? 0.f : t25[i];
                t2[i] = v72;
            }
            __syncthreads();
            if (a.t[8].p) {
                bf16 *p = (bf16 *)a.t[8].p + at_token(a.t[8], q, token, head);
                copy_out<1, 1>(t2, (bf16 *)p, a.t[8].st, 0, n, a.t[8].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}
