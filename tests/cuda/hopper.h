/* hopper.h -- Hopper's instructions on the host: what device.cuh and the
 * headers behind it do in PTX; fake/nvrtc.c leaves those functions out of the
 * headers. What is not inline is in hopper.cc.
 */
#include "host.h"

struct TensorMap;
struct float4 { float x, y, z, w; };
struct uint4 { unsigned x, y, z, w; };
typedef unsigned long long Descriptor;

void launch_roles(long grid, int threads, char *arena, void (*f)(void *),
                  void *ud);

/* ---- threads that meet ---- */

void warpgroup_sync();
void joint_sync();
void meet_matrix(int n, bool ahead);
template<int WARPGROUPS, bool AHEAD = false> void matrix_sync()
{
    meet_matrix(WARPGROUPS, AHEAD);
}
void meet_warpgroups(int n);
template<int WARPGROUPS> void roles_sync() { meet_warpgroups(WARPGROUPS); }
void block_sync();
void warp_sync();
void pair_sync();
#define __syncthreads block_sync
#define __syncwarp warp_sync
float of_lane(float x, int lane);
bool any_lane(bool x);
PLAIN inline float __shfl_sync(unsigned, float x, int lane)
{
    return of_lane(x, lane & 31);
}
PLAIN inline float __shfl_xor_sync(unsigned, float x, int by)
{
    return of_lane(x, threadIdx.x % 32 ^ by);
}
PLAIN inline float __shfl_up_sync(unsigned, float x, int by)
{
    const int lane = threadIdx.x % 32;
    return of_lane(x, lane - (lane >= by ? by : 0));
}
PLAIN inline bool __any_sync(unsigned, bool x) { return any_lane(x); }
template<int N> inline void more_registers() {}
template<int N> inline void fewer_registers() {}

/* ---- barriers: an address each ---- */

void barrier_init(unsigned b, int all);
inline void barrier_init_fence() {}
void arrive_expecting(unsigned b, unsigned bytes);
void arrive(unsigned b);
void arrive_in_other(unsigned b);
void wait(unsigned b, unsigned parity);

/* ---- pairs of blocks ---- */

#define __cluster_dims__(x, y, z)
void give(unsigned a, unsigned to, int bytes, unsigned barrier);
PLAIN inline void arrive_in_both(unsigned empty)
{
    arrive(empty);
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        arrive_in_other(empty);
}
template<bool PAIRED> PLAIN inline void release(unsigned empty)
{
    arrive(empty);
    if (PAIRED)
        arrive_in_other(empty);
}

/* ---- memory ---- */

template<class T> inline unsigned shared_address(const T *) { return 0; }
void fence_async();
float load1(unsigned a);
float2 load2(unsigned a);
float4 load4(unsigned a);
uint4 load16(unsigned a);
void store1(unsigned a, float x);
void store2(unsigned a, float x, float y);
void clear16(unsigned a);
void leave16(uint4 *to, uint4 x);
uint4 left16(const uint4 *from);
PLAIN inline void copy4(unsigned to, const void *from)
{
    store1(to, *(const float *)from);
}
PLAIN inline void ask(const void *) {}
/* Done when they are asked for. */
void copy_elements(unsigned to, const void *from, int bytes, unsigned each);
#define copy16(to, from, bytes) \
    copy_elements(to, from, bytes, sizeof(Element))
void copy_bytes(unsigned to, const void *from, int bytes, int part,
                unsigned each);
template<unsigned EACH> struct Elements {
    template<int PART>
    static void copy_part(unsigned to, const void *from, int bytes)
    {
        copy_bytes(to, from, bytes, PART, EACH);
    }
};
#define copy_part Elements<sizeof(Element)>::copy_part
PLAIN inline void copies_arrive(unsigned b) { arrive(b); }
#define __threadfence_block()
void fence_copied();
PLAIN inline void add_pair(float *p, float x, float y)
{
    p[0] += x;
    p[1] += y;
}
void bulk_commit();
void bulk_wait_read();
void bulk_wait();

/* ---- the copy engine; the map is fake/driver.c's ---- */

void load_tile(unsigned to, const TensorMap *m, unsigned full, int col,
               int token, int head, int batch);
void load_ranks(unsigned to, const TensorMap *m, unsigned full, int col,
                int token, int head, int batch);
void store_tile(const TensorMap *m, unsigned at, int col, int token, int head,
                int batch);
void store_ranks(const TensorMap *m, unsigned at, int col, int token, int head,
                 int batch);

/* ---- numbers ---- */

#define __uint_as_float bits
#define __float_as_uint bits_of
PLAIN inline unsigned __vimax3_u16x2(unsigned a, unsigned b, unsigned c)
{
    unsigned y = 0;
    for (int s = 0; s < 32; s += 16)
        y |= max(max(a >> s & 0xffff, b >> s & 0xffff), c >> s & 0xffff) << s;
    return y;
}
template<bool DEEP> PLAIN inline float swish(float x, float half)
{
    const float y = DEEP ? x : 2 * half;
    return y / (1 + expf(-y));
}
PLAIN inline unsigned pack_wide(float lo, float hi)
{
    return to_bf16(lo) | to_bf16(hi) << 16;
}
#ifdef ELEMENT_F16
enum { F16 = 1 };
PLAIN inline float low(unsigned v) { return half_to_float(v & 0xffff); }
PLAIN inline float high(unsigned v) { return half_to_float(v >> 16); }
PLAIN inline unsigned pack(float lo, float hi)
{
    return float_to_half(lo) | (unsigned)float_to_half(hi) << 16;
}
#else
enum { F16 = 0 };
static float low(unsigned v), high(unsigned v);
PLAIN inline unsigned pack(float lo, float hi) { return pack_wide(lo, hi); }
#endif
template<int N> PLAIN inline void halve(unsigned (&h)[N],
                                        const unsigned (&x)[N])
{
    for (int i = 0; i < N; i++)
        h[i] = pack(low(x[i]) / 2, high(x[i]) / 2);
}
template<class T> inline T fresh(T x) { return x; }
template<class T> inline T fresh_wide(T x) { return x; }
template<class T> inline void keep(T &) {}

/* ---- tiles ---- */

PLAIN inline unsigned swizzled(unsigned a) { return a ^ (a >> 7 & 7) << 4; }
/* n tiles of 8 x 8 numbers of 16 bits; four. */
void load_8x8(int n, unsigned a, unsigned *r, bool turned);
void store_8x8(unsigned a, const unsigned *r, bool turned);
PLAIN inline void ldmatrix(unsigned a, unsigned *r)
{
    load_8x8(4, a, r, false);
}
PLAIN inline void ldmatrix_t(unsigned a, unsigned *r)
{
    load_8x8(4, a, r, true);
}
PLAIN inline void ldmatrix2(unsigned a, unsigned *r)
{
    load_8x8(2, a, r, false);
}
PLAIN inline void stmatrix(unsigned a, const unsigned *r)
{
    store_8x8(a, r, false);
}
PLAIN inline void stmatrix_t(unsigned a, const unsigned *r)
{
    store_8x8(a, r, true);
}
unsigned line_word(unsigned tile, int i, int k);
template<int N>
PLAIN inline void read_line(unsigned (&x)[N], unsigned tile, int i, int k)
{
    for (int n = 0; n < N; n++)
        x[n] = line_word(tile, i, k + 2 * n);
}

/* ---- products ---- */

void product8(float *c, const unsigned *a, const unsigned *b);
void product16(float *c, const unsigned *a, const unsigned *b);
void product_of(float *c, const unsigned *a, const unsigned *b, bool f16);
PLAIN inline void product_step(float *c, const unsigned *a, const unsigned *b)
{
    product_of(c, a, b, F16);
}
/* d = (add ? d : 0) + sign * left b, n numbers of each thread; left is that of
 * registers (a) or, where those are NULL, that which its descriptor tells. */
struct Step { Descriptor left, right; bool left_across, across; float sign; };
void group_product(float *d, int n, const unsigned *a, const Step &s, bool add,
                   bool f16);
template<int ACROSS, int N>
PLAIN inline void product(float (&d)[N], const unsigned *a, Descriptor b,
                          int add)
{
    group_product(d, N, a, Step { 0, b, false, ACROSS != 0, 1 }, add, F16);
}
template<int ACROSS, int N>
PLAIN inline void product(float (&d)[N], Descriptor a, Descriptor b, int add)
{
    group_product(d, N, NULL, Step { a, b, false, ACROSS != 0, 1 }, add, F16);
}
template<int ACROSS_A, int ACROSS_B, int MINUS, int N>
PLAIN inline void tile_product(float (&d)[N], Descriptor a, Descriptor b,
                               int add)
{
    group_product(d, N, NULL, Step { a, b, ACROSS_A != 0, ACROSS_B != 0,
                                     MINUS ? -1.f : 1.f }, add, F16);
}
template<int ACROSS, int MINUS, int N>
PLAIN inline void packed_product(float (&d)[N], const unsigned *a, Descriptor b,
                                 int add)
{
    group_product(d, N, a, Step { 0, b, false, ACROSS != 0,
                                  MINUS ? -1.f : 1.f }, add, F16);
}
/* ---- tensor memory ---- */

void take_columns(int n, unsigned to);
void give_columns(int n, unsigned at);
template<int COLUMNS> PLAIN inline void tensor_alloc(unsigned to)
{
    take_columns(COLUMNS, to);
}
template<int COLUMNS> PLAIN inline void tensor_free(unsigned at)
{
    give_columns(COLUMNS, at);
}
unsigned tensor_at(unsigned from);
void tensor_before();
void tensor_after();
void tensor_commit(unsigned barrier);
void tensor_product(unsigned d, Descriptor a, Descriptor b, unsigned shape,
                    int add);
void load_sums(float *d, int n, unsigned at);
void store_sums(unsigned at, const float *d, int n);
template<int N> PLAIN inline void tensor_load(float (&d)[N], unsigned at)
{
    load_sums(d, N, at);
}
template<int N> PLAIN inline void tensor_store(unsigned at, const float (&d)[N])
{
    store_sums(at, d, N);
}
void tensor_loaded();
void tensor_stored();
#define TENSOR_MOVE(...)

#define WGMMA(...)
#define TILE_PRODUCT(...)
#define PACKED_PRODUCT(...)
inline void wgmma_fence() {}
void wgmma_commit();
void wgmma_wait_for(int left);
template<int LEFT> PLAIN inline void wgmma_wait() { wgmma_wait_for(LEFT); }
