#include "kernel/x86/avx2/lanes.h"

#include "kernel/x86/latent.inc"
