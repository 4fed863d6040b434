#include "kernel/scalar/scalar.h"

#ifdef SN_SCALAR_FMA
#define LEVEL "scalar-fma"
#else
#define LEVEL "scalar"
#endif

/* The specification has every slot. */
void SCALAR(sn_kernels_fill)(struct sn_kernels *k)
{
#define SN_KERNEL(slot) k->slot = SCALAR(sn_##slot), k->variant[SN_K_##slot] = LEVEL;
#include "kernel/kernel.list"
#undef SN_KERNEL
}
