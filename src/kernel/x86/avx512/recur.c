#include "kernel/x86/avx512/lanes.h"

enum { SSM_BLOCKS = 4 };
#include "kernel/x86/recur.inc"
