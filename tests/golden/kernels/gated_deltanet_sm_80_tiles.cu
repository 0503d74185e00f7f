#define THREADS 512
#define RANK 2
#include "numbers.cuh"
#include "warp.cuh"
#include "run.cuh"
#include "tile.cuh"
#include "products.cuh"
#include "scans.cuh"
extern __shared__ char arena[];

// forward (forward), 164352 bytes a chunk and head predicted: %2 %3 %4
// %5 %7 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24
// %25 %26 %27 %28 %29 %30 %31 %32 %33
struct Args0 { Run run; Tensor t[6]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k0_forward(const __grid_constant__ Args0 a)
{
    float *const t0 = (float *)(arena + 54800);
    enum { SHARED0 = 1 };
    float *const t2 = (float *)(arena + 272);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 528);
    enum { SHARED3 = 1 };
    float *const t6 = (float *)(arena + 91664);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 110096);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 1040);
    enum { SHARED8 = 1 };
    float *const t9 = (float *)(arena + 1296);
    enum { SHARED9 = 1 };
    float *const t11 = (float *)(arena + 128528);
    enum { SHARED11 = 1 };
    float *const t12 = (float *)(arena + 110096);
    enum { SHARED12 = 1 };
    bf16 *const t13 = (bf16 *)(arena + 91664);
    enum { SHARED13 = 1 };
    float *const t14 = (float *)(arena + 0);
    enum { SHARED14 = 1 };
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
            bf16 *const t4 = (bf16 *)(arena + 19984 + (0) % 2 * 17408);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 784 + (0) % 2 * 128);
            enum { SHARED5 = 1 };
            bf16 *const t10 = (bf16 *)(arena + 1552 + (0) % 2 * 9216);
            enum { SHARED10 = 1 };
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<1, 1, SHARED5>(t5, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head) + block * 64 * a.t[4].sd[0];
                copy_in<64, 72, SHARED10>(t10, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
        }
        copy_commit();
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[1];
                copy_in<64, 72, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 128, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < 128; f += THREADS / 64) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 72 + d1] = 0;
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
                bf16 *const t4 = (bf16 *)(arena + 19984 + (m + 1) % 2 * 17408);
                enum { SHARED4 = 1 };
                bf16 *const t5 = (bf16 *)(arena + 784 + (m + 1) % 2 * 128);
                enum { SHARED5 = 1 };
                bf16 *const t10 = (bf16 *)(arena + 1552 + (m + 1) % 2 * 9216);
                enum { SHARED10 = 1 };
                {
                    const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                    copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                    copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                    copy_in<1, 1, SHARED5>(t5, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
                }
                {
                    const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head) + block * 64 * a.t[4].sd[0];
                    copy_in<64, 72, SHARED10>(t10, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
                }
            }
            copy_commit();
            bf16 *const t1 = (bf16 *)(arena + 16 + (m) % 2 * 128);
            enum { SHARED1 = 1 };
            bf16 *const t4 = (bf16 *)(arena + 19984 + (m) % 2 * 17408);
            enum { SHARED4 = 1 };
            bf16 *const t5 = (bf16 *)(arena + 784 + (m) % 2 * 128);
            enum { SHARED5 = 1 };
            bf16 *const t10 = (bf16 *)(arena + 1552 + (m) % 2 * 9216);
            enum { SHARED10 = 1 };
            copy_wait<1>();
            __syncthreads();
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                bf16 *p = (bf16 *)(stored + 0) + block * 64;
                copy_out<64, 72>(t0, p, 128, 1, 128, true);
            }
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v10 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v10;
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
                const float v13 = exp_(t3[i]);
                const float v27 = t3[(n - 1)] - t3[i];
                const float v28 = exp_(v27);
                t8[i] = v13;
                t9[i] = v28;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v29 = exp_(t3[(n - 1)]);
                t14[0] = v29;
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v20 = i > j ? exp_(t3[i] - t3[j]) : 0.f;
                t6[i * 72 + j] = v20;
            }
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v22 = get(t5[i]) * x;
                const Pair v23 = pair_at<1, true>(t6 + i * 72 + j) * v22;
                const Pair v24 = -v23;
                return [=] {
                    put_pair<1, true>(t6 + i * 72 + j, v24);
                };
            });
            narrow<64, 72, 72>(t7, t0, 128);
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 72, SHARED7 ? 8 : 2>(t7 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v15 = get(t5[i]) * x;
                const Pair v16 = t8[i] * v15;
                const Pair v12 = pair_at<1, true>(t10 + i * 72 + d1) * get(t5[i]);
                const Pair v17 = v12 - v16;
                return [=] {
                    put_pair<1, true>(t11 + i * 72 + d1, v17);
                };
            });
            __syncthreads();
            solve<false, 72, 1, 72, 1, true>(n * 1, 64, t6 + 0, t11 + 0, t12);
            {
                bf16 *p = (bf16 *)(stored + 32768) + block * 64;
                copy_out<64, 72>(t11, p, 128, 1, n, true);
            }
            UNROLL_FOUR for (int f = TID / 32, e = TID % 32 * 2; f < n; f += THREADS / 32) {
                const int i = f;
                const int d1 = e;
                const Pair v31 = pair_at<1, true>(t11 + i * 72 + d1) * t9[i];
                put_pair<1, true>(t13 + i * 72 + d1, v31);
            }
            __syncthreads();
            product<BF16, 2, 2, 64, false, true, true, Paired>(128, 64, n,
                matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 72, SHARED13 ? 8 : 2>(t13 + 0),
                [&](int row, int col, Pair x) {
                const int d0 = row;
                const int d1 = col;
                const Pair v30 = pair_at<1, true>(t0 + d0 * 72 + d1) * t14[0];
                const Pair v33 = v30 + x;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 72 + d1, v33);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[5].p) {
                float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[1];
                copy_out<64, 72>(t0, (float *)p, a.t[5].sd[0], a.t[5].sd[1], 128, a.t[5].wide);
            }
        }
        __syncthreads();
    }
}

// forward (token), 196864 bytes a chunk and head predicted: %1 %2 %5 %9
// %10 %11 %13 %18 %19 %34 %35 %36 %37 %38 %39 %40 %41
struct Args1 { Run run; Tensor t[4]; };
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
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
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
                bf16 *p = (bf16 *)(stored + 32768);
                copy_in<128, 136, SHARED10>(t10, p, 128, 1, n, true);
            }
            copy_commit();
            copy_wait<4>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v10 = max_(get(t0[i]), bits(0xc2d00000));
                t1[i] = v10;
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
                const float v13 = exp_(t2[i]);
                t5[i] = v13;
            }
            copy_wait<2>();
            __syncthreads();
            product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
                matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
                matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int d1 = col;
                const Pair v35 = t5[i] * x;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, v35);
                };
            });
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v36 = i >= j ? exp_(t2[i] - t2[j]) : 0.f;
                t8[i * 72 + j] = v36;
            }
            copy_wait<1>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED3 ? 8 : 2>(t3 + 0),
                matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v38 = pair_at<1, true>(t8 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t9 + i * 72 + j, v38);
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
                const Pair v41 = pair_at<1, true>(t6 + i * 136 + d1) + x;
                return [=] {
                    put_pair<1, true>(t6 + i * 136 + d1, v41);
                };
            });
            __syncthreads();
            if (a.t[3].p) {
                bf16 *p = (bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_out<128, 136>(t6, (bf16 *)p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            __syncthreads();
        }
        {
        }
        __syncthreads();
    }
}

// backward (reverse), 197120 bytes a chunk and head predicted: %1 %2 %4
// %5 %6 %8 %9 %10 %11 %13 %18 %19 %20 %21 %22 %23 %24 %26 %27 %28 %29
// %36 %37 %38 %45 %46 %55 %58 %61 %62 %63 %65 %66 %75 %99 %102 %106 %107
struct Args2 { Run run; Tensor t[7]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 1296);
    enum { SHARED0 = 1 };
    bf16 *const t1 = (bf16 *)(arena + 16);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 272);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 528);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 38160);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 144);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 82192);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 55568);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(arena + 100624);
    enum { SHARED8 = 1 };
    bf16 *const t9 = (bf16 *)(arena + 119056);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 72976);
    enum { SHARED10 = 1 };
    bf16 *const t11 = (bf16 *)(arena + 100624);
    enum { SHARED11 = 1 };
    float *const t12 = (float *)(arena + 784);
    enum { SHARED12 = 1 };
    float *const t13 = (float *)(arena + 1040);
    enum { SHARED13 = 1 };
    float *const t14 = (float *)(arena + 128272);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 100624);
    enum { SHARED15 = 1 };
    bf16 *const t16 = (bf16 *)(arena + 82192);
    enum { SHARED16 = 1 };
    bf16 *const t17 = (bf16 *)(arena + 72976);
    enum { SHARED17 = 1 };
    float *const t18 = (float *)(arena + 0);
    enum { SHARED18 = 1 };
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
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[1];
                copy_in<64, 72, SHARED0>(t0, (const float *)p, a.t[0].sd[0], a.t[0].sd[1], 128, a.t[0].wide);
            } else {
                UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < 128; f += THREADS / 64) {
                    const int d0 = f;
                    const int d1 = e;
                    t0[d0 * 72 + d1] = 0;
                }
            }
            copy_commit();
        }
        copy_wait<0>();
        __syncthreads();
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)n;
            (void)token;
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<1, 1, SHARED1>(t1, (const bf16 *)p, a.t[1].st, 0, n, a.t[1].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, SHARED4>(t4, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                copy_in<1, 1, SHARED5>(t5, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
            }
            copy_commit();
            {
                const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head) + block * 64 * a.t[5].sd[0];
                copy_in<64, 72, SHARED10>(t10, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            copy_commit();
            {
                bf16 *p = (bf16 *)(later + 0) + block * 64;
                copy_out<64, 72>(t0, p, 128, 1, 128, true);
            }
            copy_wait<4>();
            __syncthreads();
            NO_UNROLL for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v10 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v10;
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
                const float v27 = t3[(n - 1)] - t3[i];
                const float v28 = exp_(v27);
                const float v13 = exp_(t3[i]);
                t12[i] = v28;
                t13[i] = v13;
            }
            NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
                const float v29 = exp_(t3[(n - 1)]);
                t18[0] = v29;
            }
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v20 = i > j ? exp_(t3[i] - t3[j]) : 0.f;
                t6[i * 72 + j] = v20;
            }
            copy_wait<2>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v22 = get(t5[i]) * x;
                const Pair v23 = pair_at<1, true>(t6 + i * 72 + j) * v22;
                const Pair v24 = -v23;
                return [=] {
                    put_pair<1, true>(t6 + i * 72 + j, v24);
                };
            });
            UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                const int i = f;
                const int j = e;
                if (j >= n)
                    continue;
                const float v36 = i >= j ? exp_(t3[i] - t3[j]) : 0.f;
                t8[i * 72 + j] = v36;
            }
            copy_wait<1>();
            __syncthreads();
            product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
                matrix<136, 1, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                [&](int row, int col, Pair x) {
                const int i = row;
                const int j = col;
                const Pair v38 = pair_at<1, true>(t8 + i * 72 + j) * x;
                return [=] {
                    put_pair<1, true>(t9 + i * 72 + j, v38);
                };
            });
            __syncthreads();
            narrow<64, 72, 72>(t11, t0, 128);
            copy_wait<0>();
            __syncthreads();
            two_products<1, 2>(64, 64,
                term<64, false>(matrix<1, 72, SHARED9 ? 8 : 2>(t9 + 0),
                matrix<1, 72, SHARED10 ? 8 : 2>(t10 + 0), n),
                term<128, true>(matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 72, SHARED11 ? 8 : 2>(t11 + 0), 128),
                [&](int row, int col, Pair x, Pair z) {
                const int i = row;
                const int d1 = col;
                const Pair v62 = t12[i] * z;
                const Pair v63 = x + v62;
                return [=] {
                    put_pair<1, true>(t14 + i * 72 + d1, v63);
                };
            });
            __syncthreads();
            solve<true, 72, 1, 72, 1, true>(n * 1, 64, t6 + 0, t14 + 0, t15);
            {
                float *p = (float *)(later + 32768) + block * 64;
                copy_out<64, 72>(t14, p, 128, 1, n, true);
            }
            UNROLL_FOUR for (int f = TID / 32, e = TID % 32 * 2; f < n; f += THREADS / 32) {
                const int i = f;
                const int d1 = e;
                const Pair v55 = pair_at<1, true>(t10 + i * 72 + d1) * t13[i];
                put_pair<1, true>(t16 + i * 72 + d1, v55);
            }
            __syncthreads();
            UNROLL_FOUR for (int f = TID / 32, e = TID % 32 * 2; f < n; f += THREADS / 32) {
                const int i = f;
                const int d1 = e;
                const Pair v99 = t13[i] * pair_at<1, true>(t14 + i * 72 + d1);
                const Pair v102 = get(t5[i]) * v99;
                put_pair<1, true>(t17 + i * 72 + d1, v102);
            }
            __syncthreads();
            two_products<2, 2>(128, 64,
                term<64, false>(matrix<1, 136, SHARED7 ? 8 : 2>(t7 + 0),
                matrix<1, 72, SHARED16 ? 8 : 2>(t16 + 0), n),
                term<64, false>(matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
                matrix<1, 72, SHARED17 ? 8 : 2>(t17 + 0), n),
                [&](int row, int col, Pair x, Pair z) {
                const int d0 = row;
                const int d1 = col;
                const Pair v65 = pair_at<1, true>(t0 + d0 * 72 + d1) * t18[0];
                const Pair v66 = x + v65;
                const Pair v107 = v66 - z;
                return [=] {
                    put_pair<1, true>(t0 + d0 * 72 + d1, v107);
                };
            });
            __syncthreads();
        }
        {
            if (a.t[6].p) {
                float *p = (float *)a.t[6].p + s * a.t[6].sb + head_of(a.t[6], head) * a.t[6].sh + block * 64 * a.t[6].sd[1];
                copy_out<64, 72>(t0, (float *)p, a.t[6].sd[0], a.t[6].sd[1], 128, a.t[6].wide);
            }
        }
        __syncthreads();
    }
}

// backward (token), 394240 bytes a chunk and head predicted: %1 %2 %3 %4
// %5 %6 %9 %10 %11 %12 %13 %14 %15 %16 %17 %18 %19 %20 %21 %22 %23 %24
// %25 %26 %27 %28 %29 %36 %37 %39 %42 %43 %44 %47 %48 %49 %50 %51 %52
// %53 %54 %56 %57 %59 %60 %64 %67 %68 %69 %70 %71 %72 %73 %74 %76 %77
// %78 %79 %80 %81 %82 %83 %84 %85 %86 %87 %88 %89 %90 %91 %92 %93 %94
// %95 %96 %97 %98 %100 %101 %103 %104 %105 %108 %109 %110 %111 %112 %113
// %114 %115
struct Args3 { Run run; Tensor t[11]; };
struct Placed3 { Run run; Placed t[11]; };
CALLED void k3_token_part0()
    {
    const Placed3 &a = *(const Placed3 *)(arena + 208);
    char *const spill = global(a.run.spill) + blockIdx.x * 157696ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    bf16 *const t0 = (bf16 *)(arena + 19648);
    enum { SHARED0 = 1 };
    float *const t1 = (float *)(arena + 19776);
    enum { SHARED1 = 1 };
    float *const t2 = (float *)(arena + 136016);
    enum { SHARED2 = 1 };
    float *const t3 = (float *)(arena + 55632);
    enum { SHARED3 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 82256);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 19648);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 55616);
    enum { SHARED6 = 1 };
    bf16 *const t7 = (bf16 *)(arena + 19776);
    enum { SHARED7 = 1 };
    float *const t8 = (float *)(spill + 122880);
    enum { SHARED8 = 0 };
    float *const t9 = (float *)(arena + 135760);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 117072);
    enum { SHARED10 = 1 };
    bf16 *const t11 = (bf16 *)(arena + 19648);
    enum { SHARED11 = 1 };
    float *const t12 = (float *)(spill + 104448);
    enum { SHARED12 = 0 };
    float *const t13 = (float *)(arena + 37184);
    enum { SHARED13 = 1 };
    float *const t14 = (float *)(arena + 135248);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 135504);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(spill + 0);
    enum { SHARED16 = 0 };
    float *const t17 = (float *)(arena + 19648);
    enum { SHARED17 = 1 };
    bf16 *const t18 = (bf16 *)(arena + 19648);
    enum { SHARED18 = 1 };
    bf16 *const t19 = (bf16 *)(arena + 64848);
    enum { SHARED19 = 1 };
    bf16 *const t20 = (bf16 *)(arena + 38208);
    enum { SHARED20 = 1 };
    float *const t21 = (float *)(arena + 136272);
    enum { SHARED21 = 1 };
    float *const t22 = (float *)(arena + 82256);
    enum { SHARED22 = 1 };
    bf16 *const t23 = (bf16 *)(arena + 55632);
    enum { SHARED23 = 1 };
    float *const t24 = (float *)(arena + 134480);
    enum { SHARED24 = 1 };
    float *const t25 = (float *)(arena + 134992);
    enum { SHARED25 = 1 };
    float *const t26 = (float *)(spill + 34816);
    enum { SHARED26 = 0 };
    float *const t27 = (float *)(spill + 69632);
    enum { SHARED27 = 0 };
    float *const t28 = (float *)(arena + 134736);
    enum { SHARED28 = 1 };
    const Item &known = *(const Item *)(arena + 128);
    const Sequence q = { known.b, 0, known.start, known.len };
    const i64 slot = known.slot;
    const int head = known.head, block = known.block;
    (void)q;
    (void)slot;
    (void)head;
    (void)block;
    const i64 at = known.last;
    const int n = (int)min(q.len - at * 64, (i64)64);
    const i64 token = q.start + at * 64;
    char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
    char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
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
        float *p = (float *)(later + 32768);
        copy_in<128, 136, SHARED8>(t8, p, 128, 1, n, true);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    copy_wait<3>();
    __syncthreads();
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v10 = max_(get(t0[i]), bits(0xc2d00000));
        const float v114 = get(t0[i]) < bits(0xc2d00000) ? 1 : 0;
        t1[i] = v10;
        t2[i] = v114;
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
        bf16 *p = (bf16 *)(later + 0);
        copy_in<128, 136, SHARED5>(t5, p, 128, 1, 128, true);
    }
    copy_commit();
    NO_UNROLL for (int e = TID; e < 1; e += THREADS) {
        const float v29 = exp_(t3[(n - 1)]);
        t6[0] = v29;
    }
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v13 = exp_(t3[i]);
        const float v27 = t3[(n - 1)] - t3[i];
        const float v28 = exp_(v27);
        t14[i] = v13;
        t15[i] = v28;
    }
    copy_wait<0>();
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
            const float v68 = t6[0] * x;
            t6[0] = v68;
        }
    }
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
        copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
        copy_in<1, 1, SHARED11>(t11, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
    }
    copy_commit();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
    }
    copy_commit();
    copy_wait<2>();
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d1 = f;
            x += dot_four(t7 + i * 136 + d1, t8 + i * 136 + d1);
        }
        x = lane_sum<8>(x);
        if (first) {
            t9[i] = x;
        }
    }
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
        const int i = f;
        const int j = e;
        if (j >= n)
            continue;
        const float v20 = i > j ? exp_(t3[i] - t3[j]) : 0.f;
        t12[i * 72 + j] = v20;
    }
    copy_wait<1>();
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
        copy_in<128, 136, SHARED7>(t7, (const bf16 *)p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
    }
    copy_commit();
    product<BF16, 1, 2, 128, true, true, true, Paired>(64, 64, 128,
        matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0),
        matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int j = col;
        const Pair v22 = get(t11[i]) * x;
        const Pair v23 = pair_at<1, true>(t12 + i * 72 + j) * v22;
        const Pair v24 = -v23;
        return [=] {
            put_pair<1, true>(t13 + i * 72 + j, v24);
        };
    });
    copy_wait<0>();
    __syncthreads();
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0),
        matrix<1, 136, SHARED4 ? 8 : 2>(t4 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d1 = col;
        const Pair v15 = get(t11[i]) * x;
        const Pair v16 = t14[i] * v15;
        const Pair v12 = pair_at<1, true>(t7 + i * 136 + d1) * get(t11[i]);
        const Pair v17 = v12 - v16;
        return [=] {
            put_pair<1, true>(t16 + i * 136 + d1, v17);
        };
    });
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    solve<false, 72, 1, 136, 1, true>(n * 1, 128, t13 + 0, t16 + 0, t17);
    {
        const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
        copy_in<128, 136, SHARED20>(t20, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
        copy_in<128, 136, SHARED18>(t18, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
    }
    copy_commit();
    narrow<128, 136, 136>(t19, t16, n);
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
        const int i = f;
        const int j = e;
        if (j >= n)
            continue;
        const float v36 = i >= j ? exp_(t3[i] - t3[j]) : 0.f;
        t21[i * 72 + j] = v36;
    }
    copy_wait<0>();
    __syncthreads();
    two_products<1, 2>(64, 64,
        term<128, true>(matrix<136, 1, SHARED18 ? 8 : 2>(t18 + 0),
        matrix<136, 1, SHARED19 ? 8 : 2>(t19 + 0), 128),
        term<128, true>(matrix<136, 1, SHARED20 ? 8 : 2>(t20 + 0),
        matrix<136, 1, SHARED10 ? 8 : 2>(t10 + 0), 128),
        [&](int row, int col, Pair x, Pair z) {
        const int i = row;
        const int j = col;
        const Pair v47 = z * x;
        const Pair v48 = pair_at<1, true>(t21 + i * 72 + j) * x;
        return [=] {
            put_pair<1, true>(t22 + i * 72 + j, v47);
            put_pair<1, true>(t23 + i * 72 + j, v48);
        };
    });
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
        copy_in<128, 136, SHARED18>(t18, (const bf16 *)p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
        copy_in<128, 136, SHARED20>(t20, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
    }
    copy_commit();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        UNROLL_TWICE for (int f = 4 * (TID % 8); f < n; f += 4 * 8) {
            const int j = f;
            x += dot_four(t21 + i * 72 + j, t22 + i * 72 + j, n - f);
        }
        x = lane_sum<8>(x);
        if (first) {
            t24[i] = x;
        }
    }
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int j = e;
        float x = 0;
        UNROLL_FOUR for (int f = TID % 8; f < n; f += 8) {
            const int i = f;
            x += t21[i * 72 + j] * t22[i * 72 + j];
        }
        x = lane_sum<8>(x);
        if (first) {
            t25[j] = x;
        }
    }
    __syncthreads();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    two_products<2, 2>(64, 128,
        term<64, false>(matrix<72, 1, SHARED23 ? 8 : 2>(t23 + 0),
        matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0), n),
        term<128, true>(matrix<136, 1, SHARED18 ? 8 : 2>(t18 + 0),
        matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0), 128),
        [&](int row, int col, Pair x, Pair z) {
        const int i = row;
        const int d0 = col;
        const Pair v56 = t14[i] * z;
        const Pair v57 = x + v56;
        return [=] {
            put_pair<1, true>(t26 + i * 136 + d0, z);
            put_pair<1, true>(t27 + i * 136 + d0, v57);
        };
    });
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
        copy_in<128, 136, SHARED10>(t10, (const bf16 *)p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
    }
    copy_commit();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d0 = f;
            x += dot_four(t20 + i * 136 + d0, t26 + i * 136 + d0);
        }
        x = lane_sum<8>(x);
        if (first) {
            t28[i] = x;
        }
    }
    if (a.t[6].p) {
        bf16 *p = (bf16 *)a.t[6].p + at_token(a.t[6], q, token, head);
        copy_out<128, 136>(t27, (bf16 *)p, a.t[6].st, a.t[6].sd[0], n, a.t[6].wide);
    }
    __syncthreads();
}
CALLED void k3_token_part1()
    {
    const Placed3 &a = *(const Placed3 *)(arena + 208);
    char *const spill = global(a.run.spill) + blockIdx.x * 157696ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    float *const t2 = (float *)(arena + 136016);
    enum { SHARED2 = 1 };
    bf16 *const t4 = (bf16 *)(arena + 82256);
    enum { SHARED4 = 1 };
    bf16 *const t5 = (bf16 *)(arena + 19648);
    enum { SHARED5 = 1 };
    float *const t6 = (float *)(arena + 55616);
    enum { SHARED6 = 1 };
    float *const t8 = (float *)(spill + 122880);
    enum { SHARED8 = 0 };
    float *const t9 = (float *)(arena + 135760);
    enum { SHARED9 = 1 };
    bf16 *const t10 = (bf16 *)(arena + 117072);
    enum { SHARED10 = 1 };
    bf16 *const t11 = (bf16 *)(arena + 19648);
    enum { SHARED11 = 1 };
    float *const t12 = (float *)(spill + 104448);
    enum { SHARED12 = 0 };
    float *const t14 = (float *)(arena + 135248);
    enum { SHARED14 = 1 };
    float *const t15 = (float *)(arena + 135504);
    enum { SHARED15 = 1 };
    float *const t16 = (float *)(spill + 0);
    enum { SHARED16 = 0 };
    bf16 *const t19 = (bf16 *)(arena + 64848);
    enum { SHARED19 = 1 };
    bf16 *const t20 = (bf16 *)(arena + 38208);
    enum { SHARED20 = 1 };
    bf16 *const t23 = (bf16 *)(arena + 55632);
    enum { SHARED23 = 1 };
    float *const t24 = (float *)(arena + 134480);
    enum { SHARED24 = 1 };
    float *const t25 = (float *)(arena + 134992);
    enum { SHARED25 = 1 };
    float *const t28 = (float *)(arena + 134736);
    enum { SHARED28 = 1 };
    float *const t29 = (float *)(arena + 82256);
    enum { SHARED29 = 1 };
    float *const t30 = (float *)(spill + 34816);
    enum { SHARED30 = 0 };
    float *const t31 = (float *)(arena + 65104);
    enum { SHARED31 = 1 };
    float *const t32 = (float *)(arena + 1216);
    enum { SHARED32 = 1 };
    bf16 *const t33 = (bf16 *)(arena + 19776);
    enum { SHARED33 = 1 };
    bf16 *const t34 = (bf16 *)(arena + 28992);
    enum { SHARED34 = 1 };
    float *const t35 = (float *)(spill + 69632);
    enum { SHARED35 = 0 };
    float *const t36 = (float *)(arena + 64848);
    enum { SHARED36 = 1 };
    float *const t37 = (float *)(arena + 65360);
    enum { SHARED37 = 1 };
    float *const t38 = (float *)(arena + 65616);
    enum { SHARED38 = 1 };
    float *const t39 = (float *)(spill + 0);
    enum { SHARED39 = 0 };
    bf16 *const t40 = (bf16 *)(arena + 19776);
    enum { SHARED40 = 1 };
    float *const t41 = (float *)(arena + 960);
    enum { SHARED41 = 1 };
    float *const t42 = (float *)(arena + 19648);
    enum { SHARED42 = 1 };
    const Item &known = *(const Item *)(arena + 128);
    const Sequence q = { known.b, 0, known.start, known.len };
    const i64 slot = known.slot;
    const int head = known.head, block = known.block;
    (void)q;
    (void)slot;
    (void)head;
    (void)block;
    const i64 at = known.last;
    const int n = (int)min(q.len - at * 64, (i64)64);
    const i64 token = q.start + at * 64;
    char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
    char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
    (void)n;
    (void)token;
    {
        bf16 *p = (bf16 *)(later + 0);
        copy_in<128, 136, SHARED5>(t5, p, 128, 1, 128, true);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED19 ? 8 : 2>(t19 + 0),
        matrix<136, 1, SHARED5 ? 8 : 2>(t5 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v60 = t15[i] * x;
        return [=] {
            put_pair<1, true>(t29 + i * 136 + d0, x);
            put_pair<1, true>(t30 + i * 136 + d0, v60);
        };
    });
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
        copy_in<1, 1, SHARED11>(t11, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
    }
    copy_commit();
    {
        const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
        copy_in<128, 136, SHARED20>(t20, (const bf16 *)p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
    }
    copy_commit();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int i = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d0 = f;
            x += dot_four(t10 + i * 136 + d0, t29 + i * 136 + d0);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v69 = t15[i] * x;
            const float v72 = t24[i] - v69;
            t24[i] = x;
            t31[i] = v72;
        }
    }
    __syncthreads();
    NO_UNROLL for (int from = TID / 32, g = from; g - from < 1; g += THREADS / 32) {
        const int e = min(g, 1 - 1);
        const bool first = g == e && TID % 32 == 0;
        float x = 0;
        NO_UNROLL for (int f = 4 * (TID % 32); f < n; f += 4 * 32) {
            const int i = f;
            x += dot_four(t15 + i, t24 + i, n - f);
        }
        x = lane_sum<32>(x);
        if (first) {
            const float v71 = t6[0] + x;
            t6[0] = v71;
        }
    }
    copy_wait<1>();
    __syncthreads();
    product<TF32, 1, 2, 0, true, true, true, Paired>(64, 64, 128,
        matrix<136, 1, 2>(t8 + 0),
        matrix<136, 1, 2>(t16 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int j = col;
        const Pair v78 = pair_at<1, true>(t32 + i * 72 + j) * x;
        const Pair v79 = pair_at<1, true>(t12 + i * 72 + j) * v78;
        const Pair v82 = get(t11[i]) * v79;
        return [=] {
            put_pair<1, true>(t12 + i * 72 + j, v79);
            put_pair<1, true>(t33 + i * 72 + j, v79);
            put_pair<1, true>(t34 + i * 72 + j, v82);
        };
    });
    __syncthreads();
    product<BF16, 2, 2, 64, false, true, true, Paired>(64, 128, n,
        matrix<72, 1, SHARED33 ? 8 : 2>(t33 + 0),
        matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v83 = get(t11[i]) * x;
        const Pair v84 = pair_at<1, true>(t30 + i * 136 + d0) - v83;
        return [=] {
            put_pair<1, true>(t30 + i * 136 + d0, x);
            put_pair<1, true>(t35 + i * 136 + d0, v84);
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
            x += dot_four(t10 + i * 136 + d0, t30 + i * 136 + d0);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v87 = get(t11[i]) * x;
            t36[i] = x;
            t37[i] = v87;
        }
    }
    copy_wait<0>();
    __syncthreads();
    {
        const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
        copy_in<1, 1, SHARED11>(t11, (const bf16 *)p, a.t[3].st, 0, n, a.t[3].wide);
    }
    copy_commit();
    two_products<2, 2>(64, 128,
        term<64, false>(matrix<1, 72, SHARED23 ? 8 : 2>(t23 + 0),
        matrix<1, 136, SHARED20 ? 8 : 2>(t20 + 0), n),
        term<64, false>(matrix<1, 72, SHARED34 ? 8 : 2>(t34 + 0),
        matrix<1, 136, SHARED10 ? 8 : 2>(t10 + 0), n),
        [&](int row, int col, Pair x, Pair z) {
        const int j = row;
        const int d0 = col;
        const Pair v86 = x - z;
        return [=] {
            put_pair<1, true>(t38 + j * 136 + d0, z);
            put_pair<1, true>(t39 + j * 136 + d0, v86);
        };
    });
    __syncthreads();
    NO_UNROLL for (int from = TID / 8, g = from; g - from < n; g += THREADS / 8) {
        const int e = min(g, n - 1);
        const bool first = g == e && TID % 8 == 0;
        const int j = e;
        float x = 0;
        for (int f = 4 * (TID % 8); f < 128; f += 4 * 8) {
            const int d0 = f;
            x += dot_four(t10 + j * 136 + d0, t38 + j * 136 + d0);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v90 = x - t25[j];
            t25[j] = v90;
        }
    }
    narrow<128, 136, 136>(t40, t8, n);
    __syncthreads();
    {
        bf16 *p = (bf16 *)(stored + 0);
        copy_in<128, 136, SHARED4>(t4, p, 128, 1, 128, true);
    }
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    product<BF16, 2, 2, 128, true, true, true, Paired>(64, 128, 128,
        matrix<136, 1, SHARED40 ? 8 : 2>(t40 + 0),
        matrix<136, 1, SHARED4 ? 8 : 2>(t4 + 0),
        [&](int row, int col, Pair x) {
        const int i = row;
        const int d0 = col;
        const Pair v103 = t14[i] * x;
        const Pair v104 = get(t11[i]) * v103;
        const Pair v92 = pair_at<1, true>(t35 + i * 136 + d0) + pair_at<1, true>(t39 + i * 136 + d0);
        const Pair v105 = v92 - v104;
        return [=] {
            put_pair<1, true>(t35 + i * 136 + d0, x);
            put_pair<1, true>(t39 + i * 136 + d0, v105);
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
            x += dot_four(t10 + i * 136 + d0, t35 + i * 136 + d0);
        }
        x = lane_sum<8>(x);
        if (first) {
            const float v97 = get(t11[i]) * x;
            const float v98 = t28[i] - v97;
            const float v100 = t14[i] * x;
            const float v101 = t36[i] + v100;
            t28[i] = v98;
            t36[i] = v101;
        }
    }
    if (a.t[7].p) {
        bf16 *p = (bf16 *)a.t[7].p + at_token(a.t[7], q, token, head);
        copy_out<128, 136>(t39, (bf16 *)p, a.t[7].st, a.t[7].sd[0], n, a.t[7].wide);
    }
    UNROLL_FOUR for (int f = TID / 64, e = TID % 64 * 2; f < n; f += THREADS / 64) {
        const int i = f;
        const int d1 = e;
        const Pair v110 = get(t11[i]) * pair_at<1, true>(t8 + i * 136 + d1);
        put_pair<1, true>(t8 + i * 136 + d1, v110);
    }
    __syncthreads();
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v112 = t9[i] - t36[i];
        const float v108 = t14[i] * t28[i];
        t9[i] = v112;
        t36[i] = v108;
    }
    if (a.t[8].p) {
        bf16 *p = (bf16 *)a.t[8].p + at_token(a.t[8], q, token, head);
        copy_out<128, 136>(t8, (bf16 *)p, a.t[8].st, a.t[8].sd[0], n, a.t[8].wide);
    }
    __syncthreads();
    if (a.t[9].p) {
        bf16 *p = (bf16 *)a.t[9].p + at_token(a.t[9], q, token, head);
        copy_out<1, 1>(t9, (bf16 *)p, a.t[9].st, 0, n, a.t[9].wide);
    }
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v73 = i == n - 1 ? t6[0] : t41[(i + 1)];
        const float v74 = t31[i] + v73;
        const float v88 = v74 - t37[i];
        const float v94 = v88 + t25[i];
        const float v109 = v94 + t36[i];
        t31[i] = v109;
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
            return t31[i];
        },
            [&](int at, float found, float left) {
            const int i = n - 1 - at;
            t42[i] = left;
            (void)found;
        });
    }
    __syncthreads();
    NO_UNROLL for (int e = TID; e < n; e += THREADS) {
        const int i = e;
        const float v115 = t2[i] != 0 ? 0.f : t42[i];
        t2[i] = v115;
    }
    __syncthreads();
    if (a.t[10].p) {
        bf16 *p = (bf16 *)a.t[10].p + at_token(a.t[10], q, token, head);
        copy_out<1, 1>(t2, (bf16 *)p, a.t[10].st, 0, n, a.t[10].wide);
    }
}
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 157696ll;
    float *const scratch = (float *)arena;
    (void)scratch;
    float *const t32 = (float *)(arena + 1216);
    enum { SHARED32 = 1 };
    float *const t41 = (float *)(arena + 960);
    enum { SHARED41 = 1 };
    if (a.run.ragged) {
        clear(spill_of(a.run, 157696ll), 157696);
        __syncthreads();
    }
    static_assert(sizeof a <= 752, "room for the copy");
    copy_args(arena + 208, a);
    __syncthreads();
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
        place(*(Placed3 *)(arena + 208), a, q.b, head);
        volatile Item *const known = (Item *)(arena + 128);
        if (TID == 0) {
            known->item = item;
            known->s = s;
            known->slot = slot;
            known->start = q.start;
            known->len = q.len;
            known->m = 0;
            known->last = at;
            known->b = q.b;
            known->head = head;
            known->block = block;
        }
        __syncthreads();
        {
            const ReloadedSequence q = { { &known->b }, { &known->start }, { &known->len } };
            const Reloaded<i64> slot = { &known->slot };
            const Reloaded<int> head = { &known->head };
            (void)q;
            (void)slot;
            (void)head;
            const Reloaded<i64> s = { &known->s }, at = { &known->last };
            (void)s;
            (void)at;
            {
                const int n = 64;
                (void)n;
                UNROLL_FOUR for (int f = TID / 64, e = TID % 64; f < n; f += THREADS / 64) {
                    const int i = f;
                    const int j = e;
                    if (j >= n)
                        continue;
                    const float v76 = i > j ? 1.f : 0.f;
                    t32[i * 72 + j] = v76;
                }
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
                        t41[i] = left;
                        (void)found;
                    });
                }
            }
            copy_wait<0>();
            __syncthreads();
            {
                k3_token_part0();
                k3_token_part1();
                __syncthreads();
            }
            {
            }
        }
        item = known->item;
        __syncthreads();
    }
}
