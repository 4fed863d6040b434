/* kcheck as a program: the same options as `sennit selftest`. */
#include "kcheck/kcheck.h"

int main(int argc, char **argv)
{
    struct kcheck_opts opts;
    if (!kcheck_parse(argc, argv, &opts))
        return 2;
    return kcheck_main(&opts);
}
