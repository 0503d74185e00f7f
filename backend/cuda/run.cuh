/* run.cuh -- which sequence and chunk a block has in hand. After numbers.cuh.
 */
/* A launch. seq: in order of batch entry and start; null: sequences are the
 * pieces of `each` tokens that a batch entry of `tokens` is cut in, the last of
 * which may be shorter by less than a chunk. per_entry: the chunks of a batch
 * entry. items: what there is to do, shared out among the blocks of the grid.
 * ragged: chunks may have fewer tokens than their tiles have room for. parts:
 * blocks that share a walk; part i has its chunks from bound[i] / 4096 of all
 * on. per_head: 2^32 / heads, rounded up, by which few numbers are divided by
 * the heads; 0: there is one head. by_heads, by_slots, by_pieces: of the heads,
 * of the places that a piece's chunks have, of a batch entry's pieces. */
struct Run {
    const Sequence *seq;
    i64 nseq, tokens, each, per_entry, items;
    char *stored, *later, *spill;
    int heads, ragged;
    int parts, bound[5];
    u32 per_head;
    Divisor by_heads, by_slots, by_pieces;
};

/* Of kernels of single tokens: which states of pools are the sequences'
 * (call.h), by strides of them; null: their own, in order. each: what each
 * token leaves is kept. */
struct Pages {
    const void *at;
    i64 row, col, states;
    int wide, each;
};

/* The state of sequence s that token `token` leaves, or (-1) that it begins
 * with, among all; -1: none. */
INLINE i64 state_entry(const Pages &p, i64 s, i64 token)
{
    if (!p.at)
        return s;
    const i64 at = s * p.row + (token + 1) * p.col;
    const i64 entry = p.wide ? ((const i64 *)p.at)[at]
                             : ((const int *)p.at)[at];
    return entry >= 0 && entry < p.states ? entry : -1;
}

/* Of x that are few: its sequence. */
INLINE int by_few_heads(const Run &run, u32 x)
{
    return (int)(run.per_head ? (u32)((u64)x * run.per_head >> 32) : x);
}

/* One token of batch entry b, and no other. */
struct OneToken {
    int b;
    enum { start = 0, len = 1 };
};

INLINE Sequence sequence(const Run &run, i64 s)
{
    if (run.seq)
        return run.seq[s];
    u32 piece;
    Sequence q;
    q.b = (int)divided_by((u32)s, run.by_pieces, piece);
    q.start = piece * run.each;
    q.len = min(run.tokens - q.start, run.each);
    return q;
}

/* The place of a sequence's first chunk among all: no two sequences' chunks
 * meet, wherever in its entry each begins. */
INLINE i64 first_slot(const Run &run, i64 s, int chunk)
{
    const Sequence q = sequence(run, s);
    return s + q.b * run.per_entry + q.start / chunk;
}

/* The sequence that has the slot, if any has it; the first, for slots before
 * all. */
INLINE i64 find_sequence(const Run &run, i64 slot, int chunk)
{
    i64 lo = 0, hi = run.nseq;
    u32 left;
    if (!run.seq)
        return divided_by((u32)slot, run.by_slots, left);
    while (hi - lo > 1) {
        const i64 mid = lo + (hi - lo) / 2;
        if (first_slot(run, mid, chunk) <= slot)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}
