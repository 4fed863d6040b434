/* The architectures that can run. A new one is a file and a line here. */
#include "model/model.h"

extern const struct sn_arch sn_arch_llama;

const struct sn_arch *const sn_archs[] = {&sn_arch_llama, NULL};
