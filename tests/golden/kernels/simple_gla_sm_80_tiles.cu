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
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 34944);
    float *const t3 = (float *)(arena + 35200);
    float *const t4 = (float *)(arena + 35456);
    float *const t5 = (float *)(arena + 35712);
    bf16 *const t6 = (bf16 *)(arena + 35728);
    float *const t7 = (float *)(arena + 53136);
    bf16 *const t8 = (bf16 *)(arena + 87952);
    bf16 *const t9 = (bf16 *)(arena + 35728);
    float *const t10 = (float *)(arena + 105360);
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
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = 0;
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
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((bf16 *)(stored + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t1 + i, p + i * a.t[1].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v9;
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
                    return t2[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v12 = t3[(n - 1) * 1] - t3[i];
                const float v13 = exp_(v12);
                t4[i] = v13;
            }
            if (WARP == 9 && LANE == 0) {
                const float v14 = exp_(t3[(n - 1) * 1]);
                t5[0] = v14;
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, false>(t6, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v15 = t0[d0 * 136 + d1] * t5[0];
                t7[d0 * 136 + d1] = v15;
            }
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                const float v16 = get(t6[i * 136 + d1]) * t4[i];
                put(&t8[i * 136 + d1], v16);
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                copy_in<64, 72, false>(t9, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t9 + 0),
                matrix<1, 136, 1>(t8 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t10[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v18 = t7[d0 * 136 + d1] + t10[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v18;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[4].p) {
            float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[4].sd[0] + d1 * a.t[4].sd[1], t0[d0 * 136 + d1]);
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
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
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
            const float v9 = max_(get(t2[i]), bits(0xc2d00000));
            t4[i] = v9;
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
            const float v19 = exp_(t7[i]);
            t8[i] = v19;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v24 = i >= j ? exp_(t7[i] - t7[j]) : 0.f;
            const float v26 = v24 * t6[i * 72 + j];
            put(&t9[i * 72 + j], v26);
        }
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            copy_in<128, 136, false>(t10, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v21 = t8[i] * t5[i * 136 + d1];
            t11[i * 136 + d1] = v21;
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
            const float v29 = t11[i * 136 + d1] + t12[i * 136 + d1];
            if (a.t[4].p)
                put((bf16 *)a.t[4].p + at_token(a.t[4], q, token, fresh(head)) + i * a.t[4].st + d1 * a.t[4].sd[0], v29);
        }
        __syncthreads();
        __syncthreads();
    }
}

// backward (reverse), 131328 bytes a chunk and head predicted: %1 %4 %5
// %7 %8 %9 %10 %11 %14 %19 %47 %50 %60 %61
struct Args2 { Run run; Tensor t[5]; };
extern "C" __global__ void __launch_bounds__(THREADS, 1) k2_reverse(const __grid_constant__ Args2 a)
{
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(arena + 34816);
    float *const t2 = (float *)(arena + 34944);
    float *const t3 = (float *)(arena + 35200);
    float *const t4 = (float *)(arena + 35456);
    float *const t5 = (float *)(arena + 35472);
    bf16 *const t6 = (bf16 *)(arena + 35728);
    bf16 *const t7 = (bf16 *)(arena + 53136);
    float *const t8 = (float *)(arena + 70544);
    bf16 *const t9 = (bf16 *)(arena + 35728);
    float *const t10 = (float *)(arena + 105360);
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
                const float *p = (const float *)a.t[0].p + s * a.t[0].sb + head_of(a.t[0], head) * a.t[0].sh + block * 64 * a.t[0].sd[0];
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = get(p[0 + d0 * a.t[0].sd[0] + d1 * a.t[0].sd[1]]);
                }
            } else {
                for (int e = TID; e < 8192; e += THREADS) {
                    const int d0 = e / 128;
                    const int d1 = e % 128;
                    t0[d0 * 136 + d1] = 0;
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
            char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)stored;
            char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
            (void)later;
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put((bf16 *)(later + 0) + block * 8192 + d0 * 128 + d1, t0[d0 * 136 + d1]);
            }
            {
                const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
                for (int e = TID; e < n; e += THREADS) {
                    const int i = e;
                    copy1(t1 + i, p + i * a.t[1].st);
                }
            }
            __syncthreads();
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v9 = max_(get(t1[i]), bits(0xc2d00000));
                t2[i] = v9;
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
                    return t2[i];
                },
                    [&](int at, float found, float left) {
                    const int i = at;
                    t3[i] = left;
                    (void)found;
                });
            }
            __syncthreads();
            if (WARP == 8 && LANE == 0) {
                const float v14 = exp_(t3[(n - 1) * 1]);
                t4[0] = v14;
            }
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                const float v19 = exp_(t3[i]);
                t5[i] = v19;
            }
            {
                const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
                copy_in<128, 136, false>(t6, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
            }
            __syncthreads();
            for (int e = TID; e < n * 128; e += THREADS) {
                const int i = e / 128;
                const int d1 = e % 128;
                const float v47 = get(t6[i * 136 + d1]) * t5[i];
                put(&t7[i * 136 + d1], v47);
            }
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v60 = t0[d0 * 136 + d1] * t4[0];
                t8[d0 * 136 + d1] = v60;
            }
            __syncthreads();
            {
                const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head) + block * 64 * a.t[3].sd[0];
                copy_in<64, 72, false>(t9, p, a.t[3].st, a.t[3].sd[0], n, a.t[3].wide);
            }
            __syncthreads();
            product<BFLOAT, 2, 2, false, true, true>(64, 128, n,
                matrix<1, 72, 1>(t9 + 0),
                matrix<1, 136, 1>(t7 + 0),
                [&](int row, int col, float x) {
                const int d0 = row;
                const int d1 = col;
                t10[d0 * 136 + d1] = x;
            });
            __syncthreads();
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                const float v61 = t10[d0 * 136 + d1] + t8[d0 * 136 + d1];
                t0[d0 * 136 + d1] = v61;
            }
            __syncthreads();
            __syncthreads();
        }
        if (a.t[4].p) {
            float *p = (float *)a.t[4].p + s * a.t[4].sb + head_of(a.t[4], head) * a.t[4].sh + block * 64 * a.t[4].sd[0];
            for (int e = TID; e < 8192; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                put(p + d0 * a.t[4].sd[0] + d1 * a.t[4].sd[1], t0[d0 * 136 + d1]);
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
    char *const spill = global(a.run.spill) + blockIdx.x * 208896ll;
    float *const t0 = (float *)(arena + 0);
    bf16 *const t1 = (bf16 *)(spill + 0);
    bf16 *const t2 = (bf16 *)(arena + 256);
    bf16 *const t3 = (bf16 *)(arena + 17664);
    bf16 *const t4 = (bf16 *)(arena + 35072);
    bf16 *const t5 = (bf16 *)(spill + 17408);
    bf16 *const t6 = (bf16 *)(arena + 35200);
    bf16 *const t7 = (bf16 *)(arena + 70016);
    float *const t8 = (float *)(arena + 104832);
    float *const t9 = (float *)(arena + 105088);
    float *const t10 = (float *)(arena + 35072);
    float *const t11 = (float *)(arena + 35136);
    float *const t12 = (float *)(arena + 105344);
    float *const t13 = (float *)(arena + 123776);
    float *const t14 = (float *)(spill + 34816);
    float *const t15 = (float *)(spill + 69632);
    float *const t16 = (float *)(spill + 104448);
    float *const t17 = (float *)(arena + 35152);
    float *const t18 = (float *)(arena + 17664);
    float *const t19 = (float *)(arena + 17920);
    float *const t20 = (float *)(arena + 18176);
    float *const t21 = (float *)(arena + 18432);
    float *const t22 = (float *)(arena + 18688);
    float *const t23 = (float *)(arena + 18944);
    float *const t24 = (float *)(arena + 19200);
    float *const t25 = (float *)(arena + 17664);
    float *const t26 = (float *)(arena + 53584);
    bf16 *const t27 = (bf16 *)(arena + 19456);
    bf16 *const t28 = (bf16 *)(arena + 72016);
    float *const t29 = (float *)(arena + 18176);
    float *const t30 = (float *)(arena + 28672);
    float *const t31 = (float *)(arena + 28928);
    float *const t32 = (float *)(spill + 139264);
    float *const t33 = (float *)(spill + 174080);
    float *const t34 = (float *)(spill + 34816);
    float *const t35 = (float *)(arena + 17680);
    float *const t36 = (float *)(arena + 17696);
    float *const t37 = (float *)(spill + 69632);
    float *const t38 = (float *)(arena + 29184);
    float *const t39 = (float *)(arena + 105344);
    float *const t40 = (float *)(arena + 256);
    float *const t41 = (float *)(arena + 512);
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
                    t0[i] = left;
                    (void)found;
                });
            }
        }
        __syncthreads();
        const int n = (int)min(q.len - at * 64, (i64)64);
        const i64 token = q.start + at * 64;
        (void)n;
        (void)token;
        char *const stored = global(a.run.stored) + ((slot + at) * a.run.heads + head) * 32768ll;
        (void)stored;
        char *const later = global(a.run.later) + ((slot + at) * a.run.heads + head) * 32768ll;
        (void)later;
        {
            const bf16 *p = (const bf16 *)a.t[0].p + at_token(a.t[0], q, token, head);
            copy_in<128, 136, false>(t1, p, a.t[0].st, a.t[0].sd[0], n, a.t[0].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[1].p + at_token(a.t[1], q, token, head);
            copy_in<128, 136, false>(t2, p, a.t[1].st, a.t[1].sd[0], n, a.t[1].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[2].p + at_token(a.t[2], q, token, head);
            copy_in<128, 136, false>(t3, p, a.t[2].st, a.t[2].sd[0], n, a.t[2].wide);
        }
        {
            const bf16 *p = (const bf16 *)a.t[3].p + at_token(a.t[3], q, token, head);
            for (int e = TID; e < n; e += THREADS) {
                const int i = e;
                copy1(t4 + i, p + i * a.t[3].st);
            }
        }
        {
            const bf16 *p = (const bf16 *)a.t[4].p + at_token(a.t[4], q, token, head);
            copy_in<128, 136, false>(t5, p, a.t[4].st, a.t[4].sd[0], n, a.t[4].wide);
        }
        {
            const bf16 *p = (bf16 *)(stored + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t6 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        {
            const bf16 *p = (bf16 *)(later + 0);
            for (int e = TID; e < 16384; e += THREADS) {
                const int d0 = e / 128;
                const int d1 = e % 128;
                copy1(t7 + d0 * 136 + d1, p + d0 * 128 + d1);
            }
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v9 = max_(get(t4[i]), bits(0xc2d00000));
            const float v71 = get(t4[i]) < bits(0xc2d00000) ? 1 : 0;
            t8[i] = v9;
            t9[i] = v71;
        }
        __syncthreads();
        {
            float v62 = 0;
            for (int y = TID; y < 16384; y += THREADS) {
                const int d1 = y % 128;
                const int d0 = y / 128;
                v62 += get(t6[d0 * 136 + d1]) * get(t7[d0 * 136 + d1]);
            }
            v62 = block_sum(v62, t10);
            if (TID == 0) {
                t11[0] = v62;
            }
        }
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t1 + 0),
            matrix<136, 1, 2>(t2 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t12[i * 72 + j] = x;
        });
        product<BFLOAT, 1, 2, true, false, false>(n, n, 128,
            matrix<136, 1, 2>(t5 + 0),
            matrix<136, 1, 2>(t3 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int j = col;
            t13[i * 72 + j] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t5 + 0),
            matrix<136, 1, 2>(t6 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t14[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t3 + 0),
            matrix<136, 1, 2>(t7 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t15[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, true, false, true>(n, 128, 128,
            matrix<136, 1, 2>(t2 + 0),
            matrix<1, 136, 1>(t7 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d1 = col;
            t16[i * 136 + d1] = x;
        });
        __syncthreads();
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v35 = t12[i * 72 + j] * t13[i * 72 + j];
            t17[i * 72 + j] = v35;
        }
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v46 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v46 += get(t1[i * 136 + d0]) * t14[i * 136 + d0];
            }
            v46 = lane_sum<LANES>(v46);
            float v59 = 0;
            for (int y = LANE; y < 128; y += LANES) {
                const int d0 = y;
                v59 += get(t2[i * 136 + d0]) * t15[i * 136 + d0];
            }
            v59 = lane_sum<LANES>(v59);
            if (LANE == 0) {
                t18[i] = v46;
                t19[i] = v59;
            }
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
                return t8[i];
            },
                [&](int at, float found, float left) {
                const int i = at;
                t20[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v12 = t20[(n - 1) * 1] - t20[i];
            const float v13 = exp_(v12);
            const float v19 = exp_(t20[i]);
            const float v51 = v19 * t18[i];
            const float v64 = v13 * t19[i];
            t21[i] = v13;
            t22[i] = v19;
            t23[i] = v51;
            t24[i] = v64;
        }
        __syncthreads();
        if (WARP == 8 && LANE == 0) {
            const float v14 = exp_(t20[(n - 1) * 1]);
            const float v63 = v14 * t11[0];
            t25[0] = v63;
        }
        for (int e = TID; e < n * 64; e += THREADS) {
            const int i = e / 64;
            const int j = e % 64;
            if (j >= n)
                continue;
            const float v24 = i >= j ? exp_(t20[i] - t20[j]) : 0.f;
            const float v26 = v24 * t12[i * 72 + j];
            const float v36 = v24 * t13[i * 72 + j];
            t26[i * 72 + j] = v24;
            put(&t27[i * 72 + j], v26);
            put(&t28[i * 72 + j], v36);
        }
        __syncthreads();
        NO_UNROLL for (int e = WARP; e < n; e += WARPS) {
            const int i = e;
            float v39 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int j = y;
                v39 += t26[i * 72 + j] * t17[i * 72 + j];
            }
            v39 = lane_sum<LANES>(v39);
            if (LANE == 0) {
                t29[i] = v39;
            }
        }
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            float v40 = 0;
            for (int y = 0; y < n; y++) {
                const int i = y;
                v40 += t26[i * 72 + j] * t17[i * 72 + j];
            }
            t30[j] = v40;
        }
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int j = e;
            const float v41 = -t30[j];
            t31[j] = v41;
        }
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v48 = t22[i] * t14[i * 136 + d0];
            const float v54 = t21[i] * t15[i * 136 + d0];
            t32[i * 136 + d0] = v48;
            t33[i * 136 + d0] = v54;
        }
        __syncthreads();
        for (int e = TID; e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v57 = t21[i] * t16[i * 136 + d1];
            t34[i * 136 + d1] = v57;
        }
        if (WARP == 2) {
            float v65 = 0;
            for (int y = LANE; y < n; y += LANES) {
                const int i = y;
                v65 += t21[i] * t19[i];
            }
            v65 = lane_sum<LANES>(v65);
            if (LANE == 0) {
                t35[0] = v65;
            }
        }
        __syncthreads();
        if (WARP == 4 && LANE == 0) {
            const float v66 = t25[0] + t35[0];
            t36[0] = v66;
        }
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t27 + 0),
            matrix<1, 136, 1>(t5 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d1 = col;
            t37[j * 136 + d1] = x;
        });
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<72, 1, 2>(t28 + 0),
            matrix<1, 136, 1>(t2 + 0),
            [&](int row, int col, float x) {
            const int i = row;
            const int d0 = col;
            t38[i * 136 + d0] = x;
        });
        product<BFLOAT, 2, 2, false, false, true>(n, 128, n,
            matrix<1, 72, 1>(t28 + 0),
            matrix<1, 136, 1>(t1 + 0),
            [&](int row, int col, float x) {
            const int j = row;
            const int d0 = col;
            t39[j * 136 + d0] = x;
        });
        __syncthreads();
        for (int e = TID; e < n; e += THREADS) {
            const int i = e;
            const float v44 = t29[i] + t31[i];
            const float v52 = v44 + t23[i];
            const float v67 = v52 - t24[i];
            const float v68 = i == n - 1 ? t36[0] : t0[(i + 1)];
            const float v69 = v67 + v68;
            t40[i] = v69;
        }
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d0 = e % 128;
            const float v49 = t38[i * 136 + d0] + t32[i * 136 + d0];
            const float v55 = t39[i * 136 + d0] + t33[i * 136 + d0];
            if (a.t[5].p)
                put((bf16 *)a.t[5].p + at_token(a.t[5], q, token, fresh(head)) + i * a.t[5].st + d0 * a.t[5].sd[0], v49);
            if (a.t[6].p)
                put((bf16 *)a.t[6].p + at_token(a.t[6], q, token, fresh(head)) + i * a.t[6].st + d0 * a.t[6].sd[0], v55);
        }
        for (int e = fresh(TID); e < n * 128; e += THREADS) {
            const int i = e / 128;
            const int d1 = e % 128;
            const float v58 = t37[i * 136 + d1] + t34[i * 136 + d1];
            if (a.t[7].p)
                put((bf16 *)a.t[7].p + at_token(a.t[7], q, token, fresh(head)) + i * a.t[7].st + d1 * a.t[7].sd[0], v58);
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
                return t40[i];
            },
                [&](int at, float found, float left) {
                const int i = n - 1 - at;
                t41[i] = left;
                (void)found;
            });
        }
        __syncthreads();
        for (int e = fresh(TID); e < n; e += THREADS) {
            const int i = e;
            const float v72 = t9[i] != 0 ? 0.f : t41[i];
            if (a.t[8].p)
                put((bf16 *)a.t[8].p + at_token(a.t[8], q, token, fresh(head)) + i * a.t[8].st, v72);
        }
        __syncthreads();
        __syncthreads();
    }
}
