#include "kernel/x86/avx2/lanes.h"

enum { SSM_BLOCKS = 2 };
#include "kernel/x86/recur.inc"
