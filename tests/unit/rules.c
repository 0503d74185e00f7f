/* rules.c -- every rule shrinks, and both of its sides are equal. */
#include "../../compiler/fold.h"
#include "support.h"

int main(void)
{
    int bad = 0, rules = 0;
    uint64_t seed = 3;
    double v[5], side[2];

    if (fold_bad_rule() >= 0) {
        printf("rules: rule %d does not shrink\n", fold_bad_rule());
        bad++;
    }
    for (; fold_rule_values(rules, (double[5]){ 1, 1, 1, 1, 1 }, side);
         rules++)
        for (int k = 0; k < 100; k++) {
            for (int i = 0; i < 5; i++)     /* positive: log, sqrt, c != 0 */
                v[i] = 0.1 + 3 * uniform(&seed);
            fold_rule_values(rules, v, side);
            if (fabs(side[0] - side[1]) <= 1e-12 * (1 + fabs(side[0])))
                continue;
            printf("rules: rule %d: %g is not %g\n", rules, side[0], side[1]);
            bad++;
            break;
        }
    if (!rules) {
        printf("rules: there are none\n");
        bad++;
    }
    return bad != 0;
}
