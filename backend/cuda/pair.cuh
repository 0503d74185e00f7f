/* pair.cuh -- two blocks next to each other, a cluster, that see each other's
 * shared memory. After device.cuh.
 */

/* Both blocks, all threads: what was written before is seen behind. */
INLINE void pair_sync()
{
    asm volatile("barrier.cluster.arrive.release;\n"
                 "barrier.cluster.wait.acquire;" ::: "memory");
}
/* The other block's place at this address. */
INLINE u32 over_there(u32 a)
{
    u32 r;
    asm("{.reg .u32 c; mov.u32 c, %%cluster_ctarank; xor.b32 c, c, 1;\n"
        "mapa.shared::cluster.u32 %0, %1, c;}" : "=r"(r) : "r"(a));
    return r;
}
/* This thread is done with a stage; paired: the other block writes to it. */
template<bool PAIRED> INLINE void release(u32 empty)
{
    arrive(empty);
    if (PAIRED)
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];"
                     :: "r"(over_there(empty)) : "memory");
}
/* The warp is done with a stage that the other block writes to. */
INLINE void arrive_in_both(u32 empty)
{
    arrive(empty);
    __syncwarp();
    if ((threadIdx.x & 31) == 0)
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];"
                     :: "r"(over_there(empty)) : "memory");
}
/* What lies at `a` to the other block, whose barrier counts the bytes. */
INLINE void give(u32 a, u32 to, int bytes, u32 barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier"
        "::complete_tx::bytes [%0], [%1], %3, [%2];"
        :: "r"(over_there(to)), "r"(a), "r"(over_there(barrier)), "r"(bytes)
        : "memory");
}
