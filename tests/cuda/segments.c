/* segments.c -- into how many segments long sequences are cut, and which of
 * these are asked what they leave by themselves. */
#include "../../backend/cuda/segments.h"
#include "expect.h"

#include <stdlib.h>

static int count_of(int64_t sequences, int heads, int64_t tokens, int rows,
                    bool joint, bool lean)
{
    enum { CHUNK = 64, PROCESSORS = 132, MOST = 4 };
    Seq seq[MOST] = { { 0 } };
    for (int64_t i = 0; i < sequences; i++)
        seq[i] = (Seq){ 0, i * tokens, tokens };
    Call call = { .nseq = sequences, .heads = heads, .seq = seq };
    Cuts k = { rows, joint, lean, false };
    return segments_count(&call, CHUNK, &k, PROCESSORS);
}

static int count_rows(int64_t sequences, int heads, int64_t tokens, int rows,
                      bool joint)
{
    return count_of(sequences, heads, tokens, rows, joint, false);
}

static int count(int64_t sequences, int heads, int64_t tokens, bool joint)
{
    return count_rows(sequences, heads, tokens, 128, joint);
}

/* Two sequences in three: which segments have tokens, as digits. */
static int asked(SegmentTable t)
{
    enum { N = 3, SEQUENCES = 2 };
    Seq seq[N * SEQUENCES];
    int digits = 0;
    for (int i = 0; i < N * SEQUENCES; i++)
        seq[i] = (Seq){ i / N, 64 * (i % N), 64 };
    Segments s = { .n = N, .call = { .nseq = N * SEQUENCES, .seq = seq } };
    for (int i = 0; i < N * SEQUENCES; i++)
        digits = 10 * digits + (segments_length(&s, t, i) == 64);
    return digits;
}

int main(void)
{
    unsetenv("FLIN_SEGMENTS");
    expect(count(1, 96, 32768, true) == 1, "heads enough for all processors");
    expect(count(4, 16, 8192, true) == 1, "or sequences");
    expect(count(1, 16, 2048, true) == 1, "a short one");
    expect(count(0, 16, 2048, true) == 1 && count(1, 16, 0, true) == 1,
           "nothing to cut");
    int both = count(1, 16, 32768, true), one = count(1, 16, 32768, false);
    expect(both > 1 && 16 * both <= 132, "a segment each for the processors");
    expect(one > 1 && 16 * one <= 132, "forward alone, too");
    expect(count(1, 16, 1 << 20, true) >= both, "longer: not fewer");
    expect(count_of(2, 16, 16384, 128, true, false) == 1
           && count_of(2, 16, 16384, 128, true, true) > 1,
           "more heads, where walks for ends alone take less");
    expect(asked(OF_ALL) == 111111, "all");
    expect(asked(OF_OWN) == 110110, "nobody follows the last");
    expect(asked(OF_TRANSITIONS) == 10010, "nor does the first follow any");
    expect(asked(OF_BACK) == 11011, "back nobody follows the first");
    expect(count_rows(4, 1, 8192, 1, true) > 1, "vectors, too");
    expect(count_rows(4, 1, 8192, 1, true) >= count(4, 1, 8192, true),
           "which go on sooner");
    setenv("FLIN_SEGMENTS", "5", 1);
    expect(count(1, 96, 2048, true) == 5, "as asked");
    expect(count(1, 96, 130, true) == 3, "at most one for each chunk");
    expect(count(1, 96, 0, true) == 1, "none of no chunk");
    setenv("FLIN_SEGMENTS", "1", 1);
    expect(count(1, 16, 32768, true) == 1, "never");
    return report();
}
