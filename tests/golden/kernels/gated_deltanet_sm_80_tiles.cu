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
    char *const spill = global(a.run.spill) + blockIdx.x * 36864ll;
    float *const t0 = (float *)(spill + 0);
    bf16 *const t1 = (bf16 *)(arena + 0);
    bf16 *const t2 = (bf16 *)(arena + 17408);
    bf16 *const t3 = (bf16 *)(arena + 26624);
    bf16 *const t4 = (bf16 *)(arena + 26752);
    float *const t5 = (float *)(arena + 26880);
    float *const t6 = (float *)(arena + 27136);
    float *const t7 = (float *)(arena + 45568);
    float *const t8 = (float *)(arena + 64000);
    float *const t9 = (float *)(arena + 82432);
    float *const t10 = (float *)(arena + 45568);
    float *const t11 = (float *)(arena + 17408);
    float *const t12 = (float *)(arena + 17664);
    float *const t13 = (float *)(arena + 17920);
    float *const t14 = (float *)(arena + 64000);
    float *const t15 = (float *)(arena + 18176);
    float *const t16 = (float *)(arena + 45568);
    float *const t17 = (float *)(arena + 82432);
    float *const t18 = (float *)(arena + 18176);
    float *const t19 = (float *)(arena + 36608);
    bf16 *const t20 = (bf16 *)(arena + 36608);
    float *const t21 = (float *)(arena + 119296);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 s = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - s * a.run.heads);
        (void)block;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[1];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 64;
                    const int d1 = e % 64;
                    t0[d0 * 72 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 64;
                    const int d1 = e % 64;
                    t0[d0 * 72 + d1] = 0;
                }
            }
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                put((bf16 *)(stored + 0) + block * 64 + d0 * 128 + d1, t0[d0 * 72 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, false>(t1, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head) + block * 64 * a.t[2].sd[0];
                copy_in<64, 72, false>(t2, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t3 + i, p + i * a.t[3].st);
                }
            }
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t4 + i, p + i * a.t[4].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v10 = max_(get(t4[i]), bits(0xc2d00000));
                t5[i] = v10;
            }
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v12 = get(t2[i * 72 + d1]) * get(t3[i]);
                t6[i * 72 + d1] = v12;
            }
            product<TF32, 1, 2, true, false, true>(n, 64, 128,
                matrix<136, 1, 2>(t1 + 0),
                matrix<1, 72, 1>(t0 + 0),
                [&](int row, int col, float x) {
                const int i = row;
                const int d1 = col;
                t7[i * 72 + d1] = x;
            });
            product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
                matrix<136, 1, 2>(t1 + 0),
                matrix<136, 1, 2>(t1 + 0),
                [&](int row, int col, float x) {
                const int i = row;
                const int j = col;
                t8[i * 72 + j] = x;
            });
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v15 = get(t3[i]) * t7[i * 72 + d1];
                t9[i * 72 + d1] = v15;
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int j = e % 64;
                if (j >= n)
                    continue;
                const float v22 = get(t3[i]) * t8[i * 72 + j];
                t10[i * 72 + j] = v22;
            }
            for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t5[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t11[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = exp_(t11[i]);
                const float v27 = t11[(n - 1) * 1] - t11[i];
                const float v28 = exp_(v27);
                t12[i] = v13;
                t13[i] = v28;
            }
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int j = e % 64;
                if (j >= n)
                    continue;
                const float v20 = i > j ? exp_(t11[i] - t11[j]) : 0.f;
                const float v23 = v20 * t10[i * 72 + j];
                const float v24 = -v23;
                t14[i * 72 + j] = v24;
            }
            if (WARP == 3 && LANE == 0) {
                const float v29 = exp_(t11[(n - 1) * 1]);
                t15[0] = v29;
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v16 = t12[i] * t9[i * 72 + d1];
                const float v17 = t6[i * 72 + d1] - v16;
                t16[i * 72 + d1] = v17;
            }
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                const float v30 = t0[d0 * 72 + d1] * t15[0];
                t17[d0 * 72 + d1] = v30;
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                t18[i * 72 + d1] = t16[i * 72 + d1];
            }
            __syncthreads();
            solve<false, 72, 1, 72, 1, true>(n * 1, 64, t14 + 0, t18 + 0, t19);
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                put((bf16 *)(stored + 32768) + block * 64 + i * 128 + d1, t18[i * 72 + d1]);
            }
            for (int x = TID; n < 64 && x < 8192; x += THREADS)
                if (x / 128 % 64 >= n)
                put((bf16 *)(stored + 32768) + x, 0.f);
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v31 = t18[i * 72 + d1] * t13[i];
                put(&t20[i * 72 + d1], v31);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(128, 64, n,
                matrix<1, 136, 1>(t1 + 0),
                matrix<1, 72, 1>(t20 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t21[d0 * 72 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                const float v33 = t17[d0 * 72 + d1] + t21[d0 * 72 + d1];
                t0[d0 * 72 + d1] = v33;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[5].p) {
            float *p = (float *)a.t[5].p + s * a.t[5].sb + head_of(a.t[5], head) * a.t[5].sh + block * 64 * a.t[5].sd[1];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                put(p + d0 * a.t[5].sd[0] + d1 * a.t[5].sd[1], t0[d0 * 72 + d1]);
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
    bf16 *const t1 = (bf16 *)(arena + 17408);
    bf16 *const t2 = (bf16 *)(arena + 34816);
    bf16 *const t3 = (bf16 *)(arena + 34944);
    float *const t4 = (float *)(arena + 69760);
    float *const t5 = (float *)(arena + 70016);
    float *const t6 = (float *)(arena + 34944);
    float *const t7 = (float *)(arena + 104832);
    float *const t8 = (float *)(arena + 105088);
    bf16 *const t9 = (bf16 *)(arena + 0);
    bf16 *const t10 = (bf16 *)(arena + 9216);
    float *const t11 = (float *)(arena + 34944);
    float *const t12 = (float *)(arena + 70016);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        (void)block;
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
            copy_in<128, 136, false>(t0, p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
            copy_in<128, 136, false>(t1, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t2 + i, p + i * a.t[2].st);
            }
        }
        {
            const bf16 *p = (bf16 *)(stored + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t3 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v10 = max_(get(t2[i]), bits(0xc2d00000));
            t4[i] = v10;
        }
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t0 + 0),
            matrix<1, 136, 1>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t5[i * 136 + d1] = x;
        });
        __syncthreads();
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t0 + 0),
            matrix<136, 1, 2>(t1 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t6[i * 72 + j] = x;
        });
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = at;
                (void)i;
                return t4[i];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t7[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v13 = exp_(t7[i]);
            t8[i] = v13;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v36 = i >= j ? exp_(t7[i] - t7[j]) : 0.f;
            const float v38 = v36 * t6[i * 72 + j];
            put(&t9[i * 72 + j], v38);
        }
        {
            const bf16 *p = (bf16 *)(stored + 32768);
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                copy1(t10 + i * 136 + d1, p + i * 128 + d1);
            }
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v35 = t8[i] * t5[i * 136 + d1];
            t11[i * 136 + d1] = v35;
        }
        __syncthreads();
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t9 + 0),
            matrix<1, 136, 1>(t10 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t12[i * 136 + d1] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v41 = t11[i * 136 + d1] + t12[i * 136 + d1];
            if (a.t[3].p)
                put((bf16 *)a.t[3].p + at_token(a.t[3], q, token, fresh(head)) + i * a.t[3].st + d1 * a.t[3].sd[0], v41);
        }
        __syncthreads();
        __syncthreads();
    }
}

// backward (reverse), 197120 bytes a chunk and head predicted: %1 %2 %4
// %5 %6 %8 %9 %10 %11 %13 %18 %19 %20 %21 %22 %23 %24 %26 %27 %28 %29
// %36 %37 %38 %45 %46 %55 %58 %61 %62 %63 %65 %66 %75 %99 %102 %106 %107
struct Args2 { Run run; Tensor t[7]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 73728ll;
    float *const t0 = (float *)(spill + 0);
    bf16 *const t1 = (bf16 *)(arena + 0);
    bf16 *const t2 = (bf16 *)(arena + 17408);
    bf16 *const t3 = (bf16 *)(arena + 34816);
    float *const t4 = (float *)(arena + 34944);
    float *const t5 = (float *)(arena + 35200);
    float *const t6 = (float *)(arena + 53632);
    float *const t7 = (float *)(arena + 72064);
    bf16 *const t8 = (bf16 *)(arena + 34816);
    float *const t9 = (float *)(arena + 90496);
    float *const t10 = (float *)(arena + 35200);
    float *const t11 = (float *)(arena + 34944);
    float *const t12 = (float *)(arena + 35456);
    float *const t13 = (float *)(arena + 108928);
    bf16 *const t14 = (bf16 *)(arena + 35712);
    float *const t15 = (float *)(arena + 44928);
    bf16 *const t16 = (bf16 *)(arena + 44944);
    bf16 *const t17 = (bf16 *)(arena + 54160);
    float *const t18 = (float *)(arena + 90496);
    float *const t19 = (float *)(arena + 127360);
    float *const t20 = (float *)(arena + 63376);
    float *const t21 = (float *)(arena + 35200);
    float *const t22 = (float *)(arena + 63376);
    float *const t23 = (float *)(spill + 36864);
    float *const t24 = (float *)(arena + 53632);
    float *const t25 = (float *)(arena + 0);
    bf16 *const t26 = (bf16 *)(arena + 0);
    float *const t27 = (float *)(arena + 34816);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 2);
        const i64 s = divided(item / 2, a.run.heads);
        const int head = (int)(item / 2 - s * a.run.heads);
        (void)block;
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        {
            const int n = 64;
            (void)n;
            if (a.t[0].p) {
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[1];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 64;
                    const int d1 = e % 64;
                    t0[d0 * 72 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 64;
                    const int d1 = e % 64;
                    t0[d0 * 72 + d1] = 0;
                }
            }
        }
        __syncthreads();
        const i64 chunks = (q.len + 63) / 64;
        NO_UNROLL for (i64 m = 0; m < chunks; m++) {
            const i64 at = chunks - 1 - m;
            const int n = (int)min(q.len - at * 64, (i64)64);
            const i64 token = q.start + at * 64;
            (void)n;
            (void)token;
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                put((bf16 *)(later + 0) + block * 64 + d0 * 128 + d1, t0[d0 * 72 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                copy_in<128, 136, false>(t1, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, false>(t2, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t3 + i, p + i * a.t[3].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v10 = max_(get(t3[i]), bits(0xc2d00000));
                t4[i] = v10;
            }
            product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
                matrix<136, 1, 2>(t2 + 0),
                matrix<136, 1, 2>(t2 + 0),
                [&](int row, int col, float x) {
                const int i = row;
                const int j = col;
                t5[i * 72 + j] = x;
            });
            product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
                matrix<136, 1, 2>(t1 + 0),
                matrix<136, 1, 2>(t2 + 0),
                [&](int row, int col, float x) {
                const int i = row;
                const int j = col;
                t6[i * 72 + j] = x;
            });
            product<TF32, 1, 2, true, false, true>(n, 64, 128,
                matrix<136, 1, 2>(t2 + 0),
                matrix<1, 72, 1>(t0 + 0),
                [&](int row, int col, float x) {
                const int i = row;
                const int d1 = col;
                t7[i * 72 + d1] = x;
            });
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t8 + i, p + i * a.t[4].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int j = e % 64;
                if (j >= n)
                    continue;
                const float v22 = get(t8[i]) * t5[i * 72 + j];
                t9[i * 72 + j] = v22;
            }
            __syncthreads();
            for (int e = WARP; e < 1; e += WARPS) {
                const float s = 0;
                scan_lanes<Adding<float>>(n, s, [&](int at) {
                    const int i = at;
                    (void)i;
                    return 0.f;
                }, [&](int at) {
                    const int i = at;
                    (void)i;
                    return t4[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t10[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v13 = exp_(t10[i]);
                const float v27 = t10[(n - 1) * 1] - t10[i];
                const float v28 = exp_(v27);
                t11[i] = v13;
                t12[i] = v28;
            }
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int j = e % 64;
                if (j >= n)
                    continue;
                const float v20 = i > j ? exp_(t10[i] - t10[j]) : 0.f;
                const float v23 = v20 * t9[i * 72 + j];
                const float v24 = -v23;
                const float v36 = i >= j ? exp_(t10[i] - t10[j]) : 0.f;
                const float v38 = v36 * t6[i * 72 + j];
                t13[i * 72 + j] = v24;
                put(&t14[i * 72 + j], v38);
            }
            if (WARP == 3 && LANE == 0) {
                const float v29 = exp_(t10[(n - 1) * 1]);
                t15[0] = v29;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head) + block * 64 * a.t[5].sd[0];
                copy_in<64, 72, false>(t16, p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v55 = get(t16[i * 72 + d1]) * t11[i];
                const float v62 = t12[i] * t7[i * 72 + d1];
                put(&t17[i * 72 + d1], v55);
                t18[i * 72 + d1] = v62;
            }
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                const float v65 = t0[d0 * 72 + d1] * t15[0];
                t19[d0 * 72 + d1] = v65;
            }
            __syncthreads();
            product<BFLOAT, 1, 2, false, false, true>(n, 64, n,
                matrix<1, 72, 1>(t14 + 0),
                matrix<1, 72, 1>(t16 + 0),
                [&](int row, int col, float x) {
                const int j = row;
                const int d1 = col;
                t20[j * 72 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v63 = t20[i * 72 + d1] + t18[i * 72 + d1];
                t21[i * 72 + d1] = v63;
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(128, 64, n,
                matrix<1, 136, 1>(t1 + 0),
                matrix<1, 72, 1>(t17 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t22[d0 * 72 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                const float v66 = t22[d0 * 72 + d1] + t19[d0 * 72 + d1];
                t23[d0 * 72 + d1] = v66;
            }
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                t24[i * 72 + d1] = t21[i * 72 + d1];
            }
            __syncthreads();
            solve<true, 72, 1, 72, 1, true>(n * 1, 64, t13 + 0, t24 + 0, t25);
            __syncthreads();
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                put((float *)(later + 32768) + block * 64 + i * 128 + d1, t24[i * 72 + d1]);
            }
            for (int x = TID; n < 64 && x < 8192; x += THREADS)
                if (x / 128 % 64 >= n)
                put((float *)(later + 32768) + x, 0.f);
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int d1 = e % 64;
                const float v99 = t11[i] * t24[i * 72 + d1];
                const float v102 = get(t8[i]) * v99;
                put(&t26[i * 72 + d1], v102);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(128, 64, n,
                matrix<1, 136, 1>(t2 + 0),
                matrix<1, 72, 1>(t26 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t27[d0 * 72 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                const float v107 = t23[d0 * 72 + d1] - t27[d0 * 72 + d1];
                t0[d0 * 72 + d1] = v107;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[6].p) {
            float *p = (float *)a.t[6].p + s * a.t[6].sb + head_of(a.t[6], head) * a.t[6].sh + block * 64 * a.t[6].sd[1];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 64;
                const int d1 = e % 64;
                put(p + d0 * a.t[6].sd[0] + d1 * a.t[6].sd[1], t0[d0 * 72 + d1]);
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
extern "C" __global__ void __launch_bounds__(THREADS, 1) k3_token(const __grid_constant__ Args3 a)
{
    char *const spill = global(a.run.spill) + blockIdx.x * 280576ll;
    float *const t0 = (float *)(spill + 0);
    float *const t1 = (float *)(arena + 0);
    bf16 *const t2 = (bf16 *)(spill + 18432);
    bf16 *const t3 = (bf16 *)(arena + 256);
    bf16 *const t4 = (bf16 *)(arena + 17664);
    bf16 *const t5 = (bf16 *)(arena + 35072);
    bf16 *const t6 = (bf16 *)(arena + 35200);
    bf16 *const t7 = (bf16 *)(spill + 35840);
    float *const t11 = (float *)(arena + 35328);
    float *const t12 = (float *)(arena + 35584);
    float *const t13 = (float *)(spill + 53248);
    float *const t14 = (float *)(arena + 35200);
    float *const t15 = (float *)(arena + 35264);
    float *const t16 = (float *)(arena + 35840);
    float *const t17 = (float *)(spill + 88064);
    float *const t18 = (float *)(arena + 36096);
    float *const t19 = (float *)(spill + 122880);
    float *const t20 = (float *)(spill + 141312);
    float *const t21 = (float *)(spill + 176128);
    float *const t22 = (float *)(spill + 210944);
    float *const t23 = (float *)(arena + 54528);
    float *const t24 = (float *)(arena + 17664);
    float *const t25 = (float *)(arena + 17920);
    float *const t26 = (float *)(arena + 18176);
    float *const t27 = (float *)(arena + 17664);
    float *const t28 = (float *)(arena + 18432);
    float *const t29 = (float *)(arena + 18688);
    float *const t30 = (float *)(arena + 18944);
    float *const t31 = (float *)(arena + 19200);
    float *const t32 = (float *)(spill + 88064);
    float *const t33 = (float *)(arena + 36096);
    float *const t34 = (float *)(arena + 72960);
    float *const t35 = (float *)(arena + 17920);
    float *const t36 = (float *)(arena + 91392);
    float *const t37 = (float *)(spill + 53248);
    float *const t38 = (float *)(spill + 210944);
    float *const t39 = (float *)(arena + 126208);
    float *const t40 = (float *)(arena + 19456);
    float *const t41 = (float *)(arena + 36096);
    float *const t42 = (float *)(arena + 91392);
    float *const t43 = (float *)(arena + 54528);
    float *const t44 = (float *)(arena + 126208);
    bf16 *const t45 = (bf16 *)(arena + 19456);
    float *const t46 = (float *)(spill + 141312);
    bf16 *const t47 = (bf16 *)(arena + 144640);
    float *const t48 = (float *)(spill + 88064);
    float *const t49 = (float *)(arena + 17664);
    float *const t50 = (float *)(arena + 17936);
    float *const t51 = (float *)(arena + 18192);
    float *const t52 = (float *)(arena + 28672);
    float *const t53 = (float *)(arena + 18448);
    float *const t54 = (float *)(arena + 17664);
    float *const t55 = (float *)(arena + 17680);
    float *const t56 = (float *)(spill + 159744);
    float *const t57 = (float *)(spill + 245760);
    float *const t58 = (float *)(arena + 36096);
    float *const t59 = (float *)(arena + 70912);
    float *const t60 = (float *)(spill + 18432);
    float *const t61 = (float *)(arena + 17936);
    float *const t62 = (float *)(arena + 17664);
    float *const t63 = (float *)(spill + 53248);
    float *const t64 = (float *)(arena + 18192);
    float *const t65 = (float *)(arena + 17664);
    float *const t66 = (float *)(arena + 256);
    float *const t67 = (float *)(arena + 512);
    float *const t68 = (float *)(arena + 256);
    NO_UNROLL for (i64 item = blockIdx.x; item < a.run.items; item += blocks_here()) {
        const int block = (int)(item % 1);
        const i64 part = divided(item / 1, a.run.heads);
        const int head = (int)(item / 1 - part * a.run.heads);
        (void)block;
        const i64 s = find_sequence(a.run, part, 64);
        const Sequence q = sequence(a.run, s);
        const i64 slot = first_slot(a.run, s, 64);
        (void)slot;
        const i64 at = part - slot;
        if (at < 0 || at * 64 >= q.len)
            continue;
        {
            const int n = 64;
            (void)n;
            for (int e = TID; e < n * 64; e += THREADS) {
                const int i = e / 64;
                const int j = e % 64;
                if (j >= n)
                    continue;
                const float v76 = i > j ? 1.f : 0.f;
                t0[i * 72 + j] = v76;
            }
            for (int e = WARP; e < 1; e += WARPS) {
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
                    t1[i] = left;
                    (void)found;
                });
            }
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 49152ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 65536ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
            copy_in<128, 136, false>(t2, p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
            copy_in<128, 136, false>(t3, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t4, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t5 + i, p + i * a.t[3].st);
            }
        }
        {
            const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t6 + i, p + i * a.t[4].st);
            }
        }
        {
            const bf16 *p = (const bf16 *)a.t[5].p + at_token(a.t[5], q, token, head);
            copy_in<128, 136, false>(t7, p, a.t[5].st, a.t[5].sd[0], n, a.t[5].wide);
        }
        const bf16 *const t8 = (bf16 *)(stored + 0);
        const bf16 *const t9 = (bf16 *)(later + 0);
        const float *const t10 = (float *)(later + 32768);
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v10 = max_(get(t6[i]), bits(0xc2d00000));
            const float v114 = get(t6[i]) < bits(0xc2d00000) ? 1 : 0;
            t11[i] = v10;
            t12[i] = v114;
        }
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v12 = get(t4[i * 136 + d1]) * get(t5[i]);
            const float v110 = get(t5[i]) * t10[i * 128 + d1];
            t13[i * 136 + d1] = v12;
            if (a.t[6].p)
                put((bf16 *)a.t[6].p + at_token(a.t[6], q, token, fresh(head)) + i * a.t[6].st + d1 * a.t[6].sd[0], v110);
        }
        __syncthreads();
        {
            float v67 = 0;
            for (int y = TID; y < 16384; y += THREADS) {
                const int d1 = y % 128;
                const int d0 = y / 128;
                v67 += get(t8[d0 * 128 + d1]) * get(t9[d0 * 128 + d1]);
            }
            v67 = block_sum(v67, t14);
            if (TID == 0) {
                t15[0] = v67;
            }
        }
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v111 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d1 = y;
                v111 += get(t4[i * 136 + d1]) * t10[i * 128 + d1];
            }
            v111 = lane_sum<LANES>(v111);
            if (LANE == 0) {
                t16[i] = v111;
            }
        }
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t3 + 0),
            matrix<1, 128, 1>(t8 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t17[i * 136 + d1] = x;
        });
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t3 + 0),
            matrix<136, 1, 2>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t18[i * 72 + j] = x;
        });
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t2 + 0),
            matrix<136, 1, 2>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t19[i * 72 + j] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t7 + 0),
            matrix<128, 1, 2>(t8 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t20[i * 136 + d0] = x;
        });
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<128, 1, 2>(t10 + 0),
            matrix<128, 1, 2>(t8 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t21[i * 136 + d0] = x;
        });
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v15 = get(t5[i]) * t17[i * 136 + d1];
            t22[i * 136 + d1] = v15;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v22 = get(t5[i]) * t18[i * 72 + j];
            t23[i * 72 + j] = v22;
        }
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v54 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v54 += get(t2[i * 136 + d0]) * t20[i * 136 + d0];
            }
            v54 = lane_sum<LANES>(v54);
            float v96 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v96 += get(t3[i * 136 + d0]) * t21[i * 136 + d0];
            }
            v96 = lane_sum<LANES>(v96);
            if (LANE == 0) {
                t24[i] = v54;
                t25[i] = v96;
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v97 = get(t5[i]) * t25[i];
            const float v98 = t24[i] - v97;
            t26[i] = v98;
        }
        __syncthreads();
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = at;
                (void)i;
                return t11[i];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t27[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v13 = exp_(t27[i]);
            const float v27 = t27[(n - 1) * 1] - t27[i];
            const float v28 = exp_(v27);
            const float v100 = v13 * t25[i];
            const float v108 = v13 * t26[i];
            t28[i] = v13;
            t29[i] = v28;
            t30[i] = v100;
            t31[i] = v108;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v20 = i > j ? exp_(t27[i] - t27[j]) : 0.f;
            const float v23 = v20 * t23[i * 72 + j];
            const float v24 = -v23;
            const float v36 = i >= j ? exp_(t27[i] - t27[j]) : 0.f;
            t32[i * 72 + j] = v20;
            t33[i * 72 + j] = v24;
            t34[i * 72 + j] = v36;
        }
        __syncthreads();
        if (WARP == 2 && LANE == 0) {
            const float v29 = exp_(t27[(n - 1) * 1]);
            const float v68 = v29 * t15[0];
            t35[0] = v68;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v16 = t28[i] * t22[i * 136 + d1];
            const float v17 = t13[i * 136 + d1] - v16;
            t36[i * 136 + d1] = v17;
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v56 = t28[i] * t20[i * 136 + d0];
            const float v103 = t28[i] * t21[i * 136 + d0];
            const float v104 = get(t5[i]) * v103;
            t37[i * 136 + d0] = v56;
            t38[i * 136 + d0] = v104;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            t39[i * 136 + d1] = t36[i * 136 + d1];
        }
        __syncthreads();
        solve<false, 72, 1, 136, 1, true>(n * 1, 128, t33 + 0, t39 + 0, t40);
        __syncthreads();
        product<TF32, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t7 + 0),
            matrix<136, 1, 2>(t39 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t41[i * 72 + j] = x;
        });
        product<TF32, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t39 + 0),
            matrix<128, 1, 2>(t9 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t42[i * 136 + d0] = x;
        });
        product<TF32, 1, 2, true, false, false>(n, n, 128,
            matrix<128, 1, 2>(t10 + 0),
            matrix<136, 1, 2>(t39 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t43[i * 72 + j] = x;
        });
        __syncthreads();
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v47 = t19[i * 72 + j] * t41[i * 72 + j];
            const float v48 = t34[i * 72 + j] * t41[i * 72 + j];
            const float v78 = t0[i * 72 + j] * t43[i * 72 + j];
            const float v79 = t32[i * 72 + j] * v78;
            const float v82 = get(t5[i]) * v79;
            t44[i * 72 + j] = v47;
            put(&t45[i * 72 + j], v48);
            t46[i * 72 + j] = v79;
            put(&t47[i * 72 + j], v82);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v60 = t29[i] * t42[i * 136 + d0];
            t48[i * 136 + d0] = v60;
        }
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v64 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v64 += get(t3[i * 136 + d0]) * t42[i * 136 + d0];
            }
            v64 = lane_sum<LANES>(v64);
            if (LANE == 0) {
                t49[i] = v64;
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v69 = t29[i] * t49[i];
            t50[i] = v69;
        }
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v51 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int j = y;
                v51 += t34[i * 72 + j] * t44[i * 72 + j];
            }
            v51 = lane_sum<LANES>(v51);
            if (LANE == 0) {
                t51[i] = v51;
            }
        }
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            float v52 = 0;
            for (int y = 0; y < n; y++) {
                const int i = y;
                v52 += t34[i * 72 + j] * t44[i * 72 + j];
            }
            t52[j] = v52;
        }
        if (WARP == 4) {
            float v70 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int i = y;
                v70 += t29[i] * t49[i];
            }
            v70 = lane_sum<LANES>(v70);
            if (LANE == 0) {
                t53[0] = v70;
            }
        }
        __syncthreads();
        if (WARP == 6 && LANE == 0) {
            const float v71 = t35[0] + t53[0];
            t54[0] = v71;
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v72 = t51[i] - t50[i];
            t55[i] = v72;
        }
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t45 + 0),
            matrix<1, 136, 1>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t56[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t45 + 0),
            matrix<1, 136, 1>(t2 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d0 = col;
            t57[j * 136 + d0] = x;
        });
        product<TF32, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t46 + 0),
            matrix<1, 136, 1>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t58[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t47 + 0),
            matrix<1, 136, 1>(t3 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d0 = col;
            t59[j * 136 + d0] = x;
        });
        __syncthreads();
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v57 = t56[i * 136 + d0] + t37[i * 136 + d0];
            const float v83 = get(t5[i]) * t58[i * 136 + d0];
            const float v84 = t48[i * 136 + d0] - v83;
            t60[i * 136 + d0] = v84;
            if (a.t[7].p)
                put((bf16 *)a.t[7].p + at_token(a.t[7], q, token, fresh(head)) + i * a.t[7].st + d0 * a.t[7].sd[0], v57);
        }
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v73 = i == n - 1 ? t54[0] : t1[(i + 1)];
            const float v74 = t55[i] + v73;
            t61[i] = v74;
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v81 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v81 += get(t3[i * 136 + d0]) * t58[i * 136 + d0];
            }
            v81 = lane_sum<LANES>(v81);
            if (LANE == 0) {
                t62[i] = v81;
            }
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int j = e / 128;
            const int d0 = e % 128;
            const float v86 = t57[j * 136 + d0] - t59[j * 136 + d0];
            t63[j * 136 + d0] = v86;
        }
        __syncthreads();
        for (int e = fresh(TID); e < n; e += THREADS) {
            const int i = e;
            const float v87 = get(t5[i]) * t62[i];
            const float v88 = t61[i] - v87;
            const float v101 = t62[i] + t30[i];
            const float v112 = t16[i] - v101;
            t64[i] = v88;
            if (a.t[8].p)
                put((bf16 *)a.t[8].p + at_token(a.t[8], q, token, fresh(head)) + i * a.t[8].st, v112);
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int j = e;
            float v89 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v89 += get(t3[j * 136 + d0]) * t59[j * 136 + d0];
            }
            v89 = lane_sum<LANES>(v89);
            if (LANE == 0) {
                t65[j] = v89;
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            const float v90 = t65[j] - t52[j];
            t66[j] = v90;
        }
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v92 = t60[i * 136 + d0] + t63[i * 136 + d0];
            const float v105 = v92 - t38[i * 136 + d0];
            if (a.t[9].p)
                put((bf16 *)a.t[9].p + at_token(a.t[9], q, token, fresh(head)) + i * a.t[9].st + d0 * a.t[9].sd[0], v105);
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v94 = t64[i] + t66[i];
            const float v109 = v94 + t31[i];
            t67[i] = v109;
        }
        __syncthreads();
        for (int e = WARP; e < 1; e += WARPS) {
            const float s = 0;
            scan_lanes<Adding<float>>(n, s, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return 0.f;
            }, [&](int at) {
                const int i = n - 1 - at;
                (void)i;
                return t67[i];
            },
                [&](int at, float found, float left) {
                const int i = n - 1 - at;
                t68[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = fresh(TID); e < n; e += THREADS) {
            const int i = e;
            const float v115 = t12[i] != 0 ? 0.f : t68[i];
            if (a.t[10].p)
                put((bf16 *)a.t[10].p + at_token(a.t[10], q, token, fresh(head)) + i * a.t[10].st, v115);
        }
        __syncthreads();
        __syncthreads();
    }
}
