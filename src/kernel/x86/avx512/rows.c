#include "kernel/x86/avx512/lanes.h"
/* Everything that works on one row; written once for both levels. */
#include "kernel/x86/rows.inc"
