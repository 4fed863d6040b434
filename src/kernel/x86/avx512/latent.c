#include "kernel/x86/avx512/lanes.h"

#include "kernel/x86/latent.inc"
